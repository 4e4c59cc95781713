"""Random faults that are in no catalogue, and what explain says about each.

``make explain-drill RANDOM=20 SEED=1 SCENARIOS=overlay`` runs it.

The oracle is the matrix before, during and after a fault, and the injector's record of place and
object. Explain knows neither. Of two faults at once, each is judged by a cell that only it breaks.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, cast, get_args

from explain_drill import brought_up, every_cell, explain_again, failures
from fault_primitives import RESTART, RandomFault, Site, run_at
from faults_of_clusters import CLUSTERS
from faults_of_filters import FILTERS
from faults_of_networks import NETWORKS

from lab._deadline import Deadline
from lab._errors import LabError
from lab.explain.explanation import Explanation
from lab.facts.command_lines import IN_POD, lab_exec_line
from lab.facts.difference import Difference
from lab.facts.questions import ENTER_POD
from lab.lifecycle.interruption import terminable
from lab.lifecycle.open_lab import OpenLab
from lab.matrix.cell import Cell
from lab.providers.netns import daemons, holders
from lab.providers.netns.compile import configuration
from lab.providers.netns.provider import NetnsProvider
from lab.scenario.loader import shipped

SAMPLE = 16
"""Cells of each family that are tried for one fault."""
Judged = Literal["named", "right machine", "wrongly accused", "nothing"]


def compose(opened: OpenLab, rng: random.Random) -> RandomFault:
    """One fault at a random place of the lab."""
    machines = [machine for machine in opened.intent.machines if machine.pods]
    kinds = (*FILTERS, *NETWORKS, *(CLUSTERS if opened.intent.kubernetes else ()))
    while True:
        machine = rng.choice(machines)
        pod = rng.choice(machine.pods) if rng.random() < 0.5 else None
        found = rng.choice(kinds)(Site(opened, rng, machine, pod))
        if found is not None:
            return found


def run_in(opened: OpenLab, place: str, command: str) -> bool:
    first, restarts, _ = command.partition(RESTART)
    if restarts:
        if first:
            run_at(opened, place, first.rstrip("; "))
        provider = cast(NetnsProvider, opened.provider)
        configured = configuration(provider.realised(opened.intent))
        deadline = Deadline(30)
        holders.enter_holder(opened.handle).call(
            "starting what answers again",
            lambda _: daemons.start_responder(sys.executable, configured, deadline),
            deadline,
        )
        return True
    return run_at(opened, place, command).code == 0


def near(opened: OpenLab, faults: Sequence[RandomFault], rng: random.Random) -> list[Cell]:
    """Cells of every family that involve the places or their machines."""
    ends = {fault.place for fault in faults} | {fault.machine for fault in faults}
    families: dict[str, list[Cell]] = {}
    for cell in every_cell(opened):
        if ends & {cell.source.name, cell.target.name, cell.source.node, cell.target.node}:
            families.setdefault(cell.family, []).append(cell)
    return [
        cell
        for family in families.values()
        for cell in rng.sample(family, min(len(family), SAMPLE))
    ]


def judged(fault: RandomFault, found: Explanation) -> Judged:
    finding = found.finding
    if finding is None:
        return "nothing"
    text = f"{finding.object} {finding.intended} {finding.observed} {finding.mends}"
    at = {finding.place, finding.node}
    if fault.place in at and any(name in text for name in fault.names):
        return "named"
    return "right machine" if finding.node == fault.machine else "wrongly accused"


def bracketed(fault: RandomFault, found: Explanation, *, routed: bool = True) -> bool:
    """Whether the two points enclose the place, hook and way of the injector's record.

    A fault that acts later must be at the bracket, or be passed before the loss.

    Parameters
    ----------
    fault
        The record.
    found
        What explain says.
    routed
        Whether the machine where the probe was last seen has the routes as before: not if the fault
        keeps routing daemons from each other, and then the probe is lost elsewhere.

    """
    bracket = found.bracket
    if bracket is None or not routed:
        return bracket is not None
    last, missing, change = bracket.last, bracket.missing, bracket.change
    points = {one.tap.place for one in (last, missing) if one} or bracket.loss_places
    if fault.later:
        changed = {one.tap.place for one in (change.last, change.first) if one} if change else set()
        passed = {*bracket.passed_places} if missing else bracket.next_places
        passed |= set() if bracket.answer else {found.cell.source.name}
        return fault.place in points | changed or (not change and fault.place in passed)
    if not fault.hook or not (last or missing):  # of a device, a cable has two ends
        return fault.place in points | bracket.next_places
    # a pod that is not ready: its Service has no endpoint, and refuses
    unready = fault.place in found.cell.backends and "'port unreachable'" in bracket.sentence
    if fault.place not in points or (fault.way == "question" and bracket.answer):
        return unready
    arrived = last is not None and (last.tap.place, last.passing) == (fault.place, "in")
    unsent = missing is not None and (missing.tap.place, missing.passing) == (fault.place, "out")
    if arrived and (unsent or missing is None):
        return True  # the question came, and its answer did not leave
    ends = {"source": fault.place == found.cell.source.name}
    ends["target"] = fault.place in {found.cell.target.name, *found.cell.backends}
    one_end = ends["source"] != ends["target"]
    right = {
        "input": arrived and not (one_end and bracket.answer != ends["source"]),
        "output": unsent and not (one_end and bracket.answer != ends["target"]),
        "prerouting": arrived,
        "postrouting": unsent,
    }
    return right.get(fault.hook, points == {fault.place})


@dataclass(frozen=True)
class Scored:
    """The result of one fault."""

    fault: RandomFault
    verdict: str
    """One of ``Judged``; or why the fault does not count."""
    said: str = ""
    bracketed: bool = False
    seconds: float = 0.0
    """Seconds that the explanation took."""
    advice: Difference | None = None
    """The finding that advises a command to undo the fault."""
    heard: bool = False
    """Whether the kernel reported the fault, too."""
    mended: bool | None = None
    """Whether that command turned the cell green; None if there is none, or it was not tried."""

    @property
    def counts(self) -> bool:
        return self.verdict in get_args(Judged)


@contextmanager
def put_in(opened: OpenLab, fault: RandomFault) -> Iterator[bool]:
    """Put a fault in for the block; yield whether that succeeded."""
    done = run_in(opened, fault.place, fault.do)
    try:
        yield done
    finally:
        run_in(opened, fault.place, fault.undo)
        if " mtu " in fault.do:  # kernels keep what ICMP errors taught for 10 minutes
            for machine in opened.intent.everything():
                for place in (machine.name, *(pod.name for pod in machine.pods)):
                    run_in(opened, place, "ip route flush cache")


def learned(opened: OpenLab) -> Mapping[str, str]:
    """The routes that daemons have learned, of each machine with one."""
    names = [one.name for one in opened.intent.everything() if one.daemons]
    return {one: run_at(opened, one, "ip route show proto bird | sort").stdout for one in names}


def score(opened: OpenLab, fault: RandomFault, cell: Cell, routes: Mapping[str, str]) -> Scored:
    """Score the explanation of a cell that the fault has turned red."""
    begun = time.monotonic()
    again = explain_again(opened, cell)
    seconds, finding = time.monotonic() - begun, again.finding
    text = f"{finding.node}: {finding.object}: {finding.observed}" if finding else "nothing"
    where = again.bracket.sentence if again.bracket else "no bracket"
    if again.verdict in {"pass", "known-limit"}:
        return Scored(fault, "comes and goes", cell.id, seconds=seconds)
    verdict = judged(fault, again)
    last = again.bracket.last.tap.place if again.bracket and again.bracket.last else ""
    routed = last not in routes or learned(opened)[last] == routes[last]
    right = bracketed(fault, again, routed=routed)
    advice = finding if verdict == "named" else None
    text = f"{cell.id}: {text}\n      where: {where}"
    return Scored(fault, verdict, text, right, seconds, advice, "kernel" in again.witnesses)


def tried(opened: OpenLab, scored: Scored, cell: Cell) -> Scored:
    """With whether the advised command, run where it says, turns the cell green."""
    advice = scored.advice
    if advice is None or not lab_exec_line(opened.name, advice.place, advice.mends).startswith(
        "lab exec"
    ):
        return scored
    at = advice.node if advice.mends.startswith(ENTER_POD) else advice.place
    run_in(opened, at, advice.mends.removeprefix(IN_POD))
    return replace(scored, mended=is_well(opened, [cell]))


def single(opened: OpenLab, fault: RandomFault, rng: random.Random) -> Iterator[Scored]:
    """Put a fault in, explain a cell that it turns red, and take it out."""
    cells, routes = near(opened, [fault], rng), learned(opened)
    if routes and not is_well(opened, cells):  # daemons take their time
        yield Scored(fault, "not well before")
        return
    with put_in(opened, fault) as done:
        if not done:
            yield Scored(fault, "refused")
            return
        red = failures(opened, cells) if cells else []
        if not red:
            yield Scored(fault, "no red cell")
            return
        cell = rng.choice(red)
        scored = tried(opened, score(opened, fault, cell, routes), cell)
    concerned = cells if opened.intent.kubernetes else [cell]
    yield scored if is_well(opened, concerned) else Scored(fault, "not well after", scored.said)


def pair(opened: OpenLab, faults: Sequence[RandomFault], rng: random.Random) -> Iterator[Scored]:
    """Put in two faults at once, and explain for each a cell that only it turns red."""
    cells, routes = near(opened, faults, rng), learned(opened)
    reds = []
    for fault in faults:
        if routes and not is_well(opened, cells):
            yield Scored(fault, "not well before")
            return
        with put_in(opened, fault) as done:
            reds.append(failures(opened, cells) if done and cells else [])
        if not is_well(opened, reds[-1]):
            yield Scored(fault, "not well after")
            return
    with put_in(opened, faults[0]), put_in(opened, faults[1]):
        for fault, own, other in zip(faults, reds, reversed(reds), strict=True):
            alone = [cell for cell in own if cell not in other]
            if alone:
                yield score(opened, fault, rng.choice(alone), routes)
            else:
                yield Scored(fault, "no cell of its own")


_KEPT = (
    "ip -4 route show table all | grep -v 'proto bird\\|proto kernel' | sort; ip rule; "
    "bridge link; bridge fdb show | grep static; ip -4 neighbour show nud permanent | sort; "
    "nft list tables; ipset list -n; ip -o link | grep -o ' mtu [0-9]*'"
)


def is_as_before(opened: OpenLab, faults: Sequence[RandomFault], before: Sequence[str]) -> bool:
    """Whether undoing the faults has left nothing else behind in their places."""
    return before == [run_at(opened, fault.place, _KEPT).stdout for fault in faults]


_LOOKS = 3
_RESTART_SECONDS = 60.0
"""On a cluster: for the kubelet to start a container again that has ended several times."""


def is_well(opened: OpenLab, cells: Sequence[Cell]) -> bool:
    """Whether the cells pass again, with retries: neighbours must be resolved again."""
    ends = time.monotonic() + _RESTART_SECONDS * (opened.intent.kubernetes is not None)
    looks = 0
    while looks < _LOOKS or time.monotonic() < ends:
        if not cells or not failures(opened, cells):
            return True
        looks += 1
    return False


@dataclass
class Tally:
    """The results of many faults."""

    counts: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    """How long each explanation took."""

    @property
    def counted(self) -> int:
        return sum(self.counts[one] for one in get_args(Judged))

    def add(self, one: Scored) -> None:
        self.counts[one.verdict] += 1
        self.counts["advice worked"] += one.mended is True
        self.counts["advice failed"] += one.mended is False
        if one.counts:
            self.counts["bracketed"] += one.bracketed
            self.counts["kernel agrees"] += one.heard
            self.seconds.append(one.seconds)

    def __add__(self, other: Tally) -> Tally:
        return Tally(self.counts + other.counts, self.seconds + other.seconds)

    def __str__(self) -> str:
        first = (*get_args(Judged), "bracketed", "kernel agrees", "advice worked", "advice failed")
        of_all = ", ".join(f"{self.counts[one]} {one}" for one in first)
        rest = [(verdict, n) for verdict, n in self.counts.most_common() if verdict not in first]
        took = sorted(self.seconds) or [0.0]
        left_out = ", ".join(f"{number} {verdict}" for verdict, number in rest if number)
        return (
            f"{self.counted} counted: {of_all}; an explanation in {took[len(took) // 2]:.1f} s, "
            f"at most {took[-1]:.1f} s; not counted: {left_out or 'none'}"
        )


def drill(opened: OpenLab, count: int, seconds: float, rng: random.Random) -> Tally:
    """Put in ``count`` faults that turn a cell red, one after another, and print each result."""
    tally = Tally()
    ends = time.monotonic() + seconds
    while tally.counted < count and time.monotonic() < ends:
        faults = [compose(opened, rng)]
        if rng.random() < 0.2:
            faults.append(compose(opened, rng))
        begun = time.monotonic()
        before = [run_at(opened, fault.place, _KEPT).stdout for fault in faults]
        how = pair(opened, faults, rng) if len(faults) > 1 else single(opened, faults[0], rng)
        try:
            found = list(how)
        except LabError as error:  # the matrix itself could not be probed
            found = [Scored(faults[0], "not judged", str(error))]
        together = " (of two)" if len(faults) > 1 else ""
        for one in found:
            tally.add(one)
            whole = time.monotonic() - begun
            print(f"  {one.verdict:<16} {one.fault}{together}; {whole:.0f} s", flush=True)
            if one.said:
                right = "" if one.bracketed or not one.counts else "; BRACKET"
                right += "; ADVICE" if one.mended is False else ""
                print(f"      said of {one.said}; {one.seconds:.1f} s{right}", flush=True)
                if one.mended is False and one.advice is not None:
                    print(f"      advised: {one.advice.mends}", flush=True)
        if any(one.verdict in {"not well before", "not well after", "not judged"} for one in found):
            break  # further faults would be judged in a broken lab
        if not opened.intent.kubernetes and not is_as_before(opened, faults, before):
            print("  the lab is made anew: not as before", flush=True)
            break
    return tally


def drilled(name: str, count: int, seconds: float, seed: str, provider: str) -> Tally:
    """Drill one scenario; bring it up again if a fault could not be taken out."""
    tally = Tally()
    rng, ends = random.Random(seed), time.monotonic() + seconds
    while tally.counted < count and time.monotonic() < ends:
        with (
            tempfile.TemporaryDirectory() as place,
            brought_up(name, Path(place), provider) as opened,
        ):
            tally += drill(opened, count - tally.counted, ends - time.monotonic(), rng)
    return tally


def _apart(
    name: str, asked: argparse.Namespace, count: int, seed: int, children: list[subprocess.Popen]
) -> Tally:
    """Drill one scenario in its own process, which is added to ``children``."""
    command = [sys.executable, __file__, "--count", str(count), "--seed", str(seed)]
    command += ["--seconds", str(asked.seconds), "--provider", asked.provider, "--jobs", "0", name]
    last = ""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        children.append(child)
        assert child.stdout is not None
        for line in child.stdout:
            last = line
            if not line.startswith("{"):
                print(f"{name}: {line}", end="", flush=True)
    try:
        document = json.loads(last)
    except ValueError:
        return Tally(Counter({"broken": 1}))
    tally = Tally(Counter(document["counts"]), document["seconds"])
    print(f"{name}: {tally}", flush=True)
    return tally


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scenarios", nargs="*", help="all if none is named")
    parser.add_argument("--count", type=int, default=20, help="faults that turn a cell red")
    parser.add_argument("--seconds", type=float, default=3600, help="for each scenario")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--jobs", type=int, default=3, help="scenarios at once")
    parser.add_argument("--provider", default="netns", help="whose labs; %(default)s")
    asked = parser.parse_args()
    seed = asked.seed if asked.seed is not None else random.SystemRandom().randrange(10**6)
    names = asked.scenarios or shipped()
    try:
        with terminable():
            if not asked.jobs:
                tally = drilled(
                    names[0], asked.count, asked.seconds, f"{seed} {names[0]}", asked.provider
                )
                print(json.dumps({"counts": dict(tally.counts), "seconds": tally.seconds}))
                return 0
            print(f"seed {seed}; the same again: --seed {seed}", flush=True)
            tally = _every(names, asked, seed)
    except KeyboardInterrupt:
        print("interrupted; its lab is down", flush=True)
        return 130
    print(tally)
    return 0 if tally.counts["named"] == tally.counted > 0 else 1


def _every(names: Sequence[str], asked: argparse.Namespace, seed: int) -> Tally:
    """Drill all scenarios, some at once; what ends this ends all of them."""
    each = -(-asked.count // len(names))
    children: list[subprocess.Popen] = []
    with ThreadPoolExecutor(asked.jobs if asked.provider == "netns" else 1) as pool:
        try:
            every = pool.map(lambda name: _apart(name, asked, each, seed, children), names)
            return sum(every, Tally())
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            for child in children:
                child.terminate()
            raise


if __name__ == "__main__":
    sys.exit(main())
