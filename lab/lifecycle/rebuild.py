"""Scenario, plan, intent and limits of a lab that is there, from the text it was made from."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from lab.lifecycle.blueprint import cut, fitted
from lab.plan.plan import Plan
from lab.providers.provider import MACHINES, Provider
from lab.scenario.scenario import Limit, Scenario
from lab.state.directory import make_private
from lab.state.failure import guarded_files
from lab.state.files import read_private, write_private
from lab.state.rows import LabRow
from lab.state.store import Store
from lab.topology.intent import Intent

FILE = "scenario.yaml"


def write_scenario(directory: Path, text: str) -> Path:
    """Write the scenario into the lab's directory, unless it is there; its path.

    Raises
    ------
    StateError
        When it cannot be written.

    """
    path = directory / FILE
    make_private(directory)
    with guarded_files(f"reading '{path}'"):
        there = path.is_file() and read_private(path) == text.encode()
    if not there:
        write_private(path, text)
    return path


@dataclass(frozen=True, slots=True)
class Parts:
    """The pure functions that lead from a scenario's text to all that follows from it."""

    load: Callable[[Path], Scenario]
    make_plan: Callable[[Scenario], Plan]
    intent: Callable[[Plan], Intent]
    limits: Callable[[Plan], Iterable[Limit]]


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What a lab is, decided again: the same text gives the same plan."""

    scenario: Scenario
    plan: Plan
    intent: Intent
    limits: tuple[Limit, ...]


def rebuild(row: LabRow, store: Store, provider: Provider, parts: Parts | None = None) -> Rebuilt:
    """Decide a lab again from the journal's own copy of its scenario.

    The copy is put back into the lab's directory where it is missing, so that messages name a
    file that can be read.

    Raises
    ------
    ScenarioError
        When this version reads the text differently from the one that wrote it.
    StateError
        When the copy cannot be written.

    """
    parts = parts or product_parts()
    path = write_scenario(store.lab_directory(row.name), row.scenario_text)
    scenario = parts.load(path)
    only, node_mtu = row.options.get("only"), row.options.get("node_mtu")
    scenario = cut(
        scenario,
        only if isinstance(only, str) else None,
        node_mtu if isinstance(node_mtu, int) else None,
    )
    plan = parts.make_plan(scenario)
    pods, real = row.options.get("pods"), MACHINES in provider.abilities
    intent = fitted(parts.intent(plan), pods, real=real)
    return Rebuilt(scenario, plan, intent, tuple(parts.limits(plan)))


def product_parts() -> Parts:
    """The product's own; imported here, for a lab that is opened pays for them and no other."""
    from lab.plan.planner import make_plan  # noqa: PLC0415  only a lab that is opened pays for it
    from lab.scenario.loader import load  # noqa: PLC0415  the same
    from lab.topology import registry  # noqa: PLC0415  the same

    return Parts(
        load=lambda path: load(path, topology_check=registry.check),
        make_plan=make_plan,
        intent=registry.intent,
        limits=registry.limits,
    )
