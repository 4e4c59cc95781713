"""Assertions of a scenario in one lab: where each is made, and how it is judged. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

from lab._log import one_line
from lab.scenario.assertion import Assertion
from lab.shells.shell import Completed
from lab.topology.intent import Intent

AssertionVerdict = Literal["pass", "fail", "probe-error", "known-limit"]
"""``probe-error``: the command could not be run. ``known-limit``: not run on an emulated node."""
_SHOWN = 200
"""Characters of a command's output in the detail of a verdict."""


ASSERTIONS = "assertions"
"""The group of assertions among the families of cells."""


def item_of(name: str, place: str) -> str:
    """The id of an assertion in one place, among cells and checks."""
    return f"{ASSERTIONS}/{name}/{place}"


@dataclass(frozen=True, slots=True)
class AssertionResult:
    """The verdict of one assertion on one node, or in one pod."""

    name: str
    place: str
    """The node or pod."""
    command: tuple[str, ...]
    verdict: AssertionVerdict
    detail: str
    """The reason in one sentence; empty for a pass."""
    seconds: float
    """Duration of the command."""
    repeat: str
    """The command that repeats this assertion."""
    line: int = 0
    """Its line in the scenario file, counted from 1; 0 in runs of earlier versions."""

    @property
    def id(self) -> str:
        """``forwarding/worker1``: unique in a run."""
        return f"{self.name}/{self.place}"

    @property
    def item(self) -> str:
        """``assertions/forwarding/worker1``: its id among cells and checks."""
        return item_of(self.name, self.place)

    @property
    def sentence(self) -> str:
        """``assertion forwarding/worker1: fail: exit 1 instead of 0``."""
        return f"assertion {self.id}: {self.verdict}: {self.detail}"


def place_assertions(
    assertions: Iterable[Assertion], intent: Intent
) -> Iterator[tuple[Assertion, str]]:
    """Each assertion with each node or pod that it names, in order."""
    nodes = [machine.name for machine in intent.machines if machine.kind in {"node", "services"}]
    pods = [pod.name for machine in intent.machines for pod in machine.pods if pod.role == "probe"]
    for assertion in assertions:
        for name in nodes if assertion.node is not None else pods:
            if fnmatchcase(name, assertion.place):
                yield assertion, name


def judge_assertion(assertion: Assertion, completed: Completed) -> str:
    """Why the result of the command is not the asserted one; empty if it is."""
    if completed.code != assertion.exit:
        last = _last_line(completed.stderr) or _last_line(completed.stdout)
        ended = f"exit {completed.code} instead of {assertion.exit}"
        return f"{ended}: {last}" if last else ended
    if assertion.matches is None or re.search(assertion.matches, completed.stdout, re.MULTILINE):
        return ""
    output = one_line(completed.stdout.strip())[:_SHOWN]
    return f"no match of '{assertion.matches}' in the output: {output or '(nothing)'}"


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return one_line(lines[-1])[:_SHOWN] if lines else ""
