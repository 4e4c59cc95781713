"""CoreDNS in a cluster, with the scenario's address and domain. Pure."""

from __future__ import annotations

from lab.cluster.bundle.manifest import Manifest
from lab.cluster.cluster import Cluster
from lab.cluster.documents import Document
from lab.topology.intent import Intent

NAMESPACE = "kube-system"
IMAGE = "registry.k8s.io/coredns/coredns"
REPLICAS = 2
"""As kubeadm has it; one where a single Linux node would have both."""
_LABEL = {"k8s-app": "kube-dns"}


def documents(cluster: Cluster, manifest: Manifest) -> tuple[Document, ...]:
    """Everything of CoreDNS, as kubeadm's add-on has it but for the address and the Corefile."""
    account = {"name": "coredns", "namespace": NAMESPACE}
    return (
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account},
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": "system:coredns"},
            "rules": [
                {
                    "apiGroups": [""],
                    "resources": ["endpoints", "services", "pods", "namespaces"],
                    "verbs": ["list", "watch"],
                },
                {
                    "apiGroups": ["discovery.k8s.io"],
                    "resources": ["endpointslices"],
                    "verbs": ["list", "watch"],
                },
            ],
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "system:coredns"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "system:coredns",
            },
            "subjects": [{"kind": "ServiceAccount", **account}],
        },
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "coredns", "namespace": NAMESPACE},
            "data": {"Corefile": corefile(cluster.domain, cluster.name_server)},
        },
        _deployment(cluster, manifest),
        _service(cluster),
    )


def corefile(domain: str, name_server: str | None = None) -> str:
    """CoreDNS' own configuration.

    Other names than the cluster's are the services node's to answer. Where there is none, the lab
    has no others, and its machines let no pod out to ask for some, so that every other name does
    not exist, at once. That is a server of its own: beside ``kubernetes``, ``template`` would come
    first, whatever the order here.
    """
    others = f"forward . {name_server}" if name_server else _NO_OTHERS
    return f"""{domain}:53 in-addr.arpa:53 ip6.arpa:53 {{
    errors
    health {{
        lameduck 5s
    }}
    ready
    kubernetes {domain} in-addr.arpa ip6.arpa {{
        pods insecure
        ttl 30
    }}
    reload
    loadbalance
}}
.:53 {{
    errors
    {others}
}}
"""


_NO_OTHERS = """template ANY ANY {
        rcode NXDOMAIN
    }"""


def replicas(cluster: Cluster) -> int:
    """How many, of the Linux nodes that run pods."""
    able = [node for node in cluster.nodes if node.os == "linux" and node.pod_cidr]
    return min(REPLICAS, len(able))


def replicas_of(intent: Intent) -> int:
    """The same, of the cluster that an Intent asks for."""
    linux = [one.kubelet for one in intent.machines if one.os == "linux" and one.kubelet]
    return min(REPLICAS, len([one for one in linux if one.pod_cidr]))


def _service(cluster: Cluster) -> Document:
    ports = (("dns", "UDP"), ("dns-tcp", "TCP"))
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": "kube-dns",
            "namespace": NAMESPACE,
            "labels": {
                **_LABEL,
                "kubernetes.io/cluster-service": "true",
                "kubernetes.io/name": "CoreDNS",
            },
        },
        "spec": {
            "clusterIP": cluster.dns_address,
            "selector": _LABEL,
            "ports": [
                {"name": name, "port": 53, "protocol": protocol, "targetPort": 53}
                for name, protocol in ports
            ],
        },
    }


def _deployment(cluster: Cluster, manifest: Manifest) -> Document:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "coredns", "namespace": NAMESPACE, "labels": _LABEL},
        "spec": {
            "replicas": replicas(cluster),
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}},
            "selector": {"matchLabels": _LABEL},
            "template": {"metadata": {"labels": _LABEL}, "spec": _pod(manifest)},
        },
    }


def _pod(manifest: Manifest) -> Document:
    return {
        "priorityClassName": "system-cluster-critical",
        "serviceAccountName": "coredns",
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [
            {"key": "CriticalAddonsOnly", "operator": "Exists"},
            {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"},
        ],
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": _LABEL},
            }
        ],
        "dnsPolicy": "Default",
        "volumes": [{"name": "config-volume", "configMap": {"name": "coredns"}}],
        "containers": [_container(manifest)],
    }


def _container(manifest: Manifest) -> Document:
    return {
        "name": "coredns",
        "image": manifest.image(IMAGE).name,
        "imagePullPolicy": "Never",
        "args": ["-conf", "/etc/coredns/Corefile"],
        "resources": {"limits": {"memory": "170Mi"}, "requests": {"cpu": "50m", "memory": "70Mi"}},
        "volumeMounts": [{"name": "config-volume", "mountPath": "/etc/coredns", "readOnly": True}],
        "ports": [
            {"containerPort": 53, "name": "dns", "protocol": "UDP"},
            {"containerPort": 53, "name": "dns-tcp", "protocol": "TCP"},
        ],
        "livenessProbe": {
            "httpGet": {"path": "/health", "port": 8080},
            "initialDelaySeconds": 60,
            "timeoutSeconds": 5,
            "failureThreshold": 5,
        },
        "readinessProbe": {"httpGet": {"path": "/ready", "port": 8181}, "timeoutSeconds": 5},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"add": ["NET_BIND_SERVICE"], "drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
    }
