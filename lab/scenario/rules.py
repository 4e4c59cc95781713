"""What the values of a scenario mean together: every rule, and what each needs to know.

A rule is a pure function from a scenario to problems. Where a part that it reads is a stand-in
for something broken, it is not run: it would speak of values that the author never wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass

from lab.scenario import address_rules as addresses
from lab.scenario import machine_rules as machines
from lab.scenario import node_rules as nodes
from lab.scenario import route_rules as routes
from lab.scenario import service_rules as services
from lab.scenario import special_rules as special
from lab.scenario.findings import Key, Problem
from lab.scenario.scenario import Scenario

Check = Callable[[Scenario], Iterable[Problem]]


@dataclass(frozen=True, slots=True)
class Rule:
    """A check and the parts of the file that it reads, ``*`` standing for any entry."""

    check: Check
    needs: tuple[str, ...]


_RANGES = ("kubernetes.pod_cidr", "kubernetes.service_cidr", "network.cidr")
_PODS = ("pods_per_node", "nodes.*.count", "nodes.*.kubelet", "nodes.*.pods")
_NAMES = ("nodes.*.name", "nodes.*.count")
_SPECIAL = ("services.special",)
_RANGE = "services.node_ports"
_PREFIX = "kubernetes.node_prefix"

RULES: tuple[Rule, ...] = (
    Rule(addresses.unusable_ranges, _RANGES),
    Rule(addresses.overlaps, _RANGES),
    Rule(addresses.service_range_width, ("kubernetes.service_cidr",)),
    Rule(addresses.pod_range_width, ("kubernetes.pod_cidr", _PREFIX)),
    Rule(addresses.pod_range_holds_nodes, ("kubernetes.pod_cidr", _PREFIX, *_PODS)),
    Rule(addresses.node_range_holds_pods, (_PREFIX, "nodes.*.os", *_PODS)),
    Rule(addresses.network_holds_nodes, ("network.cidr", "nodes.*.count")),
    Rule(
        addresses.service_range_holds_services,
        ("kubernetes.service_cidr", "services.shared.*", *_SPECIAL, *_PODS),
    ),
    Rule(addresses.dns_address, ("kubernetes.service_cidr", "kubernetes.dns_address")),
    Rule(addresses.router, ("network.cidr", "network.router")),
    Rule(
        addresses.node_addresses,
        ("network.cidr", "network.router", "nodes.*.count", "nodes.*.address"),
    ),
    Rule(
        addresses.node_pod_ranges,
        ("kubernetes.pod_cidr", _PREFIX, "nodes.*.count", "nodes.*.kubelet", "nodes.*.pod_cidr"),
    ),
    Rule(addresses.single_node_keys, ("nodes.*.count",)),
    Rule(nodes.control_plane, ("nodes.*.role", "nodes.*.os")),
    Rule(nodes.without_kubelet, ("nodes.*.role", "nodes.*.kubelet")),
    Rule(nodes.somewhere_to_run, ("nodes.*.os", *_PODS)),
    Rule(nodes.lengths, ("nodes.*.os", *_NAMES)),
    Rule(nodes.names, (*_NAMES, *_PODS)),
    Rule(nodes.versions, ("kubernetes.version", "nodes.*.version")),
    Rule(nodes.images, ("nodes.*.os", "nodes.*.image")),
    Rule(nodes.cards, ("nodes.*.nics",)),
    Rule(
        routes.node_routes,
        ("network", "kubernetes.pod_cidr", "nodes.*.address", "nodes.*.pod_cidr", "nodes.*.routes"),
    ),
    Rule(machines.services_node, ("nodes.*.role", "nodes.*.os", "nodes.*.count")),
    Rule(machines.hypervisors, ("hypervisors", *_NAMES, "nodes.*.hypervisor")),
    Rule(machines.families, ("matrix.families", "nodes.*.role")),
    Rule(services.shared_backends, ("services.shared.*.backends", *_PODS)),
    Rule(services.names, ("services.shared.*.name", "services.special.*.name", *_NAMES)),
    Rule(services.node_port_range, (_RANGE, "services.shared.*", *_SPECIAL, *_PODS)),
    Rule(
        services.exceptions,
        ("exceptions", "services.shared.*.name", "services.special.*.name", *_NAMES, *_PODS),
    ),
    Rule(special.backends, (*_SPECIAL, *_NAMES, *_PODS)),
    Rule(special.behaviour, _SPECIAL),
    Rule(special.one_subdomain, _SPECIAL),
    Rule(special.ports, _SPECIAL),
    Rule(special.node_ports, (_RANGE, *_SPECIAL)),
    Rule(special.asked_families, ("matrix.families", *_SPECIAL)),
)

TOPOLOGY_NEEDS = (
    "topology",
    "network",
    "kubernetes",
    "nodes.*.name",
    "nodes.*.os",
    "nodes.*.count",
    "nodes.*.role",
    "nodes.*.kubelet",
)
"""What a topology's own check may read."""


def problems(scenario: Scenario, tainted: Collection[Key], topology: Check) -> Iterator[Problem]:
    """Every problem that the rules, and the topology's own check, find.

    Parameters
    ----------
    scenario
        The scenario, with stand-ins where the file is broken.
    tainted
        Key paths of the stand-ins.
    topology
        The check of the topology and its parameters.

    """
    too_many = tuple(nodes.too_many_nodes(scenario))
    yield from too_many
    unknown = {*tainted, *(problem.key for problem in too_many)}
    for rule in (*RULES, Rule(topology, TOPOLOGY_NEEDS)):
        if not any(_reads(need, key) for need in rule.needs for key in unknown):
            yield from rule.check(scenario)


def _reads(need: str, key: Key) -> bool:
    """Whether a part of the file that a rule reads holds, or lies within, a key path."""
    parts = need.split(".")
    return all(part in {"*", str(name)} for part, name in zip(parts, key, strict=False))
