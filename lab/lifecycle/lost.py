"""Machines that a failover test takes off their networks, and that come back whatever ends it.

It is written down before a machine is cut off, and forgotten after it is back. Who tests that holds
the lab alone: whoever else holds it and finds a machine written down knows that the test was
killed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from lab.providers.failing import Failing
from lab.providers.provider import LabHandle, Provider
from lab.state import faults as journal
from lab.state.rows import FaultRow
from lab.state.store import Store
from lab.topology.intent import Intent

CUT_OFF = "cut-off"
"""What it is called among the faults that are in a lab; none of the catalogue."""

Say = Callable[[str], None]


def cut_off(store: Store, provider: Provider, lab: LabHandle, intent: Intent, machine: str) -> None:
    """Take the machine off every network."""
    number = journal.intend(store, lab.name, lab.token, CUT_OFF, node=machine, peer="")
    cast(Failing, provider).cut_off(lab, intent, machine)
    journal.done(store, lab.name, number)


def join_again(
    store: Store, provider: Provider, lab: LabHandle, intent: Intent, machine: str
) -> None:
    """Put the machine back; it may be there already."""
    cast(Failing, provider).join_again(lab, intent, machine)
    for row in left(store, lab):
        if row.node == machine:
            journal.forget(store, lab.name, row.number)


def left(store: Store, lab: LabHandle) -> tuple[FaultRow, ...]:
    """The machines that are cut off, or may be."""
    steps = store.steps(lab.name)
    rows = (one for one in journal.faults(store, lab.name) if one.name == CUT_OFF)
    return tuple(one for one in rows if not journal.is_older(one, lab.token, steps))


def put_back(store: Store, provider: Provider, lab: LabHandle, intent: Intent, say: Say) -> None:
    """Put back what a test that was killed has left cut off, and wait until all has followed.

    Of a lab that is not running nothing is put back.

    Raises
    ------
    DeadlineError
        When daemons have not learned again what was lost.

    """
    rows = left(store, lab)
    if not rows or provider.liveness(lab, intent).state != "running":
        return
    from lab.lifecycle.relearning import wait_until_learned  # noqa: PLC0415  seldom needed

    for row in rows:
        say(f"{row.node} is off its networks, left so by a failover test that was killed: put back")
        join_again(store, provider, lab, intent, row.node)
    wait_until_learned(provider, lab, intent, f"putting {rows[0].node} back", say)
