"""Two runs of one scenario, cell by cell: what fails now and did not before. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from lab._log import quantity
from lab.matrix.verdict import GREEN, RunResult, Verdict

SHOWN = 10
"""Cells of one kind of change that the text lists; the rest are counted, JSON has them all."""


@dataclass(frozen=True, slots=True)
class Change:
    """One cell whose verdict is another than before; None where the run has no such cell."""

    cell: str
    before: Verdict | None
    after: Verdict | None

    def words(self) -> str:
        """``pod-pod/a-p1/b-p1/tcp-small: pass, now fail``."""
        return f"{self.cell}: {self.before or 'not there'}, now {self.after or 'not there'}"


@dataclass(frozen=True, slots=True)
class Difference:
    """What became of every cell, each in the order of the run that has it."""

    failing: tuple[Change, ...] = ()
    """As expected before, and not now."""
    passing: tuple[Change, ...] = ()
    """Not as expected before, and as expected now."""
    changed: tuple[Change, ...] = ()
    """Another verdict of the same colour: ``fail`` to ``flaky``, ``pass`` to ``known-limit``."""
    gone: tuple[Change, ...] = ()
    new: tuple[Change, ...] = ()

    def kinds(self) -> Iterator[tuple[str, tuple[Change, ...]]]:
        """Each kind of change that occurs, in words, with its cells."""
        for field in fields(self):
            changes = getattr(self, field.name)
            if changes:
                yield _KINDS[field.name], changes


_KINDS = {
    "failing": "newly failing",
    "passing": "newly passing",
    "changed": "verdict changed",
    "gone": "gone",
    "new": "new",
}


def difference(before: RunResult, after: RunResult) -> Difference:
    """What changed from one run to a later one of the same scenario."""
    old = {result.cell.id: result.verdict for result in before.results}
    now = {result.cell.id: result.verdict for result in after.results}
    found: dict[str, list[Change]] = {name: [] for name in _KINDS}
    for cell, verdict in now.items():
        earlier = old.get(cell)
        if earlier != verdict:
            found[_kind(earlier, verdict)].append(Change(cell, earlier, verdict))
    found["gone"] = [Change(cell, old[cell], None) for cell in old if cell not in now]
    return Difference(**{name: tuple(changes) for name, changes in found.items()})


def _kind(before: Verdict | None, after: Verdict) -> str:
    if before is None:
        return "new"
    if (before in GREEN) == (after in GREEN):
        return "changed"
    return "passing" if after in GREEN else "failing"


def differences(
    before: Mapping[str, RunResult], after: Mapping[str, RunResult]
) -> dict[str, Difference]:
    """The difference of every scenario that both nights have a run of, by its name."""
    return {name: difference(before[name], run) for name, run in after.items() if name in before}


def to_json(found: Mapping[str, Difference]) -> dict[str, Any]:
    """As values that :mod:`json` can write."""
    return {name: asdict(one) for name, one in found.items()}


def text_lines(found: Mapping[str, Difference]) -> list[str]:
    """The differences as text; scenarios without any are left out."""
    lines: list[str] = []
    for name, one in found.items():
        for kind, changes in one.kinds():
            lines.append(f"{name}: {quantity(len(changes), 'cell')} {kind}")
            lines += [f"  {change.words()}" for change in changes[:SHOWN]]
            if len(changes) > SHOWN:
                lines.append(f"  and {len(changes) - SHOWN:,} more")
    return lines
