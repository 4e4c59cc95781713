"""A lab of namespaces as it was once recorded: explain asks it as it asks a real one.

Recorded is what came from outside: answers of shells, outcomes of probes, captured frames, the
kernel's trace, logs. Plan and Intent are made of the scenario anew.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

from recorded_answers import Places, RecordedShell, TextPool, read_packed

from lab._deadline import Deadline
from lab.explain.causes import with_causes, with_places
from lab.explain.explanation import Explanation
from lab.facts.difference import Difference
from lab.lifecycle.compilation import Compiled, compile_scenario
from lab.lifecycle.explain import ExplainQuestion, explain_cell
from lab.lifecycle.open_lab import OpenLab
from lab.matrix.verdict import CellResult
from lab.plan.plan import Plan
from lab.providers.capture import Frame, KernelTrace, RouteQuestion, Taken, Tap, TracedFlow
from lab.providers.netns import bring_up
from lab.providers.netns.machine import NetnsMachine
from lab.providers.netns.provider import NetnsProvider
from lab.providers.provider import (
    Evidence,
    LabHandle,
    Liveness,
    Outcome,
    Probe,
    ProbeSettings,
)
from lab.scenario.scenario import Limit
from lab.shells.shell import Completed
from lab.suites.running_lab import BoundLab, bind_intent
from lab.topology.intent import Intent

RECORDED = Path(__file__).parent / "cases" / "recorded"


@dataclass
class Recording:
    """Everything that one explanation asked for, as plain data."""

    title: str
    """The fault and its place."""
    question: list[str]
    """Source, target, protocol and size, as ``lab explain`` takes them."""
    worked: float
    """When the lab worked last, in seconds since 1970."""
    places: Places = field(default_factory=dict)
    copy: Places = field(default_factory=dict)
    """What the second copy of the namespaces answered."""
    outcomes: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """By probe, the outcomes in the order of time."""
    captures: list[list[dict[str, Any]]] = field(default_factory=list)
    """What was taken at each tap, for each capture."""
    traces: list[list[dict[str, Any]]] = field(default_factory=list)
    """What the kernel said in each place, for each trace."""
    logs: dict[str, str] = field(default_factory=dict)
    """By path."""
    holders: dict[str, list[str]] = field(default_factory=dict)
    """The machines that hold each node's virtual gateway."""


def probe_key(probe: Probe) -> str:
    """What tells a probe from others, as text."""
    size = (probe.size, probe.tries, probe.dialect, probe.name or "", probe.every)
    return (
        f"{probe.source} {probe.protocol} {probe.address}:{probe.port} {' '.join(map(str, size))}"
    )


def taken_entry(taken: Taken) -> dict[str, Any]:
    frames = [[frame.at, frame.direction, frame.data.hex(), frame.length] for frame in taken.frames]
    return {**asdict(replace(taken, frames=())), "frames": frames}


def _taken(entry: Mapping[str, Any]) -> Taken:
    frames = tuple(
        Frame(at, way, bytes.fromhex(data), size) for at, way, data, size in entry["frames"]
    )
    return Taken(**{**entry, "tap": Tap(**entry["tap"]), "frames": frames})


def said_entry(report: KernelTrace) -> dict[str, Any]:
    routes = [[shlex.join(question.command("")), text] for question, text in report.routes]
    return {**asdict(replace(report, routes=(), drops=())), "routes": routes, "drops": []}


def _said(entry: Mapping[str, Any], questions: Sequence[RouteQuestion]) -> KernelTrace:
    texts = dict(entry["routes"])
    routes = tuple(
        (question, texts[line])
        for question in questions
        if (line := shlex.join(question.command(""))) in texts
    )
    return KernelTrace(**{**entry, "routes": routes, "drops": ()})


class ReplayedProvider(NetnsProvider):
    """Answers what a recording has; nothing runs."""

    def __init__(self, recording: Recording, healthy: Places, copy: Places) -> None:
        super().__init__()
        self._recording = recording
        self._answers: tuple[Places, Places] = (recording.places, healthy)
        self._copy = copy
        self._shells: dict[str, RecordedShell] = {}
        self._times: Counter[str] = Counter()
        self._captured = self._traced = 0

    def liveness(self, lab: LabHandle, intent: Intent) -> Liveness:
        del lab, intent
        return Liveness("running", "recorded")

    def shell(self, name: str) -> RecordedShell:
        return self._shells.setdefault(name, RecordedShell(name, *self._answers))

    def machine(self, lab: LabHandle, intent: Intent, name: str) -> NetnsMachine:
        del lab, intent
        return cast(NetnsMachine, self.shell(name))

    def probe(
        self,
        lab: LabHandle,
        intent: Intent,
        probes: Sequence[Probe],
        settings: ProbeSettings,
        progress: Callable[[int], None],
    ) -> Mapping[int, Outcome]:
        del lab, intent, settings, progress
        return {probe.key: self._outcome(probe) for probe in probes}

    def _outcome(self, probe: Probe) -> Outcome:
        key = probe_key(probe)
        every = self._recording.outcomes.get(key)
        assert every, f"no probe '{key}' was recorded"
        entry = every[min(self._times[key], len(every) - 1)]
        self._times[key] += 1
        lists = {name: tuple(entry[name]) for name in ("backends", "other_sources")}
        return Outcome(**{**entry, **lists, "key": probe.key})

    def capture(  # noqa: PLR0913, PLR0917  the interface's signature
        self,
        lab: LabHandle,
        intent: Intent,
        taps: Sequence[Tap],
        limit: int,
        during: Callable[[], None],
        deadline: Deadline,
    ) -> tuple[Taken, ...]:
        del lab, intent, limit, deadline
        during()
        recorded = self._recording.captures
        entries = recorded[min(self._captured, len(recorded) - 1)]
        self._captured += 1
        by_tap = {taken.tap: taken for taken in map(_taken, entries)}
        return tuple(by_tap.get(tap, Taken(tap, (), trouble="not recorded")) for tap in taps)

    def trace_kernel(  # noqa: PLR0913, PLR0917  the interface's signature
        self,
        lab: LabHandle,
        intent: Intent,
        places: Mapping[str, Sequence[RouteQuestion]],
        flow: TracedFlow,
        during: Callable[[], None],
        deadline: Deadline,
    ) -> tuple[KernelTrace, ...]:
        del lab, intent, flow, deadline
        during()
        recorded = self._recording.traces
        entries = recorded[min(self._traced, len(recorded) - 1)]
        self._traced += 1
        by_place = {entry["place"]: entry for entry in entries}
        return tuple(
            _said(by_place[place], questions)
            for place, questions in places.items()
            if place in by_place
        )

    def gateway_holders(self, lab: LabHandle, intent: Intent) -> Mapping[str, Sequence[str]]:
        del lab, intent
        return self._recording.holders

    def logs(
        self, lab: LabHandle, intent: Intent, asked: Collection[str], deadline: Deadline
    ) -> Iterator[Evidence]:
        del lab, intent, asked, deadline
        for path, text in self._recording.logs.items():
            yield Evidence(path, text.encode())

    @contextmanager
    def instead_of_kernel(self) -> Iterator[None]:
        """In the block, namespaces and their second copy are the recorded ones."""
        names = {*self._copy, *self._recording.copy}
        copied = {name: RecordedShell(name, self._recording.copy, self._copy) for name in names}

        def output(command: Sequence[str], name: str, *, pod: bool) -> Completed:
            del pod
            return copied[name].run(command, Deadline(1))

        def isolated(_: str, function: Callable[[], Any], *__: object) -> Any:
            return function()

        steps = ("_make_namespaces", "_load_rulesets", "_start_responder", "_await_links")
        nothing = dict.fromkeys(steps, lambda *_: None)
        with (
            patch("lab.providers.netns.holders.enter_holder", lambda _: None),
            patch.multiple(bring_up.NetnsBringUp, **nothing),
            patch.multiple(
                bring_up,
                call_isolated=isolated,
                _capture_output=output,
                NetnsMachine=lambda name, *_: self.shell(name),
            ),
        ):
            yield


@dataclass
class ReplayedLab:
    """What ``explain_cell`` uses of an open lab."""

    name: str
    plan: Plan
    intent: Intent
    limits: tuple[Limit, ...]
    provider: ReplayedProvider
    since: float
    handle: LabHandle = field(default_factory=lambda: LabHandle("lab", Path("/nowhere"), "token"))

    def in_use(self, *_: object, **__: object) -> AbstractContextManager[None]:
        return nullcontext()

    def require_running(self, *, healthy: bool = True) -> None:
        pass

    def last_success(self) -> float:
        return self.since


@dataclass
class RecordedScenario:
    """The recordings of one scenario, what its healthy lab answered, and the second copy of it."""

    name: str
    healthy: Places
    copy: Places
    recordings: list[Recording]

    def compiled(self) -> Compiled:
        return compile_scenario(self.name)


_PLACES = ("places", "copy")
"""The fields of a recording that have answers of shells."""


def pack(scenario: RecordedScenario) -> Any:
    """The scenario as data for JSON."""
    pool = TextPool()
    recordings = [
        {**vars(recording), **{name: pool.packed(getattr(recording, name)) for name in _PLACES}}
        for recording in scenario.recordings
    ]
    return {
        "healthy": pool.packed(scenario.healthy),
        "copy": pool.packed(scenario.copy),
        "recordings": recordings,
        "texts": pool.texts,
    }


def stored(content: Any, name: str) -> RecordedScenario:
    """The scenario that :func:`pack` has packed."""
    pool = TextPool(content["texts"])
    recordings = [
        Recording(**{**recording, **{name: pool.unpacked(recording[name]) for name in _PLACES}})
        for recording in content["recordings"]
    ]
    healthy, copy = (pool.unpacked(content[part]) for part in ("healthy", "copy"))
    return RecordedScenario(name, healthy, copy, recordings)


def read(path: Path) -> RecordedScenario:
    return stored(read_packed(path), path.name.partition(".")[0])


@contextmanager
def replayed(
    scenario: RecordedScenario, compiled: Compiled, recording: Recording
) -> Iterator[ReplayedLab]:
    """A lab that answers from the beginning of a recording, in the block."""
    provider = ReplayedProvider(recording, scenario.healthy, scenario.copy)
    plan, intent, limits = compiled.plan, compiled.intent, compiled.limits
    with provider.instead_of_kernel():
        yield ReplayedLab(scenario.name, plan, intent, limits, provider, recording.worked)


def replay(scenario: RecordedScenario, compiled: Compiled, recording: Recording) -> Explanation:
    """The answer of ``lab explain`` today to what was recorded."""
    source, target, protocol, size = recording.question
    question = ExplainQuestion(source, target, protocol, size)
    with replayed(scenario, compiled, recording) as lab:
        return explain_cell(cast(OpenLab, lab), question, lambda _: None)


def cause_in_run(lab: ReplayedLab, explanation: Explanation) -> Difference | None:
    """The cause that a run of the matrix gives the cell, if it is the only one that failed."""
    one = explanation
    result = CellResult(one.cell, one.expectation, one.verdict, one.detail, (), False, "")
    with bind_intent(lab) as intent:
        view = BoundLab(lab, intent)
        (result,) = with_causes([result], intent, view.look, view.compare)
        (result,) = with_places(
            [result], intent, view.compare, lambda cell: view.follow(cell, 1), lambda: 0, 1
        )
    return result.finding


def answer_lines(recording: Recording, explanation: Explanation) -> Iterator[str]:
    """An answer as a user may see it, with every finding in its rank."""
    yield f"== {recording.title}; {explanation.cell.id}"
    yield f"{explanation.verdict}, {explanation.failed} of {explanation.times}"
    if explanation.bracket:
        yield f"where: {explanation.bracket.sentence}"
    for number, finding in enumerate(explanation.explained.findings, start=1):
        yield from finding_lines(f"{number}.", finding)
    for heading, findings in (
        ("marginal:", explanation.marginal),
        ("elsewhere:", explanation.elsewhere),
    ):
        for finding in findings:
            yield from finding_lines(heading, finding)
    for line in explanation.logged:
        yield f"logged: {line.path}: {line.match.id}"


def finding_lines(heading: str, finding: Difference) -> Iterator[str]:
    place = finding.place if finding.place == finding.node else f"{finding.place} ({finding.node})"
    yield f"{heading} {finding.fault or finding.kind} at {place}: {finding.object}"
    yield f"   wanted: {finding.intended}"
    yield f"   observed: {finding.observed}"
    yield f"   see: {finding.shows}"
    yield f"   fix: {finding.mends}"


def cause_lines(finding: Difference | None, explanation: Explanation) -> Iterator[str]:
    """The cause that a run names; in one line if it is a finding of the answer, word for word."""
    if finding is None:
        yield "in a run: no cause"
        return
    lines = [*finding_lines("", finding)]
    for number, other in enumerate(explanation.explained.findings, start=1):
        if [*finding_lines("", other)] == lines:
            yield f"in a run: as {number}."
            return
    yield from finding_lines("in a run:", finding)


def answers_text(scenario: RecordedScenario) -> str:
    """The answers to every recording of a scenario."""
    compiled, lines = scenario.compiled(), list[str]()
    for recording in scenario.recordings:
        explanation = replay(scenario, compiled, recording)
        lines += answer_lines(recording, explanation)
        with replayed(scenario, compiled, recording) as lab:
            finding = cause_in_run(lab, explanation)
        lines += [*cause_lines(finding, explanation), ""]
    return "\n".join(lines)
