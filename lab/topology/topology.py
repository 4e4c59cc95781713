"""What a topology is: one object in one file, found by the registry."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from lab.plan.plan import Plan
from lab.scenario.findings import Problem
from lab.scenario.scenario import Limit, Scenario
from lab.scenario.terms import Os
from lab.topology.intent import Intent


def no_problems(_scenario: Scenario) -> Iterable[Problem]:
    """The check of a topology that has nothing to object to."""
    return ()


@dataclass(frozen=True, slots=True)
class Topology:
    """One way to connect the nodes' pods.

    Parameters
    ----------
    kind
        The word in a scenario's ``topology.kind``.
    title
        One sentence for a person.
    parameters
        JSON Schema of each further key under ``topology``.
    build
        Plan to Intent, pure.
    limits
        What is documented not to work, most special first.
    also
        What people call it too; an error then names the kind that is meant.
    systems
        Operating systems whose nodes can take part.
    check
        Problems of its own with a scenario.
    static_routes
        Whether its nodes can have static routes of their own.
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
