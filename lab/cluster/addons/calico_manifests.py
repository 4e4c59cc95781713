"""Calico by plain manifests, for clusters of Linux nodes: no operator, no API server of its own.

Pure. The shape is that of upstream's ``manifests/calico-vxlan.yaml`` and ``calico.yaml`` (3.31):
Calico's objects are Kubernetes' custom resources, a DaemonSet is on every node, and one Deployment
sets free what nodes that are gone have held. Left out is what a lab has no use for: eBPF, IPIP, the
upgrade of other networks' addresses. The account may do all in the cluster, as the operator's may.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from lab.cluster.addons import calico_settings
from lab.cluster.bundle.manifest import Manifest
from lab.cluster.cluster import API_PORT, Cluster
from lab.cluster.documents import Document, administrator
from lab.topology.intent import Intent

ACCOUNT = "calico-node"
CNI_CONFIG = "10-calico.conflist"
_GROUP = "crd.projectcalico.org"
_KINDS = {
    "BGPConfiguration": "bgpconfigurations",
    "BGPFilter": "bgpfilters",
    "BGPPeer": "bgppeers",
    "BlockAffinity": "blockaffinities",
    "CalicoNodeStatus": "caliconodestatuses",
    "ClusterInformation": "clusterinformations",
    "FelixConfiguration": "felixconfigurations",
    "GlobalNetworkPolicy": "globalnetworkpolicies",
    "GlobalNetworkSet": "globalnetworksets",
    "HostEndpoint": "hostendpoints",
    "IPAMBlock": "ipamblocks",
    "IPAMConfig": "ipamconfigs",
    "IPAMHandle": "ipamhandles",
    "IPPool": "ippools",
    "IPReservation": "ipreservations",
    "KubeControllersConfiguration": "kubecontrollersconfigurations",
    "NetworkPolicy": "networkpolicies",
    "NetworkSet": "networksets",
    "StagedGlobalNetworkPolicy": "stagedglobalnetworkpolicies",
    "StagedKubernetesNetworkPolicy": "stagedkubernetesnetworkpolicies",
    "StagedNetworkPolicy": "stagednetworkpolicies",
    "Tier": "tiers",
}
"""Kinds and their plurals."""
_OF_NAMESPACES = {
    "NetworkPolicy", "NetworkSet", "StagedKubernetesNetworkPolicy", "StagedNetworkPolicy"
}  # fmt: skip
_POLICY_GROUP = "policy.networking.k8s.io"
_POLICY_KINDS = {
    "AdminNetworkPolicy": "adminnetworkpolicies",
    "BaselineAdminNetworkPolicy": "baselineadminnetworkpolicies",
}
"""Of Kubernetes' own, which Calico watches."""
_STORED = {"IPAMConfiguration": "IPAMConfig"}
"""Where a kind has another name as it is stored."""
_HOST_PATHS = {
    "cni-bin": ("/opt/cni/bin", "/host/opt/cni/bin"),
    "cni-conf": ("/etc/cni/net.d", "/host/etc/cni/net.d"),
    "lib-calico": ("/var/lib/calico", "/var/lib/calico"),
    "modules": ("/lib/modules", "/lib/modules"),
    "run-calico": ("/run/calico", "/var/run/calico"),
}
"""Volume: the machine's directory, and where its containers see it."""
_SKIPPED = "bandwidth,flannel,host-local,loopback,portmap,tuning"
"""Programs of Calico's image that nodes have already, or have no use for."""
_HEALTH_PORT = 9099
"""Felix's, on the node's loopback address."""
_START_SECONDS, _LOOK_SECONDS = 600, 30
_NODE_LABEL = {"k8s-app": "calico-node"}
_CONTROLLERS_LABEL = {"k8s-app": "calico-kube-controllers"}


def waves(cluster: Cluster, intent: Intent, manifest: Manifest) -> tuple[tuple[Document, ...], ...]:
    """The kinds, then all else."""
    settings = calico_settings.settings(cluster, intent)
    return (
        (*administrator(ACCOUNT, calico_settings.NAMESPACE), *_kinds()),
        (
            *(_pool(cluster, one) for one in calico_settings.pools(cluster)),
            *(_object(_STORED.get(one.kind, one.kind), one.name, one.spec) for one in settings),
            _daemon_set(cluster, manifest),
            _controllers(cluster, manifest),
        ),
    )


def cni_config(cluster: Cluster) -> str:
    """What the installer writes on a node, once it has put the node's name in."""
    document = {
        "name": "k8s-pod-network",
        "cniVersion": "0.3.1",
        "plugins": [
            {
                "type": "calico",
                "datastore_type": "kubernetes",
                "nodename": "__KUBERNETES_NODE_NAME__",
                "mtu": cluster.pod_mtu,
                "ipam": {"type": "calico-ipam"},
                "policy": {"type": "k8s"},
                "kubernetes": {"kubeconfig": "__KUBECONFIG_FILEPATH__"},
            },
            {"type": "portmap", "snat": True, "capabilities": {"portMappings": True}},
        ],
    }
    return json.dumps(document, indent=2) + "\n"


def _kinds() -> Iterator[Document]:
    """Any content is taken: it is the lab's own, and Calico's, which check it themselves."""
    for kind, plural in _KINDS.items():
        yield _kind(_GROUP, "v1", kind, plural)
    for kind, plural in _POLICY_KINDS.items():
        yield _kind(_POLICY_GROUP, "v1alpha1", kind, plural)


def _kind(group: str, version: str, kind: str, plural: str) -> Document:
    metadata: dict[str, Any] = {"name": f"{plural}.{group}"}
    if group == _POLICY_GROUP:  # the API server has them protected
        approved = "https://github.com/kubernetes-sigs/network-policy-api/pull/30"
        metadata["annotations"] = {"api-approved.kubernetes.io": approved}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": metadata,
        "spec": {
            "group": group,
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": plural,
                "singular": kind.lower(),
            },
            "scope": "Namespaced" if kind in _OF_NAMESPACES else "Cluster",
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": True,
                    "schema": {
                        "openAPIV3Schema": {
                            "type": "object",
                            "x-kubernetes-preserve-unknown-fields": True,
                        }
                    },
                }
            ],
        },
    }


def _pool(cluster: Cluster, pool: calico_settings.IPPool) -> Document:
    return _object("IPPool", pool.name, calico_settings.stored(cluster.topology, pool))


def _object(kind: str, name: str, spec: Any) -> Document:
    own = {"autoAllocateBlocks": True} if kind == "IPAMConfig" else {}
    return {
        "apiVersion": f"{_GROUP}/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": {**own, **spec},
    }


def _daemon_set(cluster: Cluster, manifest: Manifest) -> Document:
    pod = {
        **_pod(),
        "hostNetwork": True,
        "priorityClassName": "system-node-critical",
        "terminationGracePeriodSeconds": 0,
        "tolerations": [{"operator": "Exists"}],
        "initContainers": [_installer(cluster, manifest)],
        "containers": [_node(cluster, manifest)],
        "volumes": [
            {"name": name, "hostPath": {"path": path, "type": "DirectoryOrCreate"}}
            for name, (path, _) in _HOST_PATHS.items()
        ],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": calico_settings.DAEMON_SET, "namespace": calico_settings.NAMESPACE},
        "spec": {
            "selector": {"matchLabels": _NODE_LABEL},
            "template": {"metadata": {"labels": _NODE_LABEL}, "spec": pod},
        },
    }


def _controllers(cluster: Cluster, manifest: Manifest) -> Document:
    container = {
        "name": "calico-kube-controllers",
        "image": manifest.image(calico_settings.CONTROLLERS).name,
        "imagePullPolicy": "Never",
        "env": [
            {"name": "ENABLED_CONTROLLERS", "value": "node"},
            {"name": "DATASTORE_TYPE", "value": "kubernetes"},
            *_api(cluster),
        ],
    }
    pod = {
        **_pod(),
        "priorityClassName": "system-cluster-critical",
        "tolerations": [{"effect": "NoSchedule", "operator": "Exists"}],
        "containers": [container],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "calico-kube-controllers", "namespace": calico_settings.NAMESPACE},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": _CONTROLLERS_LABEL},
            "strategy": {"type": "Recreate"},
            "template": {"metadata": {"labels": _CONTROLLERS_LABEL}, "spec": pod},
        },
    }


def _pod() -> dict[str, Any]:
    return {"nodeSelector": {"kubernetes.io/os": "linux"}, "serviceAccountName": ACCOUNT}


def _installer(cluster: Cluster, manifest: Manifest) -> Document:
    return {
        "name": "install-cni",
        "image": manifest.image(calico_settings.CNI).name,
        "imagePullPolicy": "Never",
        "command": ["/opt/cni/bin/install"],
        "env": [
            {"name": "CALICO_CNI_SERVICE_ACCOUNT", "value": ACCOUNT},
            {"name": "CNI_CONF_NAME", "value": CNI_CONFIG},
            {"name": "CNI_NETWORK_CONFIG", "value": cni_config(cluster)},
            {"name": "SKIP_CNI_BINARIES", "value": _SKIPPED},
            {"name": "SLEEP", "value": "false"},
            _from_field("KUBERNETES_NODE_NAME", "spec.nodeName"),
            *_api(cluster),
        ],
        "securityContext": {"privileged": True},
        "volumeMounts": _mounts("cni-bin", "cni-conf"),
    }


def _node(cluster: Cluster, manifest: Manifest) -> Document:
    bgp = cluster.topology == calico_settings.BGP
    given = {
        "CALICO_CNI_SERVICE_ACCOUNT": ACCOUNT,
        "CALICO_DISABLE_FILE_LOGGING": "true",
        "CALICO_NETWORKING_BACKEND": "bird" if bgp else "vxlan",
        "CLUSTER_TYPE": "k8s,bgp" if bgp else "k8s",
        "DATASTORE_TYPE": "kubernetes",
        "FELIX_DEFAULTENDPOINTTOHOSTACTION": "ACCEPT",
        "FELIX_HEALTHENABLED": "true",
        "FELIX_IPV6SUPPORT": "false",
        "IP": "autodetect",
        "IP_AUTODETECTION_METHOD": "kubernetes-internal-ip",
        "NO_DEFAULT_POOLS": "true",
        "WAIT_FOR_DATASTORE": "true",
    }
    health = {"host": "127.0.0.1", "port": _HEALTH_PORT}
    return {
        "name": "calico-node",
        "image": manifest.image(calico_settings.NODE).name,
        "imagePullPolicy": "Never",
        "env": [
            *({"name": name, "value": value} for name, value in given.items()),
            _from_field("NODENAME", "spec.nodeName"),
            *_api(cluster),
        ],
        "resources": {"requests": {"cpu": "100m"}},
        "securityContext": {"privileged": True},
        "startupProbe": {
            "httpGet": {**health, "path": "/readiness"},
            "failureThreshold": _START_SECONDS,
            "periodSeconds": 1,
            "timeoutSeconds": _LOOK_SECONDS,
        },
        "readinessProbe": {
            "httpGet": {**health, "path": "/readiness"},
            "periodSeconds": 10,
            "timeoutSeconds": _LOOK_SECONDS,
        },
        "volumeMounts": _mounts("cni-conf", "lib-calico", "modules", "run-calico"),
    }


def _api(cluster: Cluster) -> tuple[Document, ...]:
    """Asked before any Service works, and so without one."""
    return (
        {"name": "KUBERNETES_SERVICE_HOST", "value": cluster.endpoint},
        {"name": "KUBERNETES_SERVICE_PORT", "value": str(API_PORT)},
    )


def _mounts(*names: str) -> list[Document]:
    return [{"name": one, "mountPath": _HOST_PATHS[one][1]} for one in names]


def _from_field(name: str, path: str) -> Document:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
