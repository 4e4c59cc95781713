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
from lab.scenario.findings import Problem
from lab.scenario.scenario import Scenario
from lab.topology import machines, vxlan, windows_limits
from lab.topology.intent import Intent
from lab.topology.registry import Parameter, Topology, in_range, parameter

WINDOWS_FIRST_VNI = 4096
LAST_VNI = 9_999_999
"""flannel names its device after the VNI, and Linux has names of at most 15 characters."""
WINDOWS_PORT = 4789
LAST_PORT = 65_535


def build(plan: Plan) -> Intent:
    """Plan to Intent."""
    vni, port = parameter(plan, "vni"), parameter(plan, "port")
    overlay = vxlan.Overlay(f"flannel.{vni}", vni, port)
    direct = bool(plan.parameters.get("direct_routing", False))
    nodes = tuple(vxlan.node(plan, node, overlay, direct=direct) for node in plan.nodes)
    return machines.assemble(plan, nodes, machines.router(plan))


def check(scenario: Scenario) -> Iterator[Problem]:
    """Check the restrictions of Windows; what is no VNI or port at all is reported elsewhere."""
    windows = [group.name for group in scenario.nodes if group.os == "windows"]
    if not windows:
        return
    given = scenario.topology.parameters
    vni, port, direct = (given.get(key) for key in ("vni", "port", "direct_routing"))
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


OVERLAY = Topology(
    kind="overlay",
    title="VXLAN overlay (flannel): pods of different nodes talk through a tunnel",
    parameters={
        "vni": in_range(
            "a VNI",
            "VXLAN network identifier; 4096 or higher with Windows nodes",
            WINDOWS_FIRST_VNI,
            least=1,
            most=LAST_VNI,
        ),
        "port": in_range(
            "a port",
            "UDP port of the tunnel; 4789 with Windows nodes",
            WINDOWS_PORT,
            least=1,
            most=LAST_PORT,
        ),
        "direct_routing": Parameter(
            {
                "type": "boolean",
                "default": False,
                "description": "Route directly between nodes of one segment; Linux nodes only",
            },
            "is neither true nor false",
            "write true or false",
        ),
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
        message = "there are no hypervisors, and Kubeinit's nodes run on hypervisors"
        yield Problem(("topology", "kind"), message, 'write "hypervisors: {count: 2}"')
    if not any(group.role == "services" for group in scenario.nodes):
        message = "there is no services node, which Kubeinit puts in front of the cluster"
        yield Problem(("nodes",), message, 'give a Linux node "role: services"', at_key=True)


KUBEINIT = Topology(
    kind="kubeinit",
    title="Kubeinit: a VXLAN overlay (sdnoverlay) over nodes on several hypervisors",
    parameters={key: OVERLAY.parameters[key] for key in ("vni", "port")},
    build=build,
    also=("k8s-libvirt", "sdnoverlay"),
    limits=OVERLAY.limits,
    check=check_kubeinit,
    beside="""\
  - name: services  # HAProxy and DNS, in front of the cluster
    os: linux
    role: services

hypervisors:
  count: 2
""",
)
