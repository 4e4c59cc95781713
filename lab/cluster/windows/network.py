"""A topology on one Windows node: its HNS network, who makes it, the plugin, and flanneld. Pure.

The Intent has addresses, exceptions of OutBoundNAT, routes and tunnel; here is only what HNS and
the plugins call them. flannel is no Windows service, so a scheduled task starts it with the
machine. Its sources (0.28) find the node by ``NODE_NAME`` where it is in no pod.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from ipaddress import IPv4Network
from typing import Literal

from lab._errors import UsageError
from lab.cluster.cluster import API_PORT, Cluster, ClusterNode
from lab.cluster.windows import paths
from lab.topology.intent import Intent, Route

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
"""HNS' own gateway of a pod network: network + 1."""
ENDPOINT_OFFSET = 2
"""The node's own endpoint on an l2bridge, which is its pods' gateway: network + 2."""
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
    """Of the HNS network that kube-proxy works on."""
    kind: Kind
    maker: Maker
    plugin: Plugin | None
    """None where somebody else writes the plugin's configuration."""
    pod_cidr: str
    gateway: str
    """Of the HNS network."""
    endpoint: str | None
    """Name of the node's own HNS endpoint, where kube-proxy must know it."""
    endpoint_address: str | None
    """Of that endpoint, where the network is an l2bridge."""
    exceptions: tuple[str, ...]
    """Prefixes that pods reach with their own address (OutBoundNAT)."""
    encapsulated: tuple[str, ...]
    """Prefixes that go through the virtual switch (SDNRoute, NeedEncap)."""
    provider_address: str
    """The node's own on the segment."""
    routes: tuple[Route, ...]
    """Of the host: AddRoutes."""
    vni: int | None
    port: int | None


def node_network(cluster: Cluster, intent: Intent, node: ClusterNode) -> WindowsPodNetwork:
    """What the topology is on this node.

    Raises UsageError when the topology has no working route on Windows, or the node no pod CIDR.
    """
    doing = f"planning the network of Windows node '{node.name}'"
    topology = cluster.topology
    if topology not in KNOWN:
        words = DOCUMENTED_ONLY.get(topology, f"topology '{topology}' is not known on Windows")
        raise UsageError(doing, words)
    if node.pod_cidr is None:
        raise UsageError(doing, "it has no pod CIDR", "give the node one in the scenario")
    if topology in OVERLAYS:
        return _overlay(cluster, intent, node)
    if topology in CALICO:
        return _calico(cluster, node)
    return _bridge(cluster, intent, node)


def _overlay(cluster: Cluster, intent: Intent, node: ClusterNode) -> WindowsPodNetwork:
    tunnel = intent.machine(node.name).tunnel
    assert tunnel is not None, "an overlay's node with pods has one"
    return WindowsPodNetwork(
        name=f"flannel.{tunnel.vni}",
        kind="Overlay",
        maker="flannel",
        plugin="flannel+sdnoverlay",
        pod_cidr=str(node.pod_cidr),
        gateway=_nth_address(node, GATEWAY_OFFSET),
        endpoint=None,
        endpoint_address=None,
        exceptions=(cluster.service_cidr, cluster.pod_cidr),
        encapsulated=(cluster.service_cidr,),
        provider_address=node.address,
        routes=(),
        vni=tunnel.vni,
        port=tunnel.port,
    )


def _calico(cluster: Cluster, node: ClusterNode) -> WindowsPodNetwork:
    return WindowsPodNetwork(
        name="Calico",
        kind="Overlay",
        maker="calico",
        plugin=None,
        pod_cidr=str(node.pod_cidr),
        gateway=_nth_address(node, GATEWAY_OFFSET),
        endpoint="Calico_ep",
        endpoint_address=None,
        exceptions=(cluster.service_cidr, cluster.pod_cidr),
        encapsulated=(cluster.service_cidr,),
        provider_address=node.address,
        routes=(),
        vni=4096,
        port=4789,
    )


def _bridge(cluster: Cluster, intent: Intent, node: ClusterNode) -> WindowsPodNetwork:
    machine = intent.machine(node.name)
    assert machine.translation is not None, "every node with pods has one"
    flannel = cluster.topology in FLANNEL
    own = (f"{node.address}/32",) if cluster.topology in {"host-gateway", "hard-way"} else ()
    routes = tuple(route for route in machine.routes if route.destination != "default")
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
        routes=routes,
        vni=None,
        port=None,
    )


def _bridge_plugin(cluster: Cluster, node: ClusterNode) -> Plugin:
    """``sdnbridge`` makes the gateway by setting the last byte to 2, ``win-bridge`` by adding 2.

    The first is wrong for a pod CIDR such as 10.10.187.64/26, so that one gets the second.
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
"""The scheduler has it as ``hybridlab-flanneld``."""
FLANNELD_PROGRAMS = ("flanneld.exe",)
PAUSE_SECONDS = 5
"""Before each start of flanneld: the first takes the node off the net for seconds, and who asked
for it has the answer by then."""


def net_conf(cluster: Cluster, network: WindowsPodNetwork) -> str:
    """``net-conf.json``, the same as on the Linux nodes.

    On Windows flanneld takes no VNI below 4096 and no other port than 4789; the scenario is
    refused before.
    """
    backend: dict[str, object] = (
        {"Type": "vxlan", "VNI": network.vni, "Port": network.port}
        if network.kind == "Overlay"
        else {"Type": "host-gw"}
    )
    return json.dumps({"Network": cluster.pod_cidr, "Backend": backend}, indent=2) + "\n"


def flanneld_arguments(node: ClusterNode) -> tuple[str, ...]:
    """Of ``flanneld.exe``."""
    return (
        "--kube-subnet-mgr",
        f"--iface={node.address}",
        f"--kubeconfig-file={paths.FLANNEL_CONF}",
        f"--net-config-path={paths.NET_CONF}",
    )


def flanneld_environment(cluster: Cluster, node: ClusterNode) -> dict[str, str]:
    """Its environment: the API server itself, since no service address works from the host."""
    return {
        "NODE_NAME": node.name,
        "KUBERNETES_SERVICE_HOST": cluster.endpoint,
        "KUBERNETES_SERVICE_PORT": str(API_PORT),
    }


def flanneld_program(cluster: Cluster, node: ClusterNode) -> dict[str, object]:
    """What ``node-keep.ps1`` keeps running."""
    return {
        "address": node.address,
        "program": f"{paths.PROGRAMS}\\kube-log-runner.exe",
        "arguments": [
            f"--log-file={paths.log_file(FLANNELD_TASK)}",
            f"{paths.PROGRAMS}\\flanneld.exe",
            *flanneld_arguments(node),
        ],
        "environment": [f"{k}={v}" for k, v in flanneld_environment(cluster, node).items()],
        "pause_seconds": PAUSE_SECONDS,
    }
