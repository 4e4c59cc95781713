"""The connectivity suite: a collector for the lab, one for each family, and an item per cell.

Node ids are ``LAB::FAMILY::SOURCE/TARGET/PROTOCOL-SIZE``; ``-k`` also matches a cell's whole id.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal

import pytest

from lab._log import clean
from lab.matrix.cell import Cell
from lab.matrix.verdict import GREEN, CellResult
from lab.scenario.families import family_terms
from lab.scenario.terms import Family
from lab.suites.session import MatrixSession

Outcome = tuple[
    Literal["setup", "call"],
    Literal["passed", "failed", "skipped"],
    str | tuple[str, int, str] | None,
]
"""Phase, outcome and message; for a skipped item the message has a location, as in pytest."""
WORKLOADS = "workloads"
"""Name of the collector of a cluster's checks, and a keyword for ``-k``."""
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
        """Yield a collector for each family that has cells, in order, and one for checks."""
        by_family: dict[Family, list[Cell]] = {}
        for cell in self.matrix_session.cells:
            by_family.setdefault(cell.family, []).append(cell)
        for family, cells in by_family.items():
            yield FamilyCollector.from_parent(
                self, name=family, matrix_session=self.matrix_session, cells=cells
            )
        if self.matrix_session.checks:
            yield WorkloadCollector.from_parent(
                self, name=WORKLOADS, matrix_session=self.matrix_session
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


class WorkloadCollector(pytest.Collector):
    """The workload checks of a real cluster."""

    def __init__(self, *, matrix_session: MatrixSession, **node: Any) -> None:
        super().__init__(**node)
        self.matrix_session = matrix_session

    def collect(self) -> Iterator[pytest.Item]:
        """Yield one item for each check of each node."""
        for node, check in self.matrix_session.checks:
            yield WorkloadItem.from_parent(
                self, name=f"{node}/{check}", matrix_session=self.matrix_session
            )


class WorkloadItem(pytest.Item):
    """One check on one node; it was made before the first item runs."""

    def __init__(self, *, matrix_session: MatrixSession, **node: Any) -> None:
        super().__init__(**node)
        self.matrix_session = matrix_session
        self.extra_keyword_matches.add(WORKLOADS)

    def setup(self) -> None:
        """Record the verdict; a check that could not be made is an error, not a failure."""
        verdict = self.matrix_session.workloads[self.name].verdict
        self.user_properties.append(("verdict", verdict))
        if verdict == "probe-error":
            self._fail()

    def runtest(self) -> None:
        """Fail unless the verdict is ``pass``."""
        if self.matrix_session.workloads[self.name].verdict != "pass":
            self._fail()

    def _fail(self) -> None:
        detail = self.matrix_session.workloads[self.name].detail
        pytest.fail(f"{WORKLOADS}/{self.name}: {clean(detail)}", pytrace=False)

    def reportinfo(self) -> tuple[Path, None, str]:
        """The check's name, instead of a location in a source file."""
        return self.path, None, f"{WORKLOADS}/{self.name}"


class CellItem(pytest.Item):
    """One cell; it was probed before the first item runs."""

    def __init__(self, *, matrix_session: MatrixSession, cell: Cell, **node: Any) -> None:
        super().__init__(**node)
        self.matrix_session, self.cell = matrix_session, cell
        self.extra_keyword_matches.add(cell.id)
        for name in dict.fromkeys((cell.protocol, cell.size, cell.source.os, cell.target.os)):
            self.add_marker(_mark(name))

    @property
    def result(self) -> CellResult:
        """The result of the cell."""
        return self.matrix_session.found[self.cell.id]

    def outcome(self) -> Outcome:
        """The phase in which the item ends, its outcome, and the message.

        A probe that could not be made is an error, so it ends in the setup phase.
        """
        result = self.result
        if result.verdict == "pass":
            return "call", "passed", None
        if result.verdict == "known-limit":
            message = f"Skipped: {result.expectation.rule}: {clean(result.detail)}"
            return "call", "skipped", (str(self.path), 1, message)
        return "setup" if result.verdict == "probe-error" else "call", "failed", story(result)

    def setup(self) -> None:
        """Record the cell's properties; only called if another plugin watches the calls."""
        self.user_properties.extend(properties(self.result))
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
        """The cell's id, instead of a location in a source file."""
        return self.path, None, self.cell.id


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
