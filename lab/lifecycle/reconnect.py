"""Cut machines off for a failover test, and reconnect them however the test ends.

The journal records a machine before it is cut off, and drops it after it is reconnected. A failover
test holds the lab exclusively, so another command that holds the lab and finds such a record knows
that the test was killed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from lab._deadline import Deadline
from lab._errors import LabError
from lab.providers.failover import FailoverProvider
from lab.providers.provider import LabHandle, Provider
from lab.state.rows import FaultRow
from lab.state.store import Store
from lab.topology.intent import Intent

_SECONDS = 30.0
"""In addition to the hold time: BGP recovers in 2 to 5 s, keepalived in 4 (measured when idle)."""
_EVERY_SECONDS = 0.2
_SHOWN = 3

Say = Callable[[str], None]


def wait_until_learned(
    provider: Provider, lab: LabHandle, intent: Intent, action: str, say: Say
) -> None:
    """Wait until daemons have relearned all routes; returns at once if they learn none.

    Also returns at once on a cluster, whose add-on alone knows its addresses. A peer that has not
    noticed a loss keeps its session until the hold time is over, and accepts no other before.

    Raises DeadlineError saying what is still missing, and on which machine. Raises BrokenError when
    the lab is not up.
    """
    # Imported only here: it imports every check of explain.
    from lab.explain.explainer import learning_machines, list_unlearned  # noqa: PLC0415

    names = learning_machines(intent)
    if not names or intent.kubernetes is not None:
        return
    hold = max(
        (machine.speaker.hold_seconds for machine in intent.machines if machine.speaker), default=0
    )
    deadline = Deadline(_SECONDS + hold)
    announced = False

    def look() -> tuple[str, ...]:
        nonlocal announced
        answers = provider.observe(lab, intent, dict.fromkeys(names, ()), deadline)
        facts = {
            name: answer for name, answer in answers.items() if not isinstance(answer, LabError)
        }
        silent = [
            f"{name}: {answer}" for name, answer in answers.items() if isinstance(answer, LabError)
        ]
        left = (
            *silent,
            *(
                f"{difference.node}: {difference.object}"
                for difference in list_unlearned(intent, facts)
            ),
        )
        if left and not announced:
            announced = True
            say(f"waiting for daemons to relearn what was lost: {_describe_left(left)}")
        return left

    deadline.wait(
        f"{action}: waiting for daemons to relearn what was lost",
        look,
        until=lambda left: not left,
        every=_EVERY_SECONDS,
        hint=f"'lab explain {lab.name}' for a pair of pods, or the daemons' own words in "
        f"'lab gather {lab.name}'",
    )


def _describe_left(left: tuple[str, ...]) -> str:
    more = f" and {len(left) - _SHOWN} more" if len(left) > _SHOWN else ""
    return ", ".join(left[:_SHOWN]) + more


CUT_OFF = "cut-off"
"""Name of the fault row for a machine that is cut off; not a fault of the catalogue."""


def reconnect_machine(
    store: Store, provider: Provider, lab: LabHandle, intent: Intent, machine: str
) -> None:
    """Reconnect the machine; it may be connected already."""
    cast(FailoverProvider, provider).reconnect(lab, intent, machine)
    for row in left(store, lab):
        if row.node == machine:
            store.forget_fault(lab.name, row.number)


def left(store: Store, lab: LabHandle) -> tuple[FaultRow, ...]:
    """The rows of machines that are, or may be, cut off."""
    return tuple(fault for fault in store.live_faults(lab.name, lab.token) if fault.name == CUT_OFF)


def reconnect_cut_off(
    store: Store, provider: Provider, lab: LabHandle, intent: Intent, say: Say
) -> None:
    """Reconnect machines that a killed test left cut off, and wait until daemons have relearned.

    Does nothing if the lab is not running.

    Raises DeadlineError when daemons have not relearned what was lost.
    """
    rows = left(store, lab)
    if not rows or provider.liveness(lab, intent).state != "running":
        return

    for row in rows:
        say(f"{row.node} was left off its networks by a killed failover test: reconnected")
        reconnect_machine(store, provider, lab, intent, row.node)
    wait_until_learned(provider, lab, intent, f"putting {rows[0].node} back", say)
