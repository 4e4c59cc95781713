"""The connectivity suite: a collector for the lab, one for each family, and an item a cell.

Node ids read ``LAB::FAMILY::SOURCE/TARGET/PROTOCOL-SIZE``; ``-k`` also knows a cell's whole id.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Literal

import pytest

from lab._log import clean
from lab.matrix.cell import Cell
from lab.matrix.verdict import GREEN, CellResult
from lab.scenario.families import terms
from lab.scenario.terms import Family
from lab.suites.session import LabSession

Outcome = tuple[
    Literal["setup", "call"],
    Literal["passed", "failed", "skipped"],
    str | tuple[str, int, str] | None,
]
"""Phase, what came of it, and the words; of what is skipped with a place, as pytest has it."""
WORKLOADS = "workloads"
"""The collector of a cluster's checks, and a word for ``-k``."""
MARKERS: dict[str, str] = {
    **{family: f"cells of the family {family}" for family in terms()},
    "tcp": "cells probed over TCP",
    "udp": "cells probed over UDP",
    "small": "cells with a small payload",
    "large": "cells with a payload above the path's MTU",
    "linux": "cells with a Linux machine at one end or both",
    "windows": "cells with a Windows machine at one end or both",
}
"""What ``-m`` can choose by."""


class LabDirectory(pytest.Directory):
    """The package of the suite: nothing but the lab's matrix is collected from it."""

    lab: LabSession

    @classmethod
    def of(cls, parent: pytest.Collector, lab: LabSession) -> LabDirectory:
        """The collector of the package, for an open lab."""
        made = cls.from_parent(parent, path=Path(__file__).parent)
        made.lab = lab
        return made

    def collect(self) -> Iterator[pytest.Collector]:
        """The matrix of the lab."""
        yield MatrixFile.of(self, self.lab)


class MatrixFile(pytest.File):
    """The matrix of one lab."""

    lab: LabSession

    @classmethod
    def of(cls, parent: LabDirectory, lab: LabSession) -> MatrixFile:
        """The collector of an open lab, under the lab's name."""
        made = cls.from_parent(parent, path=Path(__file__), nodeid=lab.lab.name)
        made.lab = lab
        return made

    def collect(self) -> Iterator[pytest.Collector]:
        """A collector for each family that has cells, in the order of the families."""
        by_family: dict[Family, list[Cell]] = {}
        for cell in self.lab.cells:
            by_family.setdefault(cell.family, []).append(cell)
        for family, members in by_family.items():
            yield FamilyCollector.of(self, family, members)
        if self.lab.checks:
            yield WorkloadCollector.from_parent(self, name=WORKLOADS)


class FamilyCollector(pytest.Collector):
    """The cells of one family."""

    members: Sequence[Cell]

    @classmethod
    def of(cls, parent: MatrixFile, family: Family, members: Sequence[Cell]) -> FamilyCollector:
        """The collector of one family's cells."""
        made = cls.from_parent(parent, name=family)
        made.members = members
        made.add_marker(family)
        return made

    def collect(self) -> Iterator[pytest.Item]:
        """One item a cell."""
        file = self.parent
        assert isinstance(file, MatrixFile)
        for cell in self.members:
            yield CellItem.of(self, file.lab, cell)


class WorkloadCollector(pytest.Collector):
    """The checks of a real cluster beside its network."""

    def collect(self) -> Iterator[pytest.Item]:
        """One item for each check of each node."""
        file = self.parent
        assert isinstance(file, MatrixFile)
        for node, check in file.lab.checks:
            yield WorkloadItem.of(self, file.lab, f"{node}/{check}")


class WorkloadItem(pytest.Item):
    """One check on one node; it has been made before the first item runs."""

    lab: LabSession

    @classmethod
    def of(cls, parent: WorkloadCollector, lab: LabSession, name: str) -> WorkloadItem:
        """The item of one check."""
        made = cls.from_parent(parent, name=name)
        made.lab = lab
        made.extra_keyword_matches.add(WORKLOADS)
        return made

    def setup(self) -> None:
        """Note the verdict; a check that could not be made is an error, not a failure."""
        found = self.lab.workloads[self.name]
        self.user_properties.append(("verdict", found.verdict))
        if found.verdict == "probe-error":
            pytest.fail(f"{WORKLOADS}/{self.name}: {clean(found.detail)}", pytrace=False)

    def runtest(self) -> None:
        """Fail as the verdict says."""
        found = self.lab.workloads[self.name]
        if found.verdict != "pass":
            pytest.fail(f"{WORKLOADS}/{self.name}: {clean(found.detail)}", pytrace=False)

    def reportinfo(self) -> tuple[Path, None, str]:
        """The check's name stands where a test's place in the source would."""
        return self.path, None, f"{WORKLOADS}/{self.name}"


class CellItem(pytest.Item):
    """One cell; the probing has been done before the first of them runs."""

    lab: LabSession
    cell: Cell

    @classmethod
    def of(cls, parent: FamilyCollector, lab: LabSession, cell: Cell) -> CellItem:
        """The item of one cell."""
        made = cls.from_parent(parent, name=cell.id.partition("/")[2])
        made.lab, made.cell = lab, cell
        made.extra_keyword_matches.add(cell.id)
        for name in _facets(cell):
            made.add_marker(_mark(name))
        return made

    @property
    def found(self) -> CellResult:
        """What was found of the cell."""
        return self.lab.found[self.cell.id]

    def outcome(self) -> Outcome:
        """In which phase the item ends, as what, and what is said of it.

        A probe that could not be made is an error, and so one of the setup, not a failure.
        """
        found = self.found
        if found.verdict == "pass":
            return "call", "passed", None
        if found.verdict == "known-limit":
            told = f"Skipped: {found.expectation.rule}: {clean(found.detail)}"
            return "call", "skipped", (str(self.path), 1, told)
        return "setup" if found.verdict == "probe-error" else "call", "failed", story(found)

    def setup(self) -> None:
        """Note the cell's record, where a plugin wants the calls themselves."""
        self.user_properties.extend(properties(self.found))
        self._end("setup")

    def runtest(self) -> None:
        """Fail or skip as the verdict says, where a plugin wants the calls themselves."""
        self._end("call")

    def _end(self, here: str) -> None:
        phase, outcome, words = self.outcome()
        if phase != here or words is None:
            return
        if outcome == "skipped":
            pytest.skip(words[2].partition(": ")[2])
        pytest.fail(str(words), pytrace=False)

    def reportinfo(self) -> tuple[Path, None, str]:
        """The cell's id stands where a test's place in the source would."""
        return self.path, None, self.cell.id


@cache
def _mark(name: str) -> pytest.MarkDecorator:
    """One mark for all the cells that carry it."""
    made: pytest.MarkDecorator = getattr(pytest.mark, name)
    return made


def _facets(cell: Cell) -> tuple[str, ...]:
    if cell.source.os == cell.target.os:
        return (cell.protocol, cell.size, cell.source.os)
    return (cell.protocol, cell.size, cell.source.os, cell.target.os)


def properties(found: CellResult) -> tuple[tuple[str, object], ...]:
    """What JUnit says of a cell beside its outcome."""
    last = found.attempts[-1]
    return (
        ("verdict", found.verdict),
        ("rule", found.expectation.rule),
        ("latency_ms", f"{last.latency_ms:.3f}"),
        ("source_seen", last.source_seen or ""),
        ("backend", " ".join(last.backends)),
        ("attempts", len(found.attempts)),
        ("repeat", found.repeat),
        *((("cause", found.cause),) if found.verdict not in GREEN else ()),
    )


def story(found: CellResult) -> str:
    """What was expected of a cell, what happened, and how to see it again."""
    expected, last = found.expectation, found.attempts[-1]
    aim = "to work" if expected.works else f"not to work ({expected.refusal})"
    backends = ", ".join(last.backends) or "none"
    lines = [
        f"{found.verdict}: {found.cell.id}",
        f"expected: {aim}; {expected.rule}: {expected.reason}",
        f"actual:   {found.detail}",
        f"observed: source {last.source_seen or 'unknown'}, backend {backends}",
    ]
    if last.answer is not None:
        lines.append(f"answered: {last.answer}")
    if found.retried:
        lines.append(f"attempts: {len(found.attempts)}")
    lines += [f"cause:    {found.cause}", f"repeat:   {found.repeat}"]
    return clean("\n".join(lines))
