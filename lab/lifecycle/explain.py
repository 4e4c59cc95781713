"""Explain why a cell of a running lab is not as expected."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from lab._deadline import Deadline
from lab._errors import LabError
from lab.explain.bracket import Bracket, find_bracket
from lab.explain.capture.probe import follow_loss
from lab.explain.explainer import Explainer
from lab.explain.question import LOOK_SECONDS, Compare, Explanation, Follow, Look, choose, explain
from lab.facts.ruleset import StateDifference
from lab.lifecycle.session import OpenLab
from lab.matrix.cell import Cell
from lab.matrix.cells import product
from lab.matrix.verdict import Finding
from lab.providers.provider import Outcome, Probe, ProbeSettings, find_cluster, resolve_gateways
from lab.topology.intent import Intent

Say = Callable[[str], None]

_SECONDS = 1.5
"""For one exchange that is followed: TCP retransmits its first packet after one second."""


@dataclass(frozen=True, slots=True)
class ExplainQuestion:
    """Source, target, protocol and size; None for every one in the matrix."""

    source: str
    """Name of the source; the id of a cell if ``target`` is None."""
    target: str | None
    protocol: str | None = None
    size: str | None = None

    def __str__(self) -> str:
        return self.source if self.target is None else f"{self.source} to {self.target}"


def explain_cell(opened: OpenLab, question: ExplainQuestion, say: Say) -> Explanation:
    """Probe again, inspect the path, and say what is wrong there.

    The record of injected faults is not read: the explanation uses only observations.

    Raises UsageError, with the nearest name, when the matrix has no such cell. Raises BrokenError
    when the lab is not running.
    """
    doing = f"explaining '{question}' in lab '{opened.name}'"
    with opened.used(f"lab explain {opened.name}", say):
        opened.require_running(well=False)
        with bound(opened) as intent:
            cells = choose(
                product(opened.plan, intent),
                question.source,
                question.target,
                protocol=question.protocol,
                size=question.size,
                doing=doing,
            )
            return explain(
                cells,
                opened.limits,
                intent,
                _sender(opened, intent),
                looker(opened, intent),
                lambda asked: opened.provider.logs(
                    opened.handle, intent, asked, Deadline(LOOK_SECONDS)
                ),
                _comparer(opened, intent, say),
                _follower(opened, intent, say),
            )


def _comparer(opened: OpenLab, intent: Intent, say: Say) -> Compare:
    def compare(places: Sequence[str]) -> Mapping[str, Sequence[StateDifference]]:
        deadline = Deadline(LOOK_SECONDS)
        try:
            return opened.provider.deviations(opened.handle, intent, places, deadline)
        except LabError as error:
            say(f"cannot compare with the intended state: {error.cause}")
            raise

    return compare


def _follower(opened: OpenLab, intent: Intent, say: Say) -> Follow:
    def follow(cell: Cell) -> Bracket | None:
        try:
            captured = follow_loss(
                *(opened.provider, opened.handle, intent, cell, opened.limits), timeout=_SECONDS
            )
        except LabError as error:
            say(f"cannot tell where packets are lost: {error.cause}")
            return None
        return find_bracket(captured, intent) if captured else None

    return follow


def find_differences(opened: OpenLab, say: Say) -> tuple[Finding, ...]:
    """Observe every machine and pod of a lab; return every difference from the Intent.

    Raises BrokenError when the lab is not running.
    """
    with opened.used(f"lab status {opened.name}", say):
        opened.require_running(well=False)
        with bound(opened) as intent:
            machines = {
                machine.name: tuple(pod.name for pod in machine.pods)
                for machine in intent.everything()
            }
            return Explainer(intent, looker(opened, intent)(machines)).everything()


@contextmanager
def bound(opened: OpenLab, *, ready: bool = False) -> Iterator[Intent]:
    """The lab's Intent; on a cluster with the addresses that its pods have.

    ``ready``: whether to wait until the pods are Ready.
    """
    cluster = find_cluster(opened.provider, opened.handle, opened.intent)
    if cluster is None:
        yield resolve_gateways(opened.provider, opened.handle, opened.intent)
        return
    with cluster.probed(ready=ready) as intent:
        yield resolve_gateways(opened.provider, opened.handle, intent)


def looker(opened: OpenLab, intent: Intent) -> Look:
    """A function that observes machines of the lab."""
    return lambda asked: opened.provider.observe(
        opened.handle, intent, asked, Deadline(LOOK_SECONDS)
    )


def _sender(
    opened: OpenLab, intent: Intent
) -> Callable[[Sequence[Probe], ProbeSettings], Mapping[int, Outcome]]:
    return lambda probes, settings: opened.provider.probe(
        opened.handle, intent, probes, settings, lambda _: None
    )
