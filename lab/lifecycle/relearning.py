"""Waiting until daemons have what they lost meanwhile: routes of BGP, and virtual gateways."""

from __future__ import annotations

from collections.abc import Callable

from lab._deadline import Deadline
from lab._errors import LabError
from lab.cluster.observers.learned import asked, unlearned
from lab.providers.provider import LabHandle, Provider
from lab.topology.intent import Intent

_SECONDS = 30.0
"""Beside the hold time: BGP comes back in 2 to 5 s, keepalived in 4 (measured, a calm machine)."""
_EVERY_SECONDS = 0.2
_SHOWN = 3

Say = Callable[[str], None]


def wait_until_learned(
    provider: Provider, lab: LabHandle, intent: Intent, doing: str, say: Say
) -> None:
    """Wait for all that is learned; returns at once where nothing is.

    The same where a cluster's own add-on learns it: its addresses are known to it alone. A peer
    that has not noticed a loss keeps its session until the hold time is over, and takes no other
    before.

    Raises
    ------
    DeadlineError
        Saying what is missing still, and on which machine.
    BrokenError
        When the lab is not up.

    """
    names = asked(intent)
    if not names or intent.kubernetes is not None:
        return
    hold = max((one.speaker.hold_seconds for one in intent.machines if one.speaker), default=0)
    deadline = Deadline(_SECONDS + hold)
    told = False

    def look() -> tuple[str, ...]:
        nonlocal told
        seen = provider.observe(lab, intent, dict.fromkeys(names, ()), deadline)
        there = {name: one for name, one in seen.items() if not isinstance(one, LabError)}
        silent = [f"{name}: {one}" for name, one in seen.items() if isinstance(one, LabError)]
        left = (*silent, *(f"{one.node}: {one.object}" for one in unlearned(intent, there)))
        if left and not told:
            told = True
            say(f"waiting for daemons to learn again what was lost: {_words(left)}")
        return left

    deadline.wait(
        f"{doing}: waiting for daemons to learn again what was lost",
        look,
        until=lambda left: not left,
        every=_EVERY_SECONDS,
        cure=f"'lab explain {lab.name}' for a pair of pods, or the daemons' own words in "
        f"'lab gather {lab.name}'",
    )


def _words(left: tuple[str, ...]) -> str:
    more = f" and {len(left) - _SHOWN} more" if len(left) > _SHOWN else ""
    return ", ".join(left[:_SHOWN]) + more
