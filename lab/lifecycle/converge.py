"""What a bring-up has to do, decided from what is done, what is wanted, and what is there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from lab.providers.provider import Liveness

NOT_DONE = "not done yet"
"""Why a step runs for the first time."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What becomes of one step, and why, in words."""

    step: str
    action: Literal["skip", "run"]
    why: str


def decide(
    steps_done: Mapping[str, str], wanted: Sequence[tuple[str, str]], liveness: Liveness
) -> list[Decision]:
    """Which steps run.

    A step that is done with the same digest, in a lab that is there, is skipped. When one runs
    again, all that follow it do. In a lab that is absent or broken all run, or those from the
    one on that the provider names; and all do when a step was done that nothing asks for any
    more.

    Parameters
    ----------
    steps_done
        Digest of every step that was done, by name.
    wanted
        Name and digest of every step, in order.
    liveness
        What the provider found.

    """
    reason = _reason_for_all(steps_done, wanted, liveness)
    decisions = []
    for name, digest in wanted:
        if not reason and name == liveness.again_from:
            reason = f"the lab is {liveness.state}: {liveness.detail}"
        own = reason or _reason(steps_done.get(name), digest)
        decisions.append(Decision(name, "run" if own else "skip", own or "done, nothing changed"))
        if own and not reason:
            reason = f"follows step '{name}', which runs"
    return decisions


def _reason_for_all(
    steps_done: Mapping[str, str], wanted: Sequence[tuple[str, str]], liveness: Liveness
) -> str:
    carried_on = liveness.again_from is not None
    if liveness.state == "broken" and not carried_on:
        return f"the lab is broken: {liveness.detail}"
    if liveness.state == "absent" and not carried_on and steps_done:
        return f"the lab's machines are gone: {liveness.detail}"
    unwanted = sorted(set(steps_done) - {name for name, _ in wanted})
    if unwanted:
        return f"step '{unwanted[0]}' was done and is not wanted any more"
    return ""


def _reason(done: str | None, wanted: str) -> str:
    if done is None:
        return NOT_DONE
    return "" if done == wanted else "what it is made from has changed"


def runs(decisions: Sequence[Decision]) -> bool:
    """Whether there is anything to do."""
    return any(decision.action == "run" for decision in decisions)


def from_nothing(decisions: Sequence[Decision]) -> bool:
    """Whether every step runs, so that nothing there needs to be kept."""
    return all(decision.action == "run" for decision in decisions)
