"""Restore a machine or pod of a running lab to the state that the lab created."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lab._deadline import Deadline
from lab._errors import LabError, UsageError, did_you_mean
from lab._log import listed
from lab.explain.deviations import finding_of
from lab.explain.explainer import Explainer
from lab.explain.objects import split_by_path
from lab.facts.command_lines import IN_POD, is_command, to_run
from lab.facts.difference import CLUSTER, NOT_ASKED, Difference
from lab.facts.questions import ENTER_POD
from lab.lifecycle.open_lab import OpenLab
from lab.suites.running_lab import BoundLab, bind_intent
from lab.topology.intent import Intent

Say = Callable[[str], None]

_SECONDS = 60.0
"""For one command; on an emulated machine, starting a shell alone takes seconds."""
_ROUNDS = 3
"""A device that is made again differs anew: its addresses and routes are missing."""
_EFFECT_SECONDS = 90.0
"""For what a command on Windows has started: a service or flanneld makes HNS' objects later."""
_LOOK_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class RepairResult:
    """What differed, and what still does."""

    differences: tuple[Difference, ...]
    left: tuple[Difference, ...]


def repair(
    opened: OpenLab, place: str, name: str | None, say: Say, *, only_look: bool
) -> RepairResult:
    """Run the commands that undo the differences of a machine or pod, until nothing differs.

    ``place``: the machine or pod. ``name``: the object, as a difference names it; None for all.
    ``only_look``: run nothing, so that all of it is left.

    Raises UsageError when there is no such machine or pod, or such an object does not differ there
    while others do. Raises LabError when the lab is not running, or the machine does not answer.
    """
    action = f"repairing '{place}' of lab '{opened.name}'"
    opened.require_own(action, f"'lab explain {opened.name} SRC DST' says what is wrong")
    with opened.in_use(f"lab repair {opened.name} {place}", say, alone=True):
        opened.require_running(healthy=False)

        def look() -> tuple[Difference, ...]:
            with bind_intent(opened) as intent:  # pods that are made again have other addresses
                return _find_place_differences(BoundLab(opened, intent), intent, place, action)

        every = look()
        first = left = _choose_differences(every, name)
        if name is not None and not first:
            _require_nothing(every, name, action)
        advised = [finding for finding in every if not is_command(_line(finding))]
        for _ in range(0 if only_look else _ROUNDS):
            if not any(is_command(_line(finding)) for finding in left):
                break
            lasting = [*advised, *(finding for finding in left if not _run(opened, finding, say))]
            seconds = _EFFECT_SECONDS if _is_windows(opened.intent, place) else 0.0
            left = _wait_for_effect(
                lasting, lambda: _choose_differences(look(), name), Deadline(seconds)
            )
    return RepairResult(first, left)


def _is_windows(intent: Intent, place: str) -> bool:
    return intent.places()[place][0].os == "windows"


def _wait_for_effect(
    lasting: Sequence[Difference], look: Callable[[], tuple[Difference, ...]], deadline: Deadline
) -> tuple[Difference, ...]:
    """What differs once only ``lasting`` differences are left, or at last.

    ``lasting``: those whose command has failed, and those that no command mends. A command may
    itself take away what comes back later (a pod that is made again), and the network meanwhile.
    Raises what ``look`` raises when the deadline has passed.
    """
    known = {(finding.kind, finding.place, finding.object) for finding in lasting}
    left: tuple[Difference, ...] = ()
    for _ in deadline.tries(_LOOK_SECONDS):
        try:
            left = look()
        except LabError:
            if not deadline.left():
                raise
            continue
        if known.issuperset((finding.kind, finding.place, finding.object) for finding in left):
            break
    return left


def _find_place_differences(
    view: BoundLab, intent: Intent, place: str, action: str
) -> tuple[Difference, ...]:
    """How the place differs from what the lab made: its whole state, then what the checks find."""
    machines = {
        name: machine
        for machine in intent.everything()
        for name in (machine.name, *(pod.name for pod in machine.pods))
    }
    if place not in machines:
        hint = f"{did_you_mean(place, machines)} there are {listed([*machines])}".strip()
        raise UsageError(action, f"there is no machine or pod '{place}'", hint)
    machine = machines[place]
    plane = intent.control_plane()
    names = [place, CLUSTER] if place == plane else [place]
    compared = view.compare(names)
    findings: list[Difference] = []
    for name in names:
        answer = compared.get(name, ())
        if isinstance(answer, LabError):
            raise answer
        if name == CLUSTER:
            findings += split_by_path(None, answer, plane)[1]
        else:
            differences = (each for each in answer if each.kind != NOT_ASKED)
            findings += (finding_of(machine.name, place, each) for each in differences)
    pods = (place,) if place != machine.name else ()
    answers = view.look({machine.name: pods})
    if error := next((answer for answer in answers.values() if isinstance(answer, LabError)), None):
        raise error
    return (
        *findings,
        *(
            finding
            for finding in Explainer(intent, answers).list_elsewhere()
            if finding.place == place
        ),
    )


def _choose_differences(every: Sequence[Difference], name: str | None) -> tuple[Difference, ...]:
    """The differences of one object, or of the whole state, which include those of the checks.

    Differences of checks are used where the state has no commands for them or was not recorded.
    """
    if name is not None:
        return tuple(finding for finding in every if finding.object == name)
    of_state = tuple(finding for finding in every if finding.of_state)
    return of_state if any(is_command(_line(finding)) for finding in of_state) else tuple(every)


def _require_nothing(every: Sequence[Difference], name: str, action: str) -> None:
    """Refuse the name of an object that does not differ while others do."""
    names = list(dict.fromkeys(finding.object for finding in every))
    if names:
        hint = f"{did_you_mean(name, names)} these differ: {listed(names)}".strip()
        raise UsageError(action, f"'{name}' does not differ there", hint)


def _line(finding: Difference) -> str:
    return finding.mends.removeprefix(IN_POD)


def _run(opened: OpenLab, finding: Difference, say: Say) -> bool:
    """Run the finding's command, if it has one; whether it ran and succeeded.

    One that fails is said: another may be needed first.
    """
    line = _line(finding)
    if not is_command(line):
        return False
    at = finding.node if finding.mends.startswith(ENTER_POD) else finding.place
    machine = opened.provider.machine(opened.handle, opened.intent, at)
    done = machine.run(to_run(line), Deadline(_SECONDS))
    if done.code:
        reason = done.stderr.strip().splitlines() or [f"exit code {done.code}"]
        say(f"  {finding.object}: {reason[0]}")
    return done.code == 0
