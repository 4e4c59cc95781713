"""Calico with VXLAN or BGP: by plain manifests, or by its operator if there are Windows nodes.

Calico allocates addresses itself, in blocks. To make its blocks the plan's, every node has an IP
pool of its own with exactly one block, which no other node may use. The footprint is what was seen
on nodes of Calico 3.31.

The manifests follow upstream's ``manifests/calico-vxlan.yaml`` and ``calico.yaml`` (3.31): Calico's
objects are custom resources, a DaemonSet runs on every node, and one Deployment frees what removed
nodes have held. eBPF, IPIP and the migration from other networks are left out. The account has
full rights, like the operator's.

Sources of the operator's documents: Calico's documentation ("Installation reference", "Install
Calico for Windows", "Configure BGP peering", "nftables data plane", "Felix configuration"), and the
operator's own sources (``installation_types.go``: 25 pools at most; ``--manage-crds``). Operator
1.40.8 and Calico's API server 3.31 accepted these documents once, in a CI runner; no test can
repeat that, because the operator is not available where the lab is made.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from ipaddress import ip_network
from typing import Any

from lab.machines.addons.addon import BRIDGE_CONFIG, FLANNEL_CONFIG, Addon, Waves
from lab.machines.bundle.manifest import Manifest
from lab.machines.cluster.cluster import API_PORT, Cluster
from lab.machines.cluster.documents import Document, administrator, render
from lab.machines.cluster.linux.operations import Operations, Remove
from lab.topology import bird
from lab.topology.footprint import Footprint
from lab.topology.intent import Intent, MachineIntent
from lab.topology.routing import bare

VXLAN, BGP = "calico-vxlan", "calico-bgp"
TOPOLOGIES = frozenset({VXLAN, BGP})
NAMESPACE, DAEMON_SET = "calico-system", "calico-node"
"""Images on every Linux node, with and without the operator."""
NODE, CNI = "quay.io/calico/node", "quay.io/calico/cni"
CONTROLLERS = "quay.io/calico/kube-controllers"
IMAGES = (CNI, CONTROLLERS, NODE)
OPERATOR_IMAGES = (
    "quay.io/tigera/operator",
    *(f"quay.io/calico/{component}" for component in ("apiserver", "typha")),
)
"""Further images with the operator, which decides where each of them runs."""
_NODE_NAME = "kubernetes.io/hostname"
AS_NUMBER = "projectcalico.org/ASNumber"
"""Annotation of a Node."""
POOL_KIND = "ippools.crd.projectcalico.org"


@dataclass(frozen=True, slots=True)
class IPPool:
    """The IP pool of one node."""

    name: str
    cidr: str
    block_size: int
    """Prefix length of a block; the pool has exactly one."""
    node_selector: str


@dataclass(frozen=True, slots=True)
class Setting:
    """One object of Calico's API: its kind, name and ``spec``."""

    kind: str
    name: str
    spec: Mapping[str, Any]


def has_felix(intent: Intent) -> bool:
    """Whether Felix makes the pod network: its tunnels' MACs, and its masquerading."""
    return intent.kubernetes is not None and intent.topology in TOPOLOGIES


def by_operator(cluster: Cluster) -> bool:
    """Whether the operator installs Calico; otherwise the lab's own manifests do."""
    return any(node.os == "windows" for node in cluster.nodes)


def node_pools(cluster: Cluster) -> tuple[IPPool, ...]:
    """The pools of all nodes, in the cluster's order."""
    return tuple(node_pool(node.name, node.pod_cidr) for node in cluster.nodes if node.pod_cidr)


def node_pool(node: str, pod_cidr: str) -> IPPool:
    """The pool of one node, which is its pod CIDR."""
    prefix = ip_network(pod_cidr).prefixlen
    return IPPool(f"of-{node}", pod_cidr, prefix, f"{_NODE_NAME} == '{node}'")


def pool_spec(topology: str, pool: IPPool) -> dict[str, Any]:
    """A pool's ``spec`` in the API."""
    return {
        "blockSize": pool.block_size,
        "cidr": pool.cidr,
        "ipipMode": "Never",
        "natOutgoing": True,
        "nodeSelector": pool.node_selector,
        "vxlanMode": "Always" if topology == VXLAN else "Never",
    }


def calico_settings(cluster: Cluster, intent: Intent) -> tuple[Setting, ...]:
    """Calico's settings, without the pools.

    What a node sends to its own pods has the node's address, whatever other interfaces it has.
    """
    felix: dict[str, Any] = {"nftablesMode": "Enabled"}
    if cluster.topology == VXLAN:
        tunnel = next(machine.tunnel for machine in intent.machines if machine.tunnel)
        felix |= {"vxlanMTU": tunnel.mtu, "vxlanPort": tunnel.port, "vxlanVNI": tunnel.vni}
    return (
        Setting("IPAMConfiguration", "default", {"strictAffinity": True}),
        Setting("FelixConfiguration", "default", felix),
        *(
            Setting(
                "FelixConfiguration",
                f"node.{node.name}",
                {"deviceRouteSourceAddress": node.address},
            )
            for node in cluster.nodes
            if node.os == "linux" and node.pod_cidr
        ),
        *(_bgp(cluster, intent) if cluster.topology == BGP else ()),
    )


def _bgp(cluster: Cluster, intent: Intent) -> Iterator[Setting]:
    router = _router(intent)
    asn = next(machine.speaker.asn for machine in _nodes(cluster, intent) if machine.speaker)
    mesh = {"asNumber": asn, "nodeToNodeMeshEnabled": True}
    without = {"nodeToNodeMeshEnabled": False}
    yield Setting("BGPConfiguration", "default", mesh if router is None else without)
    if router and router.speaker:
        peer = {
            "asNumber": router.speaker.asn,
            "nodeSelector": "all()",
            "peerIP": router.speaker.address,
            "sourceAddress": "UseNodeIP",
        }
        yield Setting("BGPPeer", router.name, peer)


def as_number(intent: Intent, machine: MachineIntent) -> str | None:
    """A node's own AS number; None unless nodes peer with the router instead of each other."""
    own = machine.speaker is not None and _router(intent) is not None
    return str(machine.speaker.asn) if own and machine.speaker else None


def _nodes(cluster: Cluster, intent: Intent) -> tuple[MachineIntent, ...]:
    return tuple(intent.machine(node.name) for node in cluster.nodes)


def _router(intent: Intent) -> MachineIntent | None:
    """The router that nodes peer with; None if they peer with each other."""
    return next(
        (machine for machine in intent.machines if machine.kind == "router" and machine.speaker),
        None,
    )


ACCOUNT = "calico-node"
_GROUP = "crd.projectcalico.org"
_STORED = {"IPAMConfiguration": "IPAMConfig"}
"""Kinds that are stored under another name."""


def manifest_waves(cluster: Cluster, intent: Intent, manifest: Manifest) -> Waves:
    """The custom resource definitions, then everything else."""
    settings = calico_settings(cluster, intent)
    return (
        (*administrator(ACCOUNT, NAMESPACE), *render("addons/calico_crds.yaml", group=_GROUP)),
        (
            *(
                _crd_object("IPPool", pool.name, pool_spec(cluster.topology, pool))
                for pool in node_pools(cluster)
            ),
            *(
                _crd_object(_STORED.get(setting.kind, setting.kind), setting.name, setting.spec)
                for setting in settings
            ),
            *render(
                "addons/calico.yaml",
                cni_config=cni_config(cluster),
                cni_image=manifest.image(CNI).name,
                node_image=manifest.image(NODE).name,
                controllers_image=manifest.image(CONTROLLERS).name,
                bgp=cluster.topology == BGP,
                endpoint=cluster.endpoint,
                port=API_PORT,
            ),
        ),
    )


def cni_config(cluster: Cluster) -> str:
    """The CNI configuration that the installer writes, after it has inserted the node's name."""
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


def _crd_object(kind: str, name: str, spec: Any) -> Document:
    own = {"autoAllocateBlocks": True} if kind == "IPAMConfig" else {}
    return {
        "apiVersion": f"{_GROUP}/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": {**own, **spec},
    }


OPERATOR_NAMESPACE = "tigera-operator"
OPERATOR = "quay.io/tigera/operator"
MOST_POOLS = 25
"""Limit of an Installation (``+kubebuilder:validation:MaxItems``)."""


def operator_waves(cluster: Cluster, intent: Intent, manifest: Manifest) -> Waves:
    """The operator, its Installation, and Calico's settings, each once its kinds are defined.

    The operator defines its kinds itself. It has a cluster administrator's rights, because it can
    grant to others only what it has.
    """
    image = manifest.image(OPERATOR).name
    documents = render(
        "addons/calico_operator.yaml",
        image=image,
        version=image.rpartition(":")[2],
        endpoint=cluster.endpoint,
        port=API_PORT,
        bgp=cluster.topology == BGP,
        pools=node_pools(cluster),
        mtu=cluster.pod_mtu,
        service_cidr=cluster.service_cidr,
        windows_card=_windows_card(cluster, intent),
    )
    settings = tuple(
        {
            "apiVersion": "projectcalico.org/v3",
            "kind": setting.kind,
            "metadata": {"name": setting.name},
            "spec": setting.spec,
        }
        for setting in calico_settings(cluster, intent)
    )
    operator = (*administrator("tigera-operator", OPERATOR_NAMESPACE), *documents[:2])
    return (operator, documents[2:], settings)


def _windows_card(cluster: Cluster, intent: Intent) -> str | None:
    """Name of the card with the node's address, the same on all Windows nodes.

    Without it Calico makes its VXLAN network on the first card, which is the management network's
    (rancher/rke2 3533, projectcalico/calico 4577). None without VXLAN or Windows nodes.
    """
    cards = (
        card.name
        for node in cluster.nodes
        if node.os == "windows" and cluster.topology == VXLAN
        for card in intent.machine(node.name).interfaces
        if node.address in map(bare, card.addresses)
    )
    return next(cards, None)


class Calico(Addon):
    """Calico; it provides CNI configuration, masquerading and the nodes' BIRD itself."""

    topologies = TOPOLOGIES
    bundled = "calico"
    footprint = Footprint(
        devices=("cali*", "vxlan.calico"),
        ports=("cali*",),
        own_macs=True,
        tables=("calico",),
        paths=(
            "/etc/cni/net.d/10-calico.conflist",
            "/etc/cni/net.d/calico-kubeconfig",
            "/run/calico",
            "/var/lib/calico",
        ),
        control=bird.Control("/run/calico/bird.ctl"),
        tunnel=(
            "correct FelixConfiguration 'default' (vxlanVNI {vni}, vxlanPort {port}), and check "
            "that calico-node runs on this node: Felix recreates {name}"
        ),
    )
    daemon_set = (NAMESPACE, DAEMON_SET)
    routing_daemons = True

    def images(self, cluster: Cluster) -> tuple[str, ...]:
        """Images of the nodes, and of the operator if it is used."""
        return (*IMAGES, *(OPERATOR_IMAGES if by_operator(cluster) else ()))

    def pinned(self, cluster: Cluster) -> bool:
        """With the operator, which names their versions itself."""
        return by_operator(cluster)

    def waves(self, cluster: Cluster, intent: Intent, manifest: Manifest) -> Waves:
        if by_operator(cluster):
            return operator_waves(cluster, intent, manifest)
        return manifest_waves(cluster, intent, manifest)

    def node_documents(self, cluster: Cluster, intent: Intent) -> tuple[Document, ...]:
        """Node objects with their AS numbers, which Calico reads there."""
        return tuple(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"annotations": {AS_NUMBER: number}, "name": machine.name},
            }
            for machine in _nodes(cluster, intent)
            if machine.os == "linux"  # Windows nodes have not joined yet
            and (number := as_number(intent, machine))
        )

    def prepare_node(self, cluster: Cluster, intent: Intent, machine: MachineIntent) -> Operations:
        return (Remove((FLANNEL_CONFIG, BRIDGE_CONFIG)),)

    def unfit(self, intent: Intent) -> str:
        """Why the operator, which Windows nodes need, cannot assign the plan's pod addresses."""
        nodes = sum(
            1 for machine in intent.machines if machine.kubelet and machine.kubelet.pod_cidr
        )
        if not _has_windows(intent) or nodes <= MOST_POOLS:
            return ""
        return (
            f"each of {nodes} nodes that run pods has an IP pool of its own, and Calico's "
            f"operator, which Windows nodes require, allows {MOST_POOLS}"
        )

    def unverified(self, intent: Intent) -> str:
        if not _has_windows(intent):
            return ""
        return (
            "Calico's operator, which Windows nodes require; clusters of Linux nodes were tested "
            "without it"
        )


def _has_windows(intent: Intent) -> bool:
    return any(machine.kubelet and machine.os == "windows" for machine in intent.machines)


ADDON = Calico()
