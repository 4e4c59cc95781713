"""Calico by its operator, which Windows nodes ask for. Pure.

Sources: Calico's documentation ("Installation reference", "Install Calico for Windows" by the
operator), and the operator's own sources (``installation_types.go``: 25 pools at most;
``--manage-crds``). Operator 1.40.8 and Calico's API server 3.31 have taken these documents once, by
hand; no test can do it again, because the operator cannot be had where the lab is made.
"""

from __future__ import annotations

from collections.abc import Iterator

from lab.cluster.addons import calico_settings
from lab.cluster.bundle.manifest import Manifest
from lab.cluster.cluster import API_PORT, Cluster
from lab.cluster.documents import Document, administrator
from lab.topology.intent import Intent

NAMESPACE = "tigera-operator"
REGISTRY = "quay.io/"
OPERATOR = "quay.io/tigera/operator"
MOST_POOLS = 25
"""Of an Installation (``+kubebuilder:validation:MaxItems``)."""
_LABEL = {"name": "tigera-operator", "k8s-app": "tigera-operator"}


def unfit(intent: Intent) -> str:
    """Why the operator cannot make the plan's pod addresses; empty where it can."""
    nodes = sum(1 for machine in intent.machines if machine.kubelet and machine.kubelet.pod_cidr)
    if nodes <= MOST_POOLS:
        return ""
    return (
        f"{nodes} nodes run pods, each has an IP pool of its own, and Calico's operator, which "
        f"Windows nodes ask for, takes {MOST_POOLS}"
    )


def waves(cluster: Cluster, intent: Intent, manifest: Manifest) -> tuple[tuple[Document, ...], ...]:
    """The operator, what it is to make, and Calico's settings, each once the kinds are there."""
    return (
        operator(cluster, manifest),
        installation(cluster),
        tuple(_setting(one) for one in calico_settings.settings(cluster, intent)),
    )


def operator(cluster: Cluster, manifest: Manifest) -> tuple[Document, ...]:
    """The operator, which brings its own kinds, and where it finds the API.

    Its rights are a cluster administrator's: it grants to others what it has itself.
    """
    return (
        *administrator("tigera-operator", NAMESPACE),
        services_endpoint(cluster),
        _deployment(manifest),
    )


def services_endpoint(cluster: Cluster) -> Document:
    """Where the API server is: no service address works before kube-proxy does."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "kubernetes-services-endpoint", "namespace": NAMESPACE},
        "data": {
            "KUBERNETES_SERVICE_HOST": cluster.endpoint,
            "KUBERNETES_SERVICE_PORT": str(API_PORT),
        },
    }


def installation(cluster: Cluster) -> tuple[Document, ...]:
    """What the operator is to make.

    The data plane is kube-proxy's own, nftables. Nodes have a management card too, so that Calico
    is told to take the address that the kubelet gives.
    """
    network = {
        "bgp": "Enabled" if cluster.topology == calico_settings.BGP else "Disabled",
        "hostPorts": "Enabled",
        "ipPools": list(_pools(cluster)),
        "linuxDataplane": "Nftables",
        "mtu": cluster.pod_mtu,
        "nodeAddressAutodetectionV4": {"kubernetes": "NodeInternalIP"},
    }
    if cluster.topology == calico_settings.VXLAN:
        network["windowsDataplane"] = "HNS"
    return (
        {
            "apiVersion": "operator.tigera.io/v1",
            "kind": "Installation",
            "metadata": {"name": "default"},
            "spec": {
                "calicoNetwork": network,
                "flexVolumePath": "None",
                "kubeletVolumePluginPath": "None",
                "registry": REGISTRY,
                "serviceCIDRs": [cluster.service_cidr],
            },
        },
        {
            "apiVersion": "operator.tigera.io/v1",
            "kind": "APIServer",
            "metadata": {"name": "default"},
            "spec": {},
        },
    )


def _pools(cluster: Cluster) -> Iterator[Document]:
    encapsulation = "VXLAN" if cluster.topology == calico_settings.VXLAN else "None"
    for pool in calico_settings.pools(cluster):
        yield {
            "blockSize": pool.block_size,
            "cidr": pool.cidr,
            "encapsulation": encapsulation,
            "name": pool.name,
            "natOutgoing": "Enabled",
            "nodeSelector": pool.node_selector,
        }


def _setting(one: calico_settings.Setting) -> Document:
    """By Calico's own API."""
    return {
        "apiVersion": "projectcalico.org/v3",
        "kind": one.kind,
        "metadata": {"name": one.name},
        "spec": one.spec,
    }


def _deployment(manifest: Manifest) -> Document:
    pod = {
        "dnsPolicy": "ClusterFirstWithHostNet",
        "hostNetwork": True,
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "serviceAccountName": "tigera-operator",
        "tolerations": [{"operator": "Exists"}],
        "containers": [_container(manifest)],
        "volumes": [{"name": "var-lib-calico", "hostPath": {"path": "/var/lib/calico"}}],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "tigera-operator", "namespace": NAMESPACE, "labels": _LABEL},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"name": "tigera-operator"}},
            "template": {"metadata": {"labels": _LABEL}, "spec": pod},
        },
    }


def _container(manifest: Manifest) -> Document:
    image = manifest.image(OPERATOR).name
    return {
        "name": "tigera-operator",
        "image": image,
        "imagePullPolicy": "Never",
        "command": ["operator"],
        "args": ["--manage-crds=true"],
        "env": [
            {"name": "WATCH_NAMESPACE", "value": ""},
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "OPERATOR_NAME", "value": "tigera-operator"},
            {"name": "TIGERA_OPERATOR_INIT_IMAGE_VERSION", "value": image.rpartition(":")[2]},
        ],
        "envFrom": [
            {"configMapRef": {"name": "kubernetes-services-endpoint", "optional": True}},
        ],
        "volumeMounts": [
            {"name": "var-lib-calico", "mountPath": "/var/lib/calico", "readOnly": True}
        ],
    }
