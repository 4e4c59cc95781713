"""The office network of a scenario: a segment of its own that every node has a second card on."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import AddressValueError, IPv4Network, NetmaskValueError

from lab.plan.addresses import FIRST_NODE_OFFSET, mac
from lab.plan.plan import Plan
from lab.scenario.findings import Problem, quoted
from lab.scenario.scenario import Scenario
from lab.topology.segment import Interface

SEGMENT = "office"
CARD = "eth0"
"""As the report names it."""
DEFAULT = "172.16.126.0/24"


def network(plan: Plan) -> IPv4Network:
    """What the scenario asks for."""
    return IPv4Network(str(plan.parameters.get("office_cidr", DEFAULT)))


def card(office: IPv4Network, number: int, mtu: int) -> Interface:
    """A node has the same number on both of its networks."""
    address = office[number]
    return Interface(CARD, SEGMENT, mac(address), (f"{address}/{office.prefixlen}",), mtu)


def check(scenario: Scenario) -> Iterator[Problem]:
    """Check that it is a network of its own, with room for every node."""
    written = scenario.topology.parameters.get("office_cidr", DEFAULT)
    key = ("topology", "office_cidr")
    try:
        office = IPv4Network(str(written))
    except (AddressValueError, NetmaskValueError, ValueError):
        yield Problem(key, f"{quoted(written)} is no network", f'write it like "{DEFAULT}"')
        return
    others = {
        "network.cidr": scenario.network.cidr,
        "kubernetes.pod_cidr": scenario.kubernetes.pod_cidr,
        "kubernetes.service_cidr": scenario.kubernetes.service_cidr,
    }
    for name, other in others.items():
        if office.overlaps(other):
            yield Problem(key, f"{office} overlaps {name} ({other})", "use a network of its own")
    first = int(scenario.network.cidr.network_address)
    numbers = [int(group.address) - first for group in scenario.nodes if group.address]
    numbers.append(FIRST_NODE_OFFSET + sum(group.count for group in scenario.nodes))
    highest = max(numbers)
    if highest >= office.num_addresses - 1:
        yield Problem(
            key,
            f"a node has the same number on both networks, and {office} has no number {highest}",
            "use a larger network, or give nodes lower addresses",
        )
