"""A scenario's own hypervisors: which node stands on which, and what fits between them. Pure.

The order is Kubeinit's: control planes and the services node on the first hypervisor, the others
in turn from the second on (its controller, service and compute target orders). The router is the
first hypervisor's, as Kubeinit's gateway is.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count

from lab.plan.addresses import mac
from lab.plan.plan import PlannedHypervisor
from lab.scenario.names import hypervisor_names, node_names
from lab.scenario.reserved import HYPERVISOR_CIDR
from lab.scenario.scenario import Scenario

VXLAN_OVERHEAD = 50
"""Bytes: outer IPv4 (20), UDP (8), VXLAN (8) and the inner Ethernet header (14); RFC 7348."""


def planned(scenario: Scenario) -> tuple[PlannedHypervisor, ...]:
    """Every hypervisor with its address; the first has the network's first."""
    return tuple(
        PlannedHypervisor(name, (address := HYPERVISOR_CIDR[number]), mac(address))
        for number, name in enumerate(hypervisor_names(scenario), start=1)
    )


def placement(scenario: Scenario) -> Mapping[str, str | None]:
    """Node to hypervisor; as the scenario says where it has none itself."""
    names = hypervisor_names(scenario)
    turns = count(1)
    found: dict[str, str | None] = {}
    for group in scenario.nodes:
        for node in node_names(group):
            if not names or group.hypervisor:
                found[node] = group.hypervisor
            elif group.role == "worker":
                found[node] = names[next(turns) % len(names)]
            else:
                found[node] = names[0]
    return found


def node_mtu(scenario: Scenario) -> int:
    """Bytes of an IP packet between nodes: between several hypervisors a tunnel carries it."""
    between = scenario.hypervisors
    if between is None:
        return scenario.network.mtu
    overhead = VXLAN_OVERHEAD if between.count > 1 else 0
    return min(scenario.network.mtu, between.mtu - overhead)
