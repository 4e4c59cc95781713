"""VXLAN overlay, as flannel builds it: a tunnel end per node, given entries, no learning.

Source: flannel's vxlan backend; on Windows flanneld refuses a VNI below 4096, a port other
than 4789, and DirectRouting.

Kubeinit's cluster is such an overlay over nodes on several hypervisors. On Windows it is
sdnoverlay's, which is flannel's VXLAN, so the same limits hold. A services node is in front of the
cluster. Source: Deploying a Kubernetes cluster with Windows containers support (Kubeinit's author,
July 2022), and Kubeinit's own defaults.
"""

from __future__ import annotations

from collections.abc import Iterator

from lab.plan.plan import Plan
from lab.scenario.findings import Problem, quoted
from lab.scenario.scenario import Scenario
from lab.topology import machines, vxlan, windows_limits
from lab.topology.intent import Intent
from lab.topology.registry import Topology

WINDOWS_FIRST_VNI = 4096
LAST_VNI = 2**24 - 1
WINDOWS_PORT = 4789
DEFAULT_VNI = 4096
DEFAULT_PORT = 4789
LAST_PORT = 65_535


def build(plan: Plan) -> Intent:
    """Plan to Intent."""
    vni = _number(plan.parameters.get("vni", DEFAULT_VNI))
    port = _number(plan.parameters.get("port", DEFAULT_PORT))
    overlay = vxlan.Overlay(f"flannel.{vni}", vni, port)
    direct = bool(plan.parameters.get("direct_routing", False))
    nodes = tuple(vxlan.node(plan, node, overlay, direct=direct) for node in plan.nodes)
    return machines.assemble(plan, nodes, machines.router(plan))


def _number(value: object) -> int:
    assert isinstance(value, int), "checked with the scenario"
    return value


def check(scenario: Scenario) -> Iterator[Problem]:
    """Check VNI and port, including the restrictions of Windows."""
    windows = [group.name for group in scenario.nodes if group.os == "windows"]
    yield from _check_number(scenario, "vni", DEFAULT_VNI, LAST_VNI)
    yield from _check_number(scenario, "port", DEFAULT_PORT, LAST_PORT)
    direct = scenario.topology.parameters.get("direct_routing", False)
    if not isinstance(direct, bool):
        yield Problem(
            ("topology", "direct_routing"),
            f"{quoted(direct)} is neither true nor false",
            "write true or false",
        )
    if not windows:
        return
    vni = scenario.topology.parameters.get("vni", DEFAULT_VNI)
    port = scenario.topology.parameters.get("port", DEFAULT_PORT)
    because = f'flannel on Windows (node "{windows[0]}")'
    if isinstance(vni, int) and 0 < vni < WINDOWS_FIRST_VNI:
        yield Problem(
            ("topology", "vni"),
            f"VNI {vni} is below {WINDOWS_FIRST_VNI}, the lowest that {because} accepts",
            f"use {WINDOWS_FIRST_VNI} or higher, or leave the Windows nodes out",
        )
    if isinstance(port, int) and 0 < port <= LAST_PORT and port != WINDOWS_PORT:
        yield Problem(
            ("topology", "port"),
            f"VXLAN port {port} is not {WINDOWS_PORT}, the only one that {because} accepts",
            f"use {WINDOWS_PORT}, or leave the Windows nodes out",
        )
    if direct is True:
        yield Problem(
            ("topology", "direct_routing"),
            f"{because} cannot do direct routing",
            'remove "direct_routing", or use the topology "host-gateway"',
        )


def _check_number(scenario: Scenario, key: str, default: int, last: int) -> Iterator[Problem]:
    value = scenario.topology.parameters.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= last:
        yield Problem(
            ("topology", key),
            f"{quoted(value)} is not a {key.upper() if key == 'vni' else key}",
            f"use a whole number from 1 to {last}, such as {default}",
        )


OVERLAY = Topology(
    kind="overlay",
    title="VXLAN overlay (flannel): pods of different nodes talk through a tunnel",
    parameters={
        "vni": {
            "type": "integer",
            "minimum": 1,
            "maximum": LAST_VNI,
            "default": DEFAULT_VNI,
            "description": "VXLAN network identifier; 4096 or higher with Windows nodes",
        },
        "port": {
            "type": "integer",
            "minimum": 1,
            "maximum": LAST_PORT,
            "default": DEFAULT_PORT,
            "description": "UDP port of the tunnel; 4789 with Windows nodes",
        },
        "direct_routing": {
            "type": "boolean",
            "default": False,
            "description": "Route directly between nodes of one segment; Linux nodes only",
        },
    },
    build=build,
    also=("vxlan", "flannel"),
    limits=(windows_limits.OVERLAY_NODE_POD, *windows_limits.EVERYWHERE),
    check=check,
)


def check_kubeinit(scenario: Scenario) -> Iterator[Problem]:
    """The overlay's checks, and what makes the cluster Kubeinit's: hypervisors, a services node."""
    yield from check(scenario)
    if scenario.hypervisors is None:
        what = "there are no hypervisors, and Kubeinit's nodes run on hypervisors"
        yield Problem(("topology", "kind"), what, 'write "hypervisors: {count: 2}"')
    if not any(group.role == "services" for group in scenario.nodes):
        what = "there is no services node, which Kubeinit puts in front of the cluster"
        yield Problem(("nodes",), what, 'give a Linux node "role: services"', at_key=True)


KUBEINIT = Topology(
    kind="kubeinit",
    title="Kubeinit: a VXLAN overlay (sdnoverlay) over nodes on several hypervisors",
    parameters={key: OVERLAY.parameters[key] for key in ("vni", "port")},
    build=build,
    also=("k8s-libvirt", "sdnoverlay"),
    limits=OVERLAY.limits,
    check=check_kubeinit,
)
