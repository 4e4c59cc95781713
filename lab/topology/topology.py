"""A topology: one object in one file, found by the registry."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from lab.plan.plan import Plan
from lab.scenario.findings import Problem
from lab.scenario.scenario import Limit, Scenario
from lab.scenario.terms import Os
from lab.topology.intent import Intent

NODE_PREFIX = 24
"""Default prefix length of a node's pod range."""


def no_problems(_scenario: Scenario) -> Iterable[Problem]:
    """The check of a topology without objections."""
    return ()


@dataclass(frozen=True, slots=True)
class Topology:
    """One way to connect the nodes' pods.

    Parameters
    ----------
    kind
        The value of a scenario's ``topology.kind``.
    title
        One sentence for people.
    parameters
        JSON Schema of each further key under ``topology``.
    build
        Plan to Intent; pure.
    limits
        What is documented not to work, most specific first.
    also
        Other names for it, for the hint of an error.
    systems
        Operating systems of nodes that can take part.
    check
        Finds problems of a scenario with this topology.
    static_routes
        Whether nodes can have static routes from the scenario.
    node_prefix
        Prefix length of a node's pod range in a new scenario.
    """

    kind: str
    title: str
    parameters: Mapping[str, Mapping[str, object]]
    build: Callable[[Plan], Intent]
    limits: tuple[Limit, ...]
    also: tuple[str, ...] = ()
    systems: frozenset[Os] = frozenset({"linux", "windows"})
    check: Callable[[Scenario], Iterable[Problem]] = no_problems
    static_routes: bool = False
    node_prefix: int = NODE_PREFIX
