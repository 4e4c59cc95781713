"""The connectivity suite: a collector for the lab, one for each family, and an item per cell.

Node ids are ``LAB::FAMILY::SOURCE/TARGET/PROTOCOL-SIZE``; ``-k`` also matches a cell's whole id.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal

import pytest

from lab._log import clean
from lab.matrix.assertion import AssertionResult
from lab.matrix.cell import Cell
from lab.matrix.verdict import GREEN, CellResult
from lab.providers.workloads import WorkloadResult
from lab.scenario.families import family_terms
from lab.scenario.terms import Family
from lab.suites.session import MatrixSession

Outcome = tuple[
    Literal["setup", "call"],
    Literal["passed", "failed", "skipped"],
    str | tuple[str, int, str] | None,
]
"""Phase, outcome and message; for a skipped item the message has a location, as in pytest."""
MARKERS: dict[str, str] = {
    **{family: f"cells of the family {family}" for family in family_terms()},
    "tcp": "cells probed over TCP",
    "udp": "cells probed over UDP",
    "small": "cells with a small payload",
    "large": "cells with a payload above the path's MTU",
    "linux": "cells with a Linux machine at one end or both",
    "windows": "cells with a Windows machine at one end or both",
}
"""Markers for ``-m``, with their descriptions."""


class LabDirectory(pytest.Directory):
    """The collector of the suite's package, which has only the lab's matrix."""

    def __init__(self, *, matrix_session: MatrixSession, **node: Any) -> None:
        super().__init__(**node)
        self.matrix_session = matrix_session

    def collect(self) -> Iterator[pytest.Collector]:
        """Yield the matrix of the lab."""
        yield MatrixFile.from_parent(
            self,
            path=Path(__file__),
            nodeid=self.matrix_session.lab.name,
            matrix_session=self.matrix_session,
        )


class MatrixFile(pytest.File):
    """The matrix of one lab, with the lab's name as node id."""

    def __init__(self, *, matrix_session: MatrixSession, **node: Any) -> None:
        super().__init__(**node)
        self.matrix_session = matrix_session

    def collect(self) -> Iterator[pytest.Collector]:
        """Yield a collector for each family that has cells, in order, and each group of checks."""
        by_family: dict[Family, list[Cell]] = {}
        for cell in self.matrix_session.cells:
            by_family.setdefault(cell.family, []).append(cell)
        for family, cells in by_family.items():
            yield FamilyCollector.from_parent(
                self, name=family, matrix_session=self.matrix_session, cells=cells
            )
        for group, checks in self.matrix_session.checks.items():
            yield CheckCollector.from_parent(
                self, name=group, matrix_session=self.matrix_session, checks=checks
            )


class FamilyCollector(pytest.Collector):
    """The cells of one family."""

    def __init__(
        self, *, matrix_session: MatrixSession, cells: Sequence[Cell], **node: Any
    ) -> None:
        super().__init__(**node)
        self.matrix_session, self.cells = matrix_session, cells
        self.add_marker(self.name)

    def collect(self) -> Iterator[pytest.Item]:
        """Yield one item per cell."""
        for cell in self.cells:
            name = cell.id.partition("/")[2]
            yield CellItem.from_parent(
                self, name=name, matrix_session=self.matrix_session, cell=cell
            )


class CheckCollector(pytest.Collector):
    """The workload checks of a real cluster, or the assertions of a scenario."""

    def __init__(
        self, *, matrix_session: MatrixSession, checks: Sequence[str], **node: Any
    ) -> None:
        super().__init__(**node)
        self.matrix_session, self.checks = matrix_session, checks

    def collect(self) -> Iterator[pytest.Item]:
        """Yield one item per check."""
        for name in self.checks:
            yield CheckItem.from_parent(self, name=name, matrix_session=self.matrix_session)


class JudgedItem(pytest.Item):
    """A cell or a check; it was judged before the first item runs."""

    matrix_session: MatrixSession

    @property
    def judged_id(self) -> str:
        """Its id in reports, and for ``-k``."""
        raise NotImplementedError

    @property
    def is_judged(self) -> bool:
        """False if the run was interrupted before."""
        raise NotImplementedError

    @property
    def seconds(self) -> float:
        """Duration of its probes or of its command."""
        raise NotImplementedError

    def outcome(self) -> Outcome:
        """The phase in which the item ends, its outcome, and the message.

        What could not be probed or asked is an error, so it ends in the setup phase.
        """
        raise NotImplementedError

    def properties(self) -> tuple[tuple[str, object], ...]:
        """Its properties in JUnit."""
        raise NotImplementedError

    def setup(self) -> None:
        """Record the properties; only called if another plugin watches the calls."""
        self.user_properties.extend(self.properties())
        self._end("setup")

    def runtest(self) -> None:
        """Fail or skip by the verdict; only called if another plugin watches the calls."""
        self._end("call")

    def _end(self, here: str) -> None:
        phase, outcome, message = self.outcome()
        if phase != here or message is None:
            return
        if outcome == "skipped":
            pytest.skip(message[2].partition(": ")[2])
        pytest.fail(str(message), pytrace=False)

    def reportinfo(self) -> tuple[Path, None, str]:
        """The id, instead of a location in a source file."""
        return self.path, None, self.judged_id


class CheckItem(JudgedItem):
    """One workload check on one node, or one assertion on one node or in one pod."""

    def __init__(self, *, matrix_session: MatrixSession, **node: Any) -> None:
        super().__init__(**node)
        self.matrix_session = matrix_session
        assert self.parent is not None
        self.group = self.parent.name
        self.extra_keyword_matches.update((self.group, self.judged_id))

    @property
    def judged_id(self) -> str:
        """``GROUP/NAME``."""
        return f"{self.group}/{self.name}"

    @property
    def is_judged(self) -> bool:
        """See the base class."""
        return self.judged_id in self.matrix_session.checked

    @property
    def result(self) -> WorkloadResult | AssertionResult:
        """The result of the check."""
        return self.matrix_session.checked[self.judged_id]

    @property
    def seconds(self) -> float:
        """Duration of the command of an assertion."""
        return self.result.seconds if isinstance(self.result, AssertionResult) else 0.0

    def outcome(self) -> Outcome:
        """See the base class."""
        verdict, detail = self.result.verdict, clean(self.result.detail)
        if verdict == "pass":
            return "call", "passed", None
        if verdict == "known-limit":
            return "call", "skipped", (str(self.path), 1, f"Skipped: {detail}")
        lines = [f"{self.judged_id}: {detail}"]
        if isinstance(self.result, AssertionResult):
            command = clean(shlex.join(self.result.command))
            lines += [f"command:  {command}", f"repeat:   {self.result.repeat}"]
        return "setup" if verdict == "probe-error" else "call", "failed", "\n".join(lines)

    def properties(self) -> tuple[tuple[str, object], ...]:
        """Its verdict; of an assertion also the command, and what repeats it."""
        verdict = ("verdict", self.result.verdict)
        if not isinstance(self.result, AssertionResult):
            return (verdict,)
        command = ("command", clean(shlex.join(self.result.command)))
        return verdict, command, ("repeat", self.result.repeat)


class CellItem(JudgedItem):
    """One cell."""

    def __init__(self, *, matrix_session: MatrixSession, cell: Cell, **node: Any) -> None:
        super().__init__(**node)
        self.matrix_session, self.cell = matrix_session, cell
        self.extra_keyword_matches.add(cell.id)
        for name in dict.fromkeys((cell.protocol, cell.size, cell.source.os, cell.target.os)):
            self.add_marker(_mark(name))

    @property
    def judged_id(self) -> str:
        """The id of the cell."""
        return self.cell.id

    @property
    def is_judged(self) -> bool:
        """See the base class."""
        return self.cell.id in self.matrix_session.found

    @property
    def result(self) -> CellResult:
        """The result of the cell."""
        return self.matrix_session.found[self.cell.id]

    @property
    def seconds(self) -> float:
        """Duration of its attempts."""
        return sum(attempt.latency_ms for attempt in self.result.attempts) / 1000

    def outcome(self) -> Outcome:
        """See the base class."""
        result = self.result
        if result.verdict == "pass":
            return "call", "passed", None
        if result.verdict == "known-limit":
            message = f"Skipped: {result.expectation.rule}: {clean(result.detail)}"
            return "call", "skipped", (str(self.path), 1, message)
        return "setup" if result.verdict == "probe-error" else "call", "failed", story(result)

    def properties(self) -> tuple[tuple[str, object], ...]:
        """See :func:`properties`."""
        return properties(self.result)


@cache
def _mark(name: str) -> pytest.MarkDecorator:
    """The mark of this name, shared by all cells."""
    mark: pytest.MarkDecorator = getattr(pytest.mark, name)
    return mark


def properties(result: CellResult) -> tuple[tuple[str, object], ...]:
    """Properties of a cell in JUnit."""
    last = result.attempts[-1]
    rate = last.throughput
    return (
        ("verdict", result.verdict),
        ("rule", result.expectation.rule),
        ("latency_ms", f"{last.latency_ms:.3f}"),
        *((("throughput_bits", f"{rate:.0f}"),) if rate is not None else ()),
        ("source_seen", last.source_seen or ""),
        ("backend", " ".join(last.backends)),
        ("attempts", len(result.attempts)),
        ("repeat", result.repeat),
        *((("cause", result.cause),) if result.verdict not in GREEN else ()),
    )


def story(result: CellResult) -> str:
    """The failure message: what was expected, what happened, and how to repeat the cell."""
    expected, last = result.expectation, result.attempts[-1]
    aim = "to work" if expected.works else f"not to work ({expected.refusal})"
    backends = ", ".join(last.backends) or "none"
    lines = [
        f"{result.verdict}: {result.cell.id}",
        f"expected: {aim}; {expected.rule}: {expected.reason}",
        f"actual:   {result.detail}",
        f"observed: source {last.source_seen or 'unknown'}, backend {backends}",
    ]
    if last.answer is not None:
        lines.append(f"answered: {last.answer}")
    if result.retried:
        lines.append(f"attempts: {len(result.attempts)}")
    lines += [f"cause:    {result.cause}", f"repeat:   {result.repeat}"]
    return clean("\n".join(lines))
