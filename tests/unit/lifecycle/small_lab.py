"""A small lab for tests of lifecycle and fake: two nodes, a router, a client."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from lab.lifecycle.compilation import Compiled, compile_scenario
from lab.lifecycle.up import CompiledRequest
from lab.plan.plan import Plan
from lab.topology.intent import Intent, MachineIntent


@cache
def compiled() -> Compiled:
    return compile_scenario(Path(__file__).with_suffix(".yaml"))


def intent(*, without: int = 0) -> Intent:
    """The lab's Intent; ``without``: number of Services to leave out."""
    built = compiled().intent

    def fewer(machine: MachineIntent) -> MachineIntent:
        if machine.translation is None:
            return machine
        left = machine.translation.services[without:]
        return replace(machine, translation=replace(machine.translation, services=left))

    return replace(built, machines=tuple(map(fewer, built.machines))) if without else built


def plan(scenario: str = "overlay", summary: str = "A small lab") -> Plan:
    return replace(compiled().plan, scenario=scenario, summary=summary)


def request(name: str = "overlay", scenario: str = "overlay", **changes: Any) -> CompiledRequest:
    usual = CompiledRequest(
        name=name,
        scenario_text=f"name: {scenario}\n",
        scenario_path=f"{scenario}.yaml",
        plan=plan(scenario),
        intent=intent(),
        command=f"lab up {name}",
    )
    return replace(usual, **changes)


def leftovers(state: Path) -> set[str]:
    """Files in the labs' directories, relative to them."""
    labs = state / "labs"
    return {str(path.relative_to(labs)) for path in labs.rglob("*")} if labs.is_dir() else set()
