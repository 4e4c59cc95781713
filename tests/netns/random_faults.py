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
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, cast, get_args

from explain_drill import brought_up, every_cell, explain_again, failures
from fault_primitives import RESTART, RandomFault, compose, run_at

from lab._deadline import Deadline
from lab._errors import LabError
from lab.explain.question import Explanation
from lab.facts.questions import ENTER_POD
from lab.lifecycle.interruption import terminable
from lab.lifecycle.session import OpenLab
from lab.matrix.cell import Cell
from lab.matrix.verdict import IN_POD, Finding, by_hand
from lab.providers.netns import daemons, holders
from lab.providers.netns.compile import configuration
from lab.providers.netns.provider import NetnsProvider
from lab.scenario.loader import shipped

SAMPLE = 16
"""Cells of each family that are tried for one fault."""
Judged = Literal["named", "right machine", "wrongly accused", "nothing"]


def run_in(opened: OpenLab, place: str, command: str) -> bool:
    if command == RESTART:
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
    ends = {one.place for one in faults} | {one.machine for one in faults}
    families: dict[str, list[Cell]] = {}
    for cell in every_cell(opened):
        if ends & {cell.source.name, cell.target.name, cell.source.node, cell.target.node}:
            families.setdefault(cell.family, []).append(cell)
    return [
        cell for there in families.values() for cell in rng.sample(there, min(len(there), SAMPLE))
    ]


def judged(fault: RandomFault, found: Explanation) -> Judged:
    finding = found.finding
    if finding is None:
        return "nothing"
    said = f"{finding.object} {finding.intended} {finding.observed} {finding.mends}"
    at = {finding.place, finding.node}
    if fault.place in at and any(name in said for name in fault.names):
        return "named"
    return "right machine" if finding.node == fault.machine else "wrongly accused"


def bracketed(fault: RandomFault, found: Explanation) -> bool:
    """Whether the two points enclose the place, hook and way of the injector's record.

    A fault that acts later must be at the bracket, or be passed before the loss.
    """
    bracket = found.bracket
    if bracket is None:
        return False
    last, missing, change = bracket.last, bracket.missing, bracket.change
    points = {one.tap.place for one in (last, missing) if one}
    if fault.later:
        changed = {one.tap.place for one in (change.last, change.first) if one} if change else set()
        return fault.place in points | changed or (not change and fault.place in bracket.before)
    if not fault.hook:  # of a device, a cable has two ends
        return fault.place in points | bracket.next
    # a pod that is not ready: its Service has no endpoint, and refuses
    unready = fault.place in found.cell.backends and "'port unreachable'" in bracket.sentence
    if fault.place not in points or (fault.way == "question" and bracket.answer):
        return unready
    arrived = last is not None and (last.tap.place, last.passing) == (fault.place, "in")
    unsent = missing is not None and (missing.tap.place, missing.passing) == (fault.place, "out")
    if arrived and unsent:
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
    advice: Finding | None = None
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


def score(opened: OpenLab, fault: RandomFault, cell: Cell) -> Scored:
    """Score the explanation of a cell that the fault has turned red."""
    begun = time.monotonic()
    found = explain_again(opened, cell)
    seconds, finding = time.monotonic() - begun, found.finding
    said = f"{finding.node}: {finding.object}: {finding.observed}" if finding else "nothing"
    where = found.bracket.sentence if found.bracket else "no bracket"
    if found.verdict in {"pass", "known-limit"}:
        return Scored(fault, "comes and goes", cell.id, seconds=seconds)
    verdict, right = judged(fault, found), bracketed(fault, found)
    advice = finding if verdict == "named" else None
    said = f"{cell.id}: {said}\n      where: {where}"
    return Scored(fault, verdict, said, right, seconds, advice, "kernel" in found.witnesses)


def tried(opened: OpenLab, scored: Scored, cell: Cell) -> Scored:
    """With whether the advised command, run where it says, turns the cell green."""
    advice = scored.advice
    if advice is None or not by_hand(opened.name, advice.place, advice.mends).startswith(
        "lab exec"
    ):
        return scored
    at = advice.node if advice.mends.startswith(ENTER_POD) else advice.place
    run_in(opened, at, advice.mends.removeprefix(IN_POD))
    return replace(scored, mended=is_well(opened, [cell]))


def single(opened: OpenLab, fault: RandomFault, rng: random.Random) -> Iterator[Scored]:
    """Put a fault in, explain a cell that it turns red, and take it out."""
    cells = near(opened, [fault], rng)
    with put_in(opened, fault) as done:
        if not done:
            yield Scored(fault, "refused")
            return
        red = failures(opened, cells)
        if not red:
            yield Scored(fault, "no red cell")
            return
        cell = rng.choice(red)
        scored = tried(opened, score(opened, fault, cell), cell)
    concerned = cells if opened.intent.kubernetes else [cell]
    yield scored if is_well(opened, concerned) else Scored(fault, "not well after", scored.said)


def pair(opened: OpenLab, faults: Sequence[RandomFault], rng: random.Random) -> Iterator[Scored]:
    """Put in two faults at once, and explain for each a cell that only it turns red."""
    cells = near(opened, faults, rng)
    reds = []
    for fault in faults:
        with put_in(opened, fault) as done:
            reds.append(failures(opened, cells) if done else [])
        if not is_well(opened, reds[-1]):
            yield Scored(fault, "not well after")
            return
    with put_in(opened, faults[0]), put_in(opened, faults[1]):
        for fault, own, other in zip(faults, reds, reversed(reds), strict=True):
            alone = [cell for cell in own if cell not in other]
            if alone:
                yield score(opened, fault, rng.choice(alone))
            else:
                yield Scored(fault, "no cell of its own")


_LOOKS = 3
_RESTART_SECONDS = 60.0
"""On a cluster: for the kubelet to start a container again that has ended several times."""


def is_well(opened: OpenLab, cells: Sequence[Cell]) -> bool:
    """Whether the cells pass again, with retries: neighbours must be resolved again."""
    ends = time.monotonic() + _RESTART_SECONDS * (opened.intent.kubernetes is not None)
    looks = 0
    while looks < _LOOKS or time.monotonic() < ends:
        if not failures(opened, cells):
            return True
        looks += 1
    return False


def drill(opened: OpenLab, count: int, seconds: float, rng: random.Random) -> Counter[str]:
    """Put in ``count`` faults that turn a cell red, one after another, and print each result."""
    counts: Counter[str] = Counter()
    ends = time.monotonic() + seconds
    while sum(counts[one] for one in get_args(Judged)) < count and time.monotonic() < ends:
        faults = [compose(opened, rng)]
        if rng.random() < 0.2:
            faults.append(compose(opened, rng))
        begun = time.monotonic()
        how = pair(opened, faults, rng) if len(faults) > 1 else single(opened, faults[0], rng)
        try:
            found = list(how)
        except LabError as error:  # the matrix itself could not be probed
            found = [Scored(faults[0], "not judged", str(error))]
        together = " (of two)" if len(faults) > 1 else ""
        for one in found:
            counts[one.verdict] += 1
            counts["bracketed"] += one.counts and one.bracketed
            counts["kernel agrees"] += one.counts and one.heard
            counts["advice worked"] += one.mended is True
            counts["advice failed"] += one.mended is False
            whole = time.monotonic() - begun
            print(f"  {one.verdict:<16} {one.fault}{together}; {whole:.0f} s", flush=True)
            if one.said:
                right = "" if one.bracketed or not one.counts else "; BRACKET"
                right += "; ADVICE" if one.mended is False else ""
                print(f"      said of {one.said}; {one.seconds:.1f} s{right}", flush=True)
                if one.mended is False and one.advice is not None:
                    print(f"      advised: {one.advice.mends}", flush=True)
        if any(one.verdict in {"not well after", "not judged"} for one in found):
            break  # further faults would be judged in a broken lab
    return counts


def drilled(name: str, count: int, seconds: float, seed: str, provider: str) -> Counter[str]:
    """Drill one scenario; bring it up again if a fault could not be taken out."""
    counts: Counter[str] = Counter()
    rng, ends = random.Random(seed), time.monotonic() + seconds
    while sum(counts[one] for one in get_args(Judged)) < count and time.monotonic() < ends:
        with (
            tempfile.TemporaryDirectory() as place,
            brought_up(name, Path(place), provider) as opened,
        ):
            left = count - sum(counts[one] for one in get_args(Judged))
            counts += drill(opened, left, ends - time.monotonic(), rng)
    return counts


def in_words(counts: Counter[str]) -> str:
    return ", ".join(f"{number} {verdict}" for verdict, number in counts.most_common())


def _apart(name: str, count: int, seconds: float, seed: int, provider: str) -> Counter[str]:
    """Drill one scenario in its own process."""
    command = [sys.executable, __file__, "--count", str(count), "--seed", str(seed)]
    command += ["--seconds", str(seconds), "--provider", provider, "--jobs", "0", name]
    last = ""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        for line in child.stdout:
            last = line
            if not line.startswith("{"):
                print(f"{name}: {line}", end="", flush=True)
    try:
        counts = Counter[str](json.loads(last))
    except ValueError:
        return Counter({"broken": 1})
    print(f"{name}: {in_words(counts)}", flush=True)
    return counts


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
    if not asked.jobs:
        with terminable():
            counts = drilled(
                names[0], asked.count, asked.seconds, f"{seed} {names[0]}", asked.provider
            )
        print(json.dumps(counts))
        return 0
    print(f"seed {seed}; the same again: --seed {seed}")
    each = -(-asked.count // len(names))
    at_once = asked.jobs if asked.provider == "netns" else 1
    with ThreadPoolExecutor(at_once) as pool:
        every = pool.map(
            lambda name: _apart(name, each, asked.seconds, seed, asked.provider), names
        )
        counts = sum(every, Counter[str]())
    print(in_words(counts))
    return 0 if counts["named"] == sum(counts[one] for one in get_args(Judged)) else 1


if __name__ == "__main__":
    sys.exit(main())
