"""Record what labs of namespaces answer to ``lab explain`` under faults, to answer it again.

    PYTHONPATH=tests .venv/bin/python tests/netns/record_answers.py [--add] [SCENARIO ...]

Writes ``tests/cases/recorded/SCENARIO.json.xz``; ``LAB_REGENERATE=1 pytest
tests/unit/explain/test_recorded_answers.py`` then writes the answers beside it. A recording whose
replay does not give the answer of the lab itself is not kept, and is printed.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from difflib import unified_diff
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

from explain_drill import (
    Put,
    applicable,
    brought_up,
    choose,
    concerned,
    every_cell,
    explain_again,
    failures,
    hold_seconds,
    question,
    sample,
    through,
    wait_for_sessions,
)
from random_faults import compose, is_well, learned, near
from random_faults import put_in as put_in_random
from recorded_answers import Places, note, write_packed
from replayed_labs import (
    RECORDED,
    RecordedScenario,
    Recording,
    answer_lines,
    pack,
    probe_key,
    read,
    replay,
    said_entry,
    stored,
    taken_entry,
)

from lab._deadline import Deadline
from lab.explain.faults import registry
from lab.explain.faults.registry import Fault
from lab.facts.questions import HEAD, STATE_COMMAND, TAIL, command
from lab.lifecycle.compilation import compile_scenario
from lab.lifecycle.faults import FaultRequest, heal, put_in
from lab.lifecycle.interruption import terminable
from lab.lifecycle.open_lab import OpenLab
from lab.matrix.cell import Cell
from lab.providers.capture import KernelTrace, RouteQuestion, Taken, Tap, TracedFlow
from lab.providers.netns import bring_up
from lab.providers.netns.machine import NetnsMachine
from lab.providers.netns.provider import NetnsProvider
from lab.providers.provider import Evidence, LabHandle, Outcome, Probe, ProbeSettings
from lab.scenario.loader import shipped
from lab.shells.shell import Completed
from lab.topology.intent import Intent

SECONDS = 60.0
FURTHER = """
ask a ip -json -details route show table all
ask b ip -json -details rule show
ask c ip -json -details neighbour show nud all
ask d ip -json -details nexthop
ask e bridge -json -details fdb show
ask f bridge -json vlan show
ask g nft -j -s list ruleset
ask h tc -json -details qdisc show
ask i ip -json -details link
ask j ip -json -details route show table main
ask k ip -json neighbour show nud all
ask l ip -json neighbour show proxy
ask m bridge -json fdb show
ask n bridge -json -details link show
ask o tc -json -statistics qdisc show
"""
"""Other forms of what the scripts ask for: a later script may want those, and from j on the random
states of tests/differential are made by them."""
HEALTHY = "nothing is wrong"
LOG_BYTES = 32 << 10
"""Kept of the end of each log."""


@dataclass
class RecordingShell:
    """Runs scripts in a real machine, and notes what each command answered."""

    inner: NetnsMachine
    places: Places

    def run(self, script: Sequence[str], deadline: Deadline) -> Completed:
        done = self.inner.run(script, deadline)
        note(self.places, self.inner.name, script, done)
        return done


class RecordingProvider(NetnsProvider):
    """A provider that notes everything that a lab answers."""

    def __init__(self, recording: Recording) -> None:
        super().__init__()
        self.recording = recording

    def machine(self, lab: LabHandle, intent: Intent, name: str) -> NetnsMachine:
        machine = super().machine(lab, intent, name)
        return cast(NetnsMachine, RecordingShell(machine, self.recording.places))

    def probe(
        self,
        lab: LabHandle,
        intent: Intent,
        probes: Sequence[Probe],
        settings: ProbeSettings,
        progress: Callable[[int], None],
    ) -> Mapping[int, Outcome]:
        outcomes = super().probe(lab, intent, probes, settings, progress)
        for probe in probes:
            entries = self.recording.outcomes.setdefault(probe_key(probe), [])
            entries.append(asdict(outcomes[probe.key]))
        return outcomes

    def capture(  # noqa: PLR0913, PLR0917  the interface's signature
        self,
        lab: LabHandle,
        intent: Intent,
        taps: Sequence[Tap],
        limit: int,
        during: Callable[[], None],
        deadline: Deadline,
    ) -> tuple[Taken, ...]:
        taken = super().capture(lab, intent, taps, limit, during, deadline)
        self.recording.captures.append([taken_entry(one) for one in taken])
        return taken

    def trace_kernel(  # noqa: PLR0913, PLR0917  the interface's signature
        self,
        lab: LabHandle,
        intent: Intent,
        places: Mapping[str, Sequence[RouteQuestion]],
        flow: TracedFlow,
        during: Callable[[], None],
        deadline: Deadline,
    ) -> tuple[KernelTrace, ...]:
        reports = super().trace_kernel(lab, intent, places, flow, during, deadline)
        self.recording.traces.append([said_entry(one) for one in reports])
        return reports

    def gateway_holders(self, lab: LabHandle, intent: Intent) -> Mapping[str, Sequence[str]]:
        holders = super().gateway_holders(lab, intent)
        self.recording.holders = {node: [*names] for node, names in holders.items()}
        return holders

    def logs(
        self, lab: LabHandle, intent: Intent, asked: Collection[str], deadline: Deadline
    ) -> Iterator[Evidence]:
        for piece in super().logs(lab, intent, asked, deadline):
            text = piece.content[-LOG_BYTES:].decode(errors="replace")
            self.recording.logs[piece.path] = text
            yield Evidence(piece.path, text.encode())

    @contextmanager
    def noting(self) -> Iterator[None]:
        """In the block, what the comparison of states asks of namespaces is noted, too."""
        isolated = bring_up.call_isolated

        def noted(*parts: Any) -> Any:
            made: Mapping[str, Completed] = isolated(*parts)
            for place, done in made.items():
                note(self.recording.copy, place, STATE_COMMAND, done)
            return made

        def machine(*parts: Any) -> RecordingShell:
            return RecordingShell(NetnsMachine(*parts), self.recording.places)

        with patch.multiple(bring_up, call_isolated=noted, NetnsMachine=machine):
            yield


def every_place(intent: Intent) -> Iterator[tuple[str, str]]:
    """Each machine and pod, with the machine that it is on."""
    for machine in intent.everything():
        yield machine.name, machine.name
        for pod in machine.pods:
            yield pod.name, machine.name


def look_at(opened: OpenLab, places: Collection[str]) -> Places:
    """What every script of ``lab/facts`` is answered in the places."""
    pods = {place for place, machine in every_place(opened.intent) if place != machine}
    found: Places = {}
    for place in places:
        shell = RecordingShell(
            cast(NetnsMachine, opened.provider.machine(opened.handle, opened.intent, place)), found
        )
        shell.run(command("pod" if place in pods else "namespace"), Deadline(SECONDS))
        shell.run(STATE_COMMAND, Deadline(SECONDS))
        shell.run(("sh", "-c", HEAD + FURTHER + TAIL), Deadline(SECONDS))
    return found


@dataclass
class ScenarioRecorder:
    """Records one scenario's lab."""

    opened: OpenLab
    rng: random.Random
    kept: RecordedScenario
    refused: list[str] = field(default_factory=list)

    @property
    def path(self) -> Path:
        return RECORDED / f"{self.kept.name}.json.xz"

    def healthy(self) -> None:
        """What the healthy lab and its second copy answer."""
        opened, names = self.opened, [place for place, _ in every_place(self.opened.intent)]
        self.kept.healthy |= look_at(opened, names)
        provider = RecordingProvider(Recording("", [], 0))
        with provider.noting():
            provider.deviations(opened.handle, opened.intent, names, Deadline(SECONDS))
        self.kept.copy |= provider.recording.copy

    def record(self, title: str, cell: Cell, near_places: Collection[str]) -> None:
        """Explain a cell; keep it if the replay gives the same answer.

        Also what its places answer to all scripts: another revision may ask them for more.
        """
        asked = question(cell)
        words = [asked.source, asked.target or "", asked.protocol or "", asked.size or ""]
        recording = Recording(title, words, self.opened.last_success())
        provider = RecordingProvider(recording)
        with provider.noting():
            live = explain_again(replace(self.opened, provider=provider), cell)
        further = {*near_places, *recording.places}
        for place, commands in look_at(self.opened, further).items():
            there = recording.places.setdefault(place, {})
            there.update({line: every for line, every in commands.items() if line not in there})
        content = json.dumps(pack(replace(self.kept, recordings=[recording])))
        kept = stored(json.loads(content), self.kept.name)
        again = replay(kept, kept.compiled(), kept.recordings[0])
        said, replayed = ([*answer_lines(recording, one)] for one in (live, again))
        print(f"  {title}; {cell.id}: {said[2:3] or said[1]}", flush=True)
        if said == replayed:
            self.kept.recordings.append(recording)
            write_packed(self.path, pack(self.kept))
        else:
            self.refused.append(title)
            differs = unified_diff(said, replayed, "lab", "replay", lineterm="")
            print("    REFUSED: the replay differs", *differs, sep="\n    ", flush=True)

    def healthy_cells(self, number: int) -> None:
        for cell in self.rng.sample(every_cell(self.opened), number):
            self.record(HEALTHY, cell, ())

    def fault(self, fault: Fault) -> None:
        put, routes = choose(fault, self.opened, self.rng), learned(self.opened)
        put_in(self.opened, FaultRequest(fault.name, put.node, put.peer), lambda _: None)
        ended = wait_for_sessions(self.opened.intent)
        try:
            cells = sample(self.opened, [put], self.rng)
            broken = failures(self.opened, cells) or failures(self.opened, every_cell(self.opened))
            concerned_cells = broken or through(self.opened, put)
            if concerned_cells:
                cell = self._choose(concerned_cells)
                self.record(str(put), cell, self._near(put))
                for _ in ended:
                    pass
                if learned(self.opened) != routes and failures(self.opened, [cell]):
                    self.record(f"{put}, its sessions have ended", cell, self._near(put))
        finally:
            heal(self.opened, lambda _: None)
        if broken and not is_well(self.opened, [self._choose(broken)]):
            print(f"  {put}: NOT WELL after it", flush=True)

    def random_fault(self) -> None:
        fault = compose(self.opened, self.rng)
        cells = near(self.opened, [fault], self.rng)
        with put_in_random(self.opened, fault) as done:
            red = failures(self.opened, cells) if done and cells else []
            if red:
                self.record(str(fault), self._choose(red), {fault.place, fault.machine})
        is_well(self.opened, red)

    def _near(self, put: Put) -> set[str]:
        machines = concerned(self.opened, put)
        return {
            place
            for place, machine in every_place(self.opened.intent)
            if place in machines | {put.peer}
        }

    def _choose(self, cells: Sequence[Cell]) -> Cell:
        """A cell with small packets, if there is one: their frames are kept."""
        small = [cell for cell in cells if cell.size == "small" and not cell.min_throughput]
        return self.rng.choice(small or cells)


def choose_faults(names: Sequence[str], each: int) -> Mapping[str, Sequence[str]]:
    """So many faults of the catalogue for each scenario, each fault about equally often.

    A card that is down wherever routes are learned: it ends BGP sessions.
    """
    intents = {name: compile_scenario(name).intent for name in names}
    chosen = {name: ["node-link-down"] * bool(hold_seconds(intents[name])) for name in names}
    times = Counter(fault for faults in chosen.values() for fault in faults)
    for _ in range(each):
        for name, faults in chosen.items():
            if len(faults) == each:
                continue
            possible = [
                fault.name
                for fault in registry.faults().values()
                if fault.name not in faults and registry.sites(fault, intents[name])
            ]
            if possible:
                faults.append(min(possible, key=lambda one: times[one]))
                times[faults[-1]] += 1
    return chosen


def record_scenario(kept: RecordedScenario, seed: int, faults: Sequence[str], randoms: int) -> None:
    """Record what is not recorded yet: a healthy cell, the faults, and so many random ones."""
    name, rng = kept.name, random.Random(f"{seed} {kept.name} {len(kept.recordings)}")
    recorded = [recording.title.partition(" on ")[0] for recording in kept.recordings]
    randoms -= sum(title not in {HEALTHY, *registry.faults()} for title in recorded)
    with tempfile.TemporaryDirectory() as place, brought_up(name, Path(place)) as opened:
        recorder = ScenarioRecorder(opened, rng, kept)
        recorder.healthy()
        recorder.healthy_cells(HEALTHY not in recorded)
        for fault in applicable(opened):
            if fault.name in faults and fault.name not in recorded:
                recorder.fault(fault)
        for _ in range(randoms):
            recorder.random_fault()
    print(
        f"{name}: {len(kept.recordings)} recordings, {len(recorder.refused)} refused, "
        f"{recorder.path.stat().st_size:,} bytes",
        flush=True,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scenarios", nargs="*", help="all if none is named")
    parser.add_argument("--add", action="store_true", help="go on where an earlier call was ended")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", default="", help="these alone, with spaces between")
    parser.add_argument("--each", type=int, default=10, help="faults of each scenario")
    parser.add_argument("--randoms", type=int, default=3, help="random faults of each scenario")
    asked = parser.parse_args()
    chosen = choose_faults(shipped(), asked.each)
    try:
        with terminable():
            for name in asked.scenarios or shipped():
                _record_or_go_on(name, asked, chosen[name])
    except KeyboardInterrupt:
        print("interrupted; its lab is down; --add goes on", flush=True)
        return 130
    return 0


def _record_or_go_on(name: str, asked: argparse.Namespace, chosen: Sequence[str]) -> None:
    path = RECORDED / f"{name}.json.xz"
    goes_on = asked.add and path.exists()
    kept = read(path) if goes_on else RecordedScenario(name, {}, {}, [])
    record_scenario(kept, asked.seed, asked.faults.split() or chosen, asked.randoms)


if __name__ == "__main__":
    sys.exit(main())
