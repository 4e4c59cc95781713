"""A topology on one Windows node: its HNS network, who creates it, plugin and flanneld. Pure.

The Intent has addresses, OutBoundNAT exceptions, routes and tunnel; this module translates them for
HNS and the plugins. flannel is not a Windows service, so a scheduled task starts it with the
machine. Outside a pod, flannel (0.28) finds its node by ``NODE_NAME``.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Network
from typing import Literal

from lab._errors import UsageError
from lab.machines.cluster.cluster import API_PORT, Cluster, ClusterNode
from lab.topology.intent import Intent, Route
from lab.windows.nodes import paths

Kind = Literal["Overlay", "L2Bridge"]
Maker = Literal["flannel", "lab", "calico"]
Plugin = Literal[
    "flannel+sdnoverlay", "flannel+sdnbridge", "flannel+win-bridge", "win-bridge", "sdnbridge"
]

OVERLAYS = frozenset({"overlay", "kubeinit"})
FLANNEL = frozenset({*OVERLAYS, "host-gateway"})
STATIC = frozenset({"upstream-tor", "upstream-vrrp", "hard-way"})
CALICO = frozenset({"calico-vxlan"})
KNOWN = FLANNEL | STATIC | CALICO
GATEWAY_OFFSET = 1
"""From the network address to HNS' own gateway of a pod network."""
ENDPOINT_OFFSET = 2
"""From the network address to the node's own endpoint on an l2bridge, its pods' gateway."""
DOCUMENTED_ONLY = {
    "ovn": (
        "no bundle has OVS and OVN for Windows; docs/how-to/windows.md has the documented "
        "commands, which are unverified"
    ),
    "calico-bgp": "it needs RRAS and manifests outside Calico's operator, which are unverified",
}


@dataclass(frozen=True, slots=True)
class WindowsPodNetwork:
    """The pod network of one Windows node."""

    name: str
    """Name of the HNS network that kube-proxy works on."""
    kind: Kind
    maker: Maker
    plugin: Plugin | None
    """None if the add-on writes the plugin's configuration."""
    pod_cidr: str
    gateway: str
    """Gateway of the HNS network."""
    endpoint: str | None
    """Name of the node's own HNS endpoint, if kube-proxy must know it."""
    endpoint_address: str | None
    """Address of that endpoint, if the network is an l2bridge."""
    exceptions: tuple[str, ...]
    """Prefixes that pods reach with their own address (OutBoundNAT exceptions)."""
    encapsulated: tuple[str, ...]
    """Prefixes that go through the virtual switch (SDNRoute, NeedEncap)."""
    provider_address: str
    """The node's own address on the segment."""
    routes: tuple[Route, ...]
    """Routes of the host (AddRoutes)."""
    vni: int | None
    port: int | None


def node_network(cluster: Cluster, intent: Intent, node: ClusterNode) -> WindowsPodNetwork:
    """The pod network that the topology has on this node.

    Raises UsageError when the topology does not work on Windows or the node has no pod CIDR.
    """
    action = f"planning the network of Windows node '{node.name}'"
    topology = cluster.topology
    if topology not in KNOWN:
        words = DOCUMENTED_ONLY.get(topology, f"topology '{topology}' is not known on Windows")
        raise UsageError(action, words)
    if node.pod_cidr is None:
        raise UsageError(action, "it has no pod CIDR", "give the node one in the scenario")
    if topology in OVERLAYS | CALICO:
        return _overlay(cluster, intent, node)
    return _bridge(cluster, intent, node)


def _overlay(cluster: Cluster, intent: Intent, node: ClusterNode) -> WindowsPodNetwork:
    """An overlay that flannel creates, or Calico with its own defaults."""
    calico = cluster.topology in CALICO
    tunnel = intent.machine(node.name).tunnel
    assert tunnel is not None, "an overlay's node with pods has one"
    vni, port = (4096, 4789) if calico else (tunnel.vni, tunnel.port)
    return WindowsPodNetwork(
        name="Calico" if calico else f"flannel.{vni}",
        kind="Overlay",
        maker="calico" if calico else "flannel",
        plugin=None if calico else "flannel+sdnoverlay",
        pod_cidr=str(node.pod_cidr),
        gateway=_nth_address(node, GATEWAY_OFFSET),
        endpoint="Calico_ep" if calico else None,
        endpoint_address=None,
        exceptions=(cluster.service_cidr, cluster.pod_cidr),
        encapsulated=(cluster.service_cidr,),
        provider_address=node.address,
        routes=(),
        vni=vni,
        port=port,
    )


def _bridge(cluster: Cluster, intent: Intent, node: ClusterNode) -> WindowsPodNetwork:
    machine = intent.machine(node.name)
    assert machine.translation is not None, "every node with pods has one"
    flannel = cluster.topology in FLANNEL
    own = (f"{node.address}/32",) if cluster.topology in {"host-gateway", "hard-way"} else ()
    return WindowsPodNetwork(
        name="cbr0" if flannel else "l2bridge",
        kind="L2Bridge",
        maker="flannel" if flannel else "lab",
        plugin=_bridge_plugin(cluster, node),
        pod_cidr=str(node.pod_cidr),
        gateway=_nth_address(node, GATEWAY_OFFSET),
        endpoint="cbr0_ep" if flannel else "cbr0",
        endpoint_address=_nth_address(node, ENDPOINT_OFFSET),
        exceptions=machine.translation.not_masqueraded,
        encapsulated=(cluster.service_cidr, *own),
        provider_address=node.address,
        routes=tuple(route for route in machine.routes if route.destination != "default"),
        vni=None,
        port=None,
    )


def _bridge_plugin(cluster: Cluster, node: ClusterNode) -> Plugin:
    """``sdnbridge`` computes the gateway by setting the last byte to 2, ``win-bridge`` by adding 2.

    The first is wrong for a pod CIDR such as 10.10.187.64/26, which therefore gets the second.
    """
    if cluster.topology == "hard-way":
        return "sdnbridge"  # takes its gateway from the configuration, as wincni did
    if cluster.topology in FLANNEL:
        first = IPv4Network(str(node.pod_cidr)).network_address.packed[-1]
        return "flannel+win-bridge" if first else "flannel+sdnbridge"
    return "win-bridge"


def _nth_address(node: ClusterNode, offset: int) -> str:
    return str(IPv4Network(str(node.pod_cidr))[offset])


FLANNELD_TASK = "flanneld"
"""Name of flanneld's task without the prefix ``hybridlab-``."""
FLANNELD_PROGRAMS = ("flanneld.exe",)
PAUSE_SECONDS = 5
"""Seconds to wait before each start of flanneld: the first start interrupts the node's network for
seconds, and by then the caller has its answer.
"""


def flanneld_program(
    cluster: Cluster, node: ClusterNode, network: WindowsPodNetwork, pause: int
) -> dict[str, object]:
    """Settings of ``node-keep.ps1``, which keeps flanneld running.

    ``pause``: seconds before each start of it.

    An overlay of its name with another VSID or card is not flanneld's, and is removed first.
    """
    overlay = network.kind == "Overlay"
    return {
        "address": node.address,
        "program": f"{paths.PROGRAMS}\\kube-log-runner.exe",
        "arguments": [
            f"--log-file={paths.log_file(FLANNELD_TASK)}",
            f"{paths.PROGRAMS}\\flanneld.exe",
            "--kube-subnet-mgr",
            f"--iface={node.address}",
            f"--kubeconfig-file={paths.FLANNEL_CONF}",
            f"--net-config-path={paths.NET_CONF}",
        ],
        # the API server's own address: no Service address works from the host
        "environment": [
            f"NODE_NAME={node.name}",
            f"KUBERNETES_SERVICE_HOST={cluster.endpoint}",
            f"KUBERNETES_SERVICE_PORT={API_PORT}",
        ],
        "pause_seconds": pause,
        "stale": [paths.SUBNET_ENV],
        "ends": list(FLANNELD_PROGRAMS),
        "network": network.name if overlay else None,
        "vsid": network.vni if overlay else 0,
        "runtime": f"{paths.CONTAINERD}\\ctr.exe",
    }
