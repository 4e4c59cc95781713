"""Waiting for a lab to settle: one probe for every Service and node, until each has answered."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from lab._deadline import Deadline
from lab._errors import DeadlineError
from lab.matrix.cell import Cell, Expectation

Subject = str
"""``node 'win1'`` or ``Service 'to-win1-p1'``, as a sentence names it."""

_PREFERENCE = {"same-node": 0, "self": 1, "other-node": 2, "outside": 3}
"""A path inside one node says most about that node, and least about others."""


def subjects(cell: Cell) -> tuple[Subject, ...]:
    """The nodes and the Service that the cell's answer depends on."""
    named = [f"node '{name}'" for name in (cell.source.node, cell.entry, cell.target.node) if name]
    if cell.target.kind == "service":
        named.append(f"Service '{cell.target.name}'")
    elif cell.target.kind == "nodeport":
        named.append(f"Service '{cell.target.name.partition(':')[2]}'")
    elif cell.target.kind == "name":
        named.append("the DNS Service")
    return tuple(dict.fromkeys(named))


def representatives(
    cells: Sequence[Cell], expectations: Sequence[Expectation]
) -> dict[Subject, int]:
    """For each subject the index of the one cell that stands for it.

    Only cells that are expected to work are taken: a subject with none needs no waiting for.
    Small probes come before large ones, and paths within one node before longer ones.
    """
    best: dict[Subject, tuple[tuple[bool, int], int]] = {}
    for index, cell in enumerate(cells):
        if not expectations[index].works:
            continue
        rank = (cell.size != "small", _PREFERENCE[cell.relation])
        for subject in subjects(cell):
            known = best.get(subject)
            if known is None or rank < known[0]:
                best[subject] = (rank, index)
    return {subject: index for subject, (_, index) in best.items()}


def converge(
    chosen: Mapping[Subject, int],
    passes: Callable[[Sequence[int]], frozenset[int]],
    deadline: Deadline,
) -> frozenset[Subject]:
    """Probe the chosen cells until all have passed; those that never did are the answer.

    A lab that does not settle is judged all the same: its cells say more than one refusal
    to look would. ``passes`` tries the cells of the given indexes once and returns those that
    passed; only what is still missing is tried again.
    """
    missing = dict(chosen)

    def look() -> tuple[Subject, ...]:
        passed = passes(sorted(set(missing.values())))
        for subject, index in tuple(missing.items()):
            if index in passed:
                del missing[subject]
        return tuple(missing)

    if not missing:
        return frozenset()
    try:
        deadline.wait(
            "waiting for Services and nodes to answer",
            look,
            until=lambda left: not left,
            every=0.1,
        )
    except DeadlineError:
        return frozenset(missing)
    return frozenset()
