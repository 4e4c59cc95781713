"""Calico on a cluster, by its operator: VXLAN, or BGP between the nodes or with the router. Pure.

Sources: Calico's documentation ("Installation reference", "Configure BGP peering", "nftables data
plane", "Install Calico for Windows" by the operator), and the operator's own sources
(``installation_types.go``: 25 pools at most; ``--manage-crds``). Nobody has run it here: neither
Calico's images nor its sources can be had where the lab is made.

Calico hands addresses out itself, in blocks. So that its blocks are those of the plan, every node
has a pool of its own, of exactly one block, that no other node may use.
"""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_network

from lab.cluster.bundle.manifest import Manifest
from lab.cluster.cluster import API_PORT, Cluster
from lab.cluster.documents import Document, administrator
from lab.topology.intent import Intent, MachineIntent

VXLAN, BGP = "calico-vxlan", "calico-bgp"
TOPOLOGIES = frozenset({VXLAN, BGP})
NAMESPACE = "tigera-operator"
SYSTEM_NAMESPACE, DAEMON_SET = "calico-system", "calico-node"
"""What the operator makes of an Installation, on every Linux node."""
REGISTRY = "quay.io/"
OPERATOR = "quay.io/tigera/operator"
IMAGES = (
    OPERATOR,
    *(f"quay.io/calico/{one}" for one in ("apiserver", "cni", "kube-controllers", "node", "typha")),
)
"""On every Linux node: the operator says what runs where."""
MOST_POOLS = 25
"""Of an Installation (``+kubebuilder:validation:MaxItems``)."""
_LABEL = {"name": "tigera-operator", "k8s-app": "tigera-operator"}
_NODE_NAME = "kubernetes.io/hostname"


def unfit(intent: Intent) -> str:
    """Why Calico cannot have the plan's pod addresses; empty where it can."""
    nodes = sum(1 for machine in intent.machines if machine.kubelet and machine.kubelet.pod_cidr)
    if nodes <= MOST_POOLS:
        return ""
    return (
        f"{nodes} nodes run pods, each has an IP pool of its own, and Calico's operator takes "
        f"{MOST_POOLS}"
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


def installation(cluster: Cluster, intent: Intent) -> tuple[Document, ...]:
    """What the operator is to make, and each node's own autonomous system.

    The data plane is kube-proxy's own, nftables. Nodes have a management card too, so that Calico
    is told to take the address that the kubelet gives.
    """
    network = {
        "bgp": "Enabled" if cluster.topology == BGP else "Disabled",
        "hostPorts": "Enabled",
        "ipPools": list(_pools(cluster)),
        "linuxDataplane": "Nftables",
        "mtu": cluster.pod_mtu,
        "nodeAddressAutodetectionV4": {"kubernetes": "NodeInternalIP"},
    }
    if cluster.topology == VXLAN and any(node.os == "windows" for node in cluster.nodes):
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
        *_systems(cluster, intent),
    )


def configuration(cluster: Cluster, intent: Intent) -> tuple[Document, ...]:
    """Calico's own settings, once its API server takes them."""
    common = (_default("IPAMConfiguration", {"strictAffinity": True}),)
    if cluster.topology == VXLAN:
        tunnel = next(machine.tunnel for machine in intent.machines if machine.tunnel)
        felix = {"vxlanMTU": tunnel.mtu, "vxlanPort": tunnel.port, "vxlanVNI": tunnel.vni}
        return (*common, _default("FelixConfiguration", felix))
    speakers = [machine.speaker for machine in _nodes(cluster, intent) if machine.speaker]
    router = _router(intent)
    mesh = router is None
    settings = {"asNumber": speakers[0].asn} if mesh else {}
    bgp = _default("BGPConfiguration", {**settings, "nodeToNodeMeshEnabled": mesh})
    if router is None or router.speaker is None:
        return (*common, bgp)
    peer = {
        "asNumber": router.speaker.asn,
        "nodeSelector": "all()",
        "peerIP": router.speaker.address,
        "sourceAddress": "UseNodeIP",
    }
    return (*common, bgp, _own("BGPPeer", router.name, peer))


def _pools(cluster: Cluster) -> Iterator[Document]:
    """One a node, in the cluster's order, with one block: the node's part of the pod network."""
    encapsulation = "VXLAN" if cluster.topology == VXLAN else "None"
    for node in cluster.nodes:
        if node.pod_cidr:
            yield {
                "blockSize": ip_network(node.pod_cidr).prefixlen,
                "cidr": node.pod_cidr,
                "encapsulation": encapsulation,
                "name": f"of-{node.name}",
                "natOutgoing": "Enabled",
                "nodeSelector": f"{_NODE_NAME} == '{node.name}'",
            }


def _systems(cluster: Cluster, intent: Intent) -> Iterator[Document]:
    """Where nodes peer with the router, each is an autonomous system: Calico reads it there."""
    if cluster.topology != BGP or _router(intent) is None:
        return
    for machine in _nodes(cluster, intent):
        if machine.speaker and machine.os == "linux":  # others have not joined yet
            yield {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {
                    "annotations": {"projectcalico.org/ASNumber": str(machine.speaker.asn)},
                    "name": machine.name,
                },
            }


def _nodes(cluster: Cluster, intent: Intent) -> tuple[MachineIntent, ...]:
    return tuple(intent.machine(node.name) for node in cluster.nodes)


def _router(intent: Intent) -> MachineIntent | None:
    """The one that nodes peer with; None where they peer with each other."""
    return next((one for one in intent.machines if one.kind == "router" and one.speaker), None)


def _default(kind: str, spec: Document) -> Document:
    return _own(kind, "default", spec)


def _own(kind: str, name: str, spec: Document) -> Document:
    return {
        "apiVersion": "projectcalico.org/v3",
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
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
