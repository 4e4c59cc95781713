"""The faults of a lab in the journal: written before anything is broken, taken out when mended."""

from __future__ import annotations

from collections.abc import Iterable

from lab.state.rows import FaultRow, StepRow
from lab.state.store import Store

_COLUMNS = "number, token, name, node, peer, state, at, observed"


def faults(store: Store, lab: str) -> tuple[FaultRow, ...]:
    """Every fault that was put into labs of that name and not taken out, in order."""
    return store.rows(
        FaultRow,
        f"reading the faults of the lab '{lab}'",
        f"SELECT {_COLUMNS} FROM faults WHERE lab = ? ORDER BY number",  # noqa: S608  our own column names
        (lab,),
    )


def intend(  # noqa: PLR0913  a fault is all of these
    store: Store,
    lab: str,
    token: str,
    name: str,
    *,
    node: str,
    peer: str,
    observed: str = "",
) -> int:
    """Write that a fault is about to be put in; its number."""
    doing = f"writing down fault '{name}' of the lab '{lab}'"
    with store.change(doing):
        number = max((one.number for one in faults(store, lab)), default=0) + 1
        store.write(
            doing,
            f"INSERT INTO faults (lab, {_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, 'intended', ?, ?)",  # noqa: S608  the same
            [(lab, number, token, name, node, peer, store.now(), observed)],
        )
    return number


def done(store: Store, lab: str, number: int) -> None:
    """Write that the fault is in."""
    store.write(
        f"writing down that fault {number} is in the lab '{lab}'",
        "UPDATE faults SET state = 'done' WHERE lab = ? AND number = ?",
        [(lab, number)],
    )


def forget(store: Store, lab: str, number: int) -> None:
    """Write that the fault is out."""
    store.write(
        f"writing down that fault {number} is out of the lab '{lab}'",
        "DELETE FROM faults WHERE lab = ? AND number = ?",
        [(lab, number)],
    )


def is_older(row: FaultRow, token: str, steps: Iterable[StepRow]) -> bool:
    """Whether the whole lab was made after the fault was put in, which left nothing of it."""
    return row.token != token or row.at < min((step.at for step in steps), default=row.at)
