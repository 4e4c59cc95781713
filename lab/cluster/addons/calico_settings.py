"""Calico on a cluster: VXLAN, or BGP between the nodes or with the router. Pure.

It is installed in two ways, by one rendering of pools and settings: by plain manifests, or by its
operator where Windows nodes are (:mod:`lab.cluster.addons.calico_manifests`,
:mod:`lab.cluster.addons.calico_operator`).

Calico hands addresses out itself, in blocks. So that its blocks are those of the plan, every node
has a pool of its own, of exactly one block, that no other node may use.

Sources: Calico's documentation ("Configure BGP peering", "nftables data plane", "Felix
configuration"), and nodes of Calico 3.31, as they were seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from ipaddress import ip_network
from typing import Any

from lab.cluster.cluster import Cluster
from lab.cluster.documents import Document
from lab.topology.intent import Intent, MachineIntent

VXLAN, BGP = "calico-vxlan", "calico-bgp"
TOPOLOGIES = frozenset({VXLAN, BGP})
NAMESPACE, DAEMON_SET = "calico-system", "calico-node"
"""On every Linux node, in both ways."""
NODE, CNI = "quay.io/calico/node", "quay.io/calico/cni"
CONTROLLERS = "quay.io/calico/kube-controllers"
IMAGES = (CNI, CONTROLLERS, NODE)
"""On every Linux node, in both ways."""
OPERATOR_IMAGES = (
    "quay.io/tigera/operator",
    *(f"quay.io/calico/{one}" for one in ("apiserver", "typha")),
)
"""On every Linux node beside those: the operator says what runs where."""
_NODE_NAME = "kubernetes.io/hostname"
SYSTEM = "projectcalico.org/ASNumber"
"""A Node's annotation."""
POOL_KIND = "ippools.crd.projectcalico.org"


@dataclass(frozen=True, slots=True)
class IPPool:
    """One node's."""

    name: str
    cidr: str
    block_size: int
    """Prefix length: the pool is one block."""
    node_selector: str


@dataclass(frozen=True, slots=True)
class Setting:
    """One object of Calico's API: its kind there, its name, and its ``spec``."""

    kind: str
    name: str
    spec: Mapping[str, Any]


def by_operator(cluster: Cluster) -> bool:
    """Whether the operator installs it; else the lab's own manifests do."""
    return any(node.os == "windows" for node in cluster.nodes)


def images(cluster: Cluster) -> tuple[str, ...]:
    """What a Linux node needs, without tags."""
    return (*IMAGES, *(OPERATOR_IMAGES if by_operator(cluster) else ()))


def pools(cluster: Cluster) -> tuple[IPPool, ...]:
    """In the cluster's order."""
    return tuple(pool(node.name, node.pod_cidr) for node in cluster.nodes if node.pod_cidr)


def pool(node: str, pod_cidr: str) -> IPPool:
    """That of one node, with its part of the pod network."""
    prefix = ip_network(pod_cidr).prefixlen
    return IPPool(f"of-{node}", pod_cidr, prefix, f"{_NODE_NAME} == '{node}'")


def stored(topology: str, pool: IPPool) -> dict[str, Any]:
    """A pool's ``spec`` as Kubernetes has it."""
    return {
        "blockSize": pool.block_size,
        "cidr": pool.cidr,
        "ipipMode": "Never",
        "natOutgoing": True,
        "nodeSelector": pool.node_selector,
        "vxlanMode": "Always" if topology == VXLAN else "Never",
    }


def settings(cluster: Cluster, intent: Intent) -> tuple[Setting, ...]:
    """Calico's own, but for the pools.

    What a node sends to its own pods has the node's address, whatever other cards it has.
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


def systems(cluster: Cluster, intent: Intent) -> Iterator[Document]:
    """What Nodes say of the autonomous systems that they are: Calico reads it there."""
    for machine in _nodes(cluster, intent):
        number = system(intent, machine)
        if number and machine.os == "linux":  # others have not joined yet
            yield {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"annotations": {SYSTEM: number}, "name": machine.name},
            }


def system(intent: Intent, machine: MachineIntent) -> str | None:
    """A node's own: it has one where nodes peer with the router, and not with each other."""
    own = machine.speaker is not None and _router(intent) is not None
    return str(machine.speaker.asn) if own and machine.speaker else None


def _nodes(cluster: Cluster, intent: Intent) -> tuple[MachineIntent, ...]:
    return tuple(intent.machine(node.name) for node in cluster.nodes)


def _router(intent: Intent) -> MachineIntent | None:
    """The one that nodes peer with; None where they peer with each other."""
    return next((one for one in intent.machines if one.kind == "router" and one.speaker), None)
