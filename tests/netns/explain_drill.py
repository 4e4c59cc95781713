"""Put in every fault alone, at random nodes, and score what ``lab explain`` says.

``make explain-drill`` runs it over every scenario; the tests run each fault once. The
explainer gets only a lab and a cell that failed.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from lab._deadline import Deadline
from lab._errors import LabError, did_you_mean
from lab.explain.explanation import Explanation
from lab.explain.faults import registry
from lab.explain.faults.registry import Fault
from lab.facts.command_lines import IN_POD, lab_exec_line
from lab.facts.difference import Difference
from lab.facts.questions import ENTER_POD
from lab.lifecycle.compilation import compile_scenario
from lab.lifecycle.down import down
from lab.lifecycle.explain import ExplainQuestion, explain_cell
from lab.lifecycle.faults import FaultRequest, heal, put_in
from lab.lifecycle.interruption import terminable
from lab.lifecycle.open_lab import OpenLab, open_any
from lab.lifecycle.providers import Providers
from lab.lifecycle.up import CompiledRequest, up
from lab.matrix.cell import Cell
from lab.matrix.cells import cells
from lab.matrix.run import RunPace, run
from lab.matrix.verdict import GREEN
from lab.providers.failover import resolve_gateways
from lab.providers.netns.provider import NetnsProvider
from lab.providers.provider import MACHINES, Outcome, Probe, ProbeSettings
from lab.scenario.loader import find, shipped
from lab.state.store import Store
from lab.suites.running_lab import bind_intent
from lab.topology.intent import Intent

QUICK = RunPace(ProbeSettings(1.0, 256), ProbeSettings(1.5, 128), budget=4.0, settle=0.0)
"""Short timeouts: what fails here stays broken."""
SAMPLE = 32
"""Cells of each family that are tried for one fault."""
HEALTHY = 12
PAIRS = 4


@dataclass(frozen=True)
class Put:
    """A fault and its place."""

    fault: Fault
    node: str
    peer: str

    def __str__(self) -> str:
        return f"{self.fault.name} on {self.node}" + (f", peer {self.peer}" if self.peer else "")


@dataclass(frozen=True)
class Score:
    """The score of one fault, or of several at once."""

    put: tuple[Put, ...]
    cell: str
    said: str
    named: bool
    """Whether the fault and its node were named; if there are several, one of them."""
    healed: bool
    """Whether the same cell passes after the faults are taken out."""
    seconds: float = 0.0
    """Seconds that the explanation took."""
    unfixed: str = ""
    """The advised command, if the cell is still red after it; empty if there is none."""

    @property
    def good(self) -> bool:
        return self.named and self.healed and not self.unfixed


@contextmanager
def brought_up(name: str, directory: Path, of: str = "netns") -> Iterator[OpenLab]:
    """A lab of a scenario, by name or path, with its own journal.

    On system containers it is a cluster of the Linux nodes.
    """
    lab = Path(name).stem
    provider = NetnsProvider() if of == "netns" else Providers()[of]
    real = MACHINES in provider.abilities
    only = "linux" if real else None
    drawn = compile_scenario(name, only, None, provider.pods, real=real)
    path = find(name)
    options = {"only": only, "pods": provider.pods} if real else {}
    with Store(directory) as store:
        wanted = CompiledRequest(
            name=lab,
            scenario_text=path.read_text(encoding="utf-8"),
            scenario_path=str(path),
            plan=drawn.plan,
            intent=drawn.intent,
            command=f"lab up {lab}",
            options=options,
        )
        providers = {of: provider}
        try:
            up(wanted, provider, store, lambda _: None)
            opened = open_any(lab, providers, store)
            with bind_intent(opened) as intent:
                yield replace(opened, intent=intent)
        finally:
            if store.lab(lab) is not None:
                down(lab, providers, store, lambda _: None)


def every_cell(opened: OpenLab) -> tuple[Cell, ...]:
    return cells(opened.plan, opened.intent)


def failures(opened: OpenLab, chosen: Sequence[Cell]) -> list[Cell]:
    """The cells that fail twice; if there are none, those that fail once."""

    def send(probes: Sequence[Probe], settings: ProbeSettings) -> Mapping[int, Outcome]:
        return opened.provider.probe(opened.handle, opened.intent, probes, settings, lambda _: None)

    results = run(chosen, opened.limits, send, time.monotonic, lambda cell: cell.id, pace=QUICK)
    red = [result for result in results if result.verdict not in GREEN]
    twice = [result.cell for result in red if result.verdict != "flaky"]
    return twice or [result.cell for result in red]


def question(cell: Cell) -> ExplainQuestion:
    return ExplainQuestion(cell.source.name, cell.target.name, cell.protocol, cell.size)


def explain_again(opened: OpenLab, cell: Cell) -> Explanation:
    return explain_cell(opened, question(cell), lambda _: None)


def concerned(opened: OpenLab, put: Put) -> set[str]:
    """The machine and the peer, with the nodes of pods, and the machines on hypervisors."""
    pods = {pod.name: machine.name for machine in opened.intent.machines for pod in machine.pods}
    names = {put.node, pods.get(put.peer, put.peer)} - {""}
    return names | {machine for machine, host in opened.intent.hosts() if host in names}


def touches(cell: Cell, names: set[str]) -> int:
    """How many of the machines are at an end of the cell, or are its entry node."""
    ends = {cell.source.node, cell.target.node, cell.entry, cell.source.name, cell.target.name}
    return len(ends & names)


def sample(opened: OpenLab, puts: Sequence[Put], rng: random.Random) -> list[Cell]:
    """``SAMPLE`` cells of each family that involve the machines, those between them first."""
    names = set[str]().union(*(concerned(opened, put) for put in puts))
    peers = {put.peer for put in puts}
    families: dict[str, list[Cell]] = {}
    for cell in every_cell(opened):
        if touches(cell, names) or "router" in names:
            families.setdefault(cell.family, []).append(cell)
    chosen: list[Cell] = []
    for family in families.values():
        rng.shuffle(family)
        family.sort(key=lambda cell: touches(cell, names) < 2 and not peers & set(cell.backends))
        chosen += [*family[: SAMPLE // 2], *rng.sample(family, min(len(family), SAMPLE // 2))]
    return list(dict.fromkeys(chosen))


def as_it_is(opened: OpenLab) -> Intent:
    """The Intent with the current holders of virtual gateways, which faults may have moved."""
    return resolve_gateways(opened.provider, opened.handle, opened.intent)


def choose(fault: Fault, opened: OpenLab, rng: random.Random) -> Put:
    site = rng.choice(registry.sites(fault, as_it_is(opened)))
    return Put(fault, site.node, rng.choice(site.peers) if site.peers else "")


def on_hypervisors(opened: OpenLab, rng: random.Random) -> list[Put]:
    """Every fault that is possible on the scenario's hypervisors, once."""
    names = {hypervisor.name for hypervisor in opened.intent.hypervisors}
    puts = []
    for fault in applicable(opened):
        sites = [site for site in registry.sites(fault, opened.intent) if site.node in names]
        if sites:
            site = rng.choice(sites)
            puts.append(Put(fault, site.node, rng.choice(site.peers) if site.peers else ""))
    return puts


_LOOKS = 3
"""Tries of a cell after its fault is out: neighbours must be resolved again."""
_LEARNED_SECONDS = 20.0
"""For BGP sessions to come up again, with the routes that they bring."""
_NOTICED_SECONDS = 2.0
"""On top of the hold time: BIRD's timers count whole seconds, and the kernel is told after that."""


def hold_seconds(intent: Intent) -> int:
    """After how long a BGP session ends that hears nothing; 0 if there is none."""
    speakers = (machine.speaker for machine in intent.machines if machine.speaker)
    return max((speaker.hold_seconds for speaker in speakers), default=0)


def wait_for_sessions(intent: Intent) -> Iterator[None]:
    """Try until the sessions have ended that hear nothing from now on; without any, no try."""
    hold = hold_seconds(intent)
    return Deadline(hold + _NOTICED_SECONDS).tries(0.5) if hold else iter(())


def judge(opened: OpenLab, puts: Sequence[Put], rng: random.Random) -> Score:
    """Explain a cell that failed while the faults are in, and try it after they are out.

    Where routes are learned it is explained again once the sessions that hear nothing have ended.
    """
    ended = wait_for_sessions(opened.intent)
    broken = failures(opened, sample(opened, puts, rng)) or failures(opened, every_cell(opened))
    concerned_cells = broken or through(opened, puts[0])
    if not concerned_cells:
        heal(opened, lambda _: None)
        return Score(tuple(puts), "none", "nothing, as no cell is concerned", False, True)
    cell = rng.choice(concerned_cells)
    findings, seconds = [], 0.0
    for again in (False, True) if hold_seconds(opened.intent) else (False,):
        for _ in ended if again else ():
            pass
        begun = time.monotonic()
        findings.append(explain_again(opened, cell).finding)
        seconds = max(seconds, time.monotonic() - begun)
    told, unfixed = findings[-1], ""
    if told and broken and len(puts) == 1 and not mends(opened, told, cell):
        unfixed = told.mends
    heal(opened, lambda _: None)
    healed = any(not failures(opened, [cell]) for _ in range(_LOOKS))
    texts = (
        f"{finding.fault or finding.kind} on {finding.node}" if finding else "nothing"
        for finding in findings
    )
    named = all(
        finding is not None and any(names(finding, put) for put in puts) for finding in findings
    )
    text = ", later ".join(dict.fromkeys(texts))
    return Score(tuple(puts), cell.id, text, named, healed, seconds, unfixed)


def mends(opened: OpenLab, told: Difference, cell: Cell) -> bool:
    """Whether the advised command, run where it says, turns the cell green; true for a sentence."""
    if not lab_exec_line(opened.name, told.place, told.mends).startswith("lab exec"):
        return True
    at = told.node if told.mends.startswith(ENTER_POD) else told.place
    machine = opened.provider.machine(opened.handle, opened.intent, at)
    machine.run(("sh", "-c", told.mends.removeprefix(IN_POD)), Deadline(30))
    learned = Deadline(_LEARNED_SECONDS if hold_seconds(opened.intent) else 0)
    looks = chain(range(_LOOKS), learned.tries())
    return any(not failures(opened, [cell]) for _ in looks)


def names(told: Difference, put: Put) -> bool:
    """Whether the finding is the fault, by its name or by its kind of difference."""
    fault = put.fault
    named = told.kind == fault.kind if fault.kind else told.fault == fault.name
    return named and told.node == put.node


def through(opened: OpenLab, put: Put) -> list[Cell]:
    """Cells between the node and others, for faults that only slow things down.

    Cells between pods of the node and of its peer, or of pods and nodes, if the matrix has any;
    else cells from its pods to Services.
    """
    hosts = dict(opened.intent.hosts())
    near = {machine for machine, host in hosts.items() if host == put.node} or {put.node}
    leaving = [
        cell for cell in every_cell(opened) if touches(cell, near) and ends(opened, cell) - near
    ]
    names = concerned(opened, put)
    pods = [cell for cell in leaving if cell.family == "pod-pod"]
    between = [pod for pod in pods if touches(pod, names) > 1]
    plain = pods + [cell for cell in leaving if cell.family == "pod-node"]
    asking = [cell for cell in leaving if cell.family == "pod-service" and cell.source.node in near]
    return between or plain or asking


def ends(opened: OpenLab, cell: Cell) -> set[str]:
    """The machines of the source and of possible backends."""
    pods = {pod.name: machine.name for machine in opened.intent.machines for pod in machine.pods}
    answering = {pods.get(name, name) for name in cell.backends} or {cell.target.node}
    return {cell.source.node, *answering} - {"", None}


def drilled(opened: OpenLab, fault: Fault, rng: random.Random, at: Put | None = None) -> Score:
    put = at or choose(fault, opened, rng)
    put_in(opened, FaultRequest(fault.name, put.node, put.peer), lambda _: None)
    return judge(opened, [put], rng)


def drilled_pair(opened: OpenLab, faults: Sequence[Fault], rng: random.Random) -> Score:
    """Two faults at once, on different nodes, so that they do not change the same objects."""
    first, second = (choose(fault, opened, rng) for fault in rng.sample(faults, 2))
    while second.node == first.node:
        second = choose(rng.choice(faults), opened, rng)
    for put in (first, second):
        request = FaultRequest(put.fault.name, put.node, put.peer)
        put_in(opened, request, lambda _: None)
    return judge(opened, [first, second], rng)


def false_alarms(opened: OpenLab, count: int, rng: random.Random) -> list[str]:
    """Findings for random cells of a healthy lab."""
    alarms = []
    for cell in rng.sample(every_cell(opened), count):
        explanation = explain_again(opened, cell)
        if not explanation.well:
            alarms.append(
                f"{cell.id}: {explanation.verdict}; {explanation.finding or explanation.detail}"
            )
    return alarms


def applicable(opened: OpenLab) -> list[Fault]:
    return [fault for fault in registry.faults().values() if registry.sites(fault, opened.intent)]


@dataclass(frozen=True)
class Drilled:
    """The result of one scenario."""

    line: str
    green: bool
    faults: int
    """How many were put in."""


def drill(opened: OpenLab, rng: random.Random, rounds: int, only: Sequence[str] = ()) -> Drilled:
    """Print the table of one lab; ``only``: the faults to put in, empty for all."""
    faults = [fault for fault in applicable(opened) if not only or fault.name in only]
    alarms = false_alarms(opened, HEALTHY, rng)
    print(f"\n{opened.name}: {len(faults)} faults, {HEALTHY} cells of the healthy lab", flush=True)
    scores = []
    for fault in faults * rounds:
        scores.append(drilled(opened, fault, rng))
        print_score(scores[-1])
    for put in () if only else on_hypervisors(opened, rng):
        scores.append(drilled(opened, put.fault, rng, put))
        print_score(scores[-1])
    pairs = []
    for _ in () if only else range(PAIRS):
        pairs.append(drilled_pair(opened, faults, rng))
        print_score(pairs[-1])
    good = sum(score.good for score in scores)
    both = sum(pair.good for pair in pairs)
    for alarm in alarms:
        print(f"  FALSE ALARM {alarm}", flush=True)
    took = [score.seconds for score in (*scores, *pairs)] or [0.0]
    line = (
        f"{opened.name}: {good} of {len(scores)} faults named, {both} of {len(pairs)} pairs, "
        f"{len(alarms)} false alarms, an explanation in {sum(took) / len(took):.1f} s, "
        f"at most {max(took):.1f} s"
    )
    green = good == len(scores) and both == len(pairs) and not alarms
    return Drilled(line, green, len(scores))


def print_score(score: Score) -> None:
    mark = "ok  " if score.good else "MISS"
    puts = "; ".join(str(put) for put in score.put)
    more = "" if score.healed else "; NOT WELL after heal"
    more += f"; ADVICE does not help: {score.unfixed}" if score.unfixed else ""
    print(
        f"  {mark} {puts:<58} {score.cell:<52} said: {score.said}{more}; {score.seconds:.1f} s",
        flush=True,
    )


def names_of_faults(text: str) -> tuple[str, ...]:
    """The names in an option; raises ArgumentTypeError when there is no such fault."""
    names = tuple(text.replace(",", " ").split())
    if unknown := [name for name in names if name not in registry.faults()]:
        hints = " ".join(did_you_mean(name, registry.faults()) for name in unknown)
        message = f"no such fault: {', '.join(unknown)}. {hints}"
        raise argparse.ArgumentTypeError(message.strip())
    return names


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scenarios", nargs="*", help="all if none is named")
    parser.add_argument("--provider", default="netns", help="whose labs; %(default)s")
    parser.add_argument(
        "--faults", type=names_of_faults, default=(), help="these alone, with spaces or commas"
    )
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--rounds", type=int, default=1, help="times that each fault is put in")
    namespace = parser.parse_args()
    seed = namespace.seed if namespace.seed is not None else random.SystemRandom().randrange(10**6)
    print(f"seed {seed}; the same again: --seed {seed}")
    results = []
    try:
        with terminable():
            for name in namespace.scenarios or shipped():
                rng = random.Random(f"{seed} {name}")
                results.append(
                    scenario(name, rng, namespace.rounds, namespace.provider, namespace.faults)
                )
                print(f"  {results[-1].line}", flush=True)
    except KeyboardInterrupt:
        print("interrupted; its lab is down", flush=True)
        return 130
    green = all(result.green for result in results)
    print("\n" + "\n".join(result.line for result in results))
    if not any(result.faults for result in results):
        print("NO fault was put in")
        return 1
    print("all named, no false alarm" if green else "NOT all named, or a false alarm")
    return 0 if green else 1


def scenario(
    name: str, rng: random.Random, rounds: int, provider: str, only: Sequence[str]
) -> Drilled:
    """Drill one scenario; report it as left out if explain refuses it, as red if it breaks."""
    try:
        with (
            tempfile.TemporaryDirectory() as place,
            brought_up(name, Path(place), provider) as opened,
        ):
            return drill(opened, rng, rounds, only)
    except LabError as error:
        return Drilled(f"{name}: BROKEN, {error}", green=False, faults=0)


if __name__ == "__main__":
    sys.exit(main())
