"""Runs of scenario overlay as the product judges them: healthy, a dead node, an MTU hole, mixed."""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Literal

from lab.facts.difference import Difference
from lab.matrix.assertion import AssertionResult, AssertionVerdict
from lab.matrix.cell import Cell
from lab.matrix.cells import cells
from lab.matrix.failover import Failover, Turn
from lab.matrix.judge import expect, judge
from lab.matrix.sampling import Coverage, Part
from lab.matrix.verdict import CellResult, RunResult
from lab.plan.plan import Plan
from lab.plan.planner import make_plan
from lab.providers.failover import Silence
from lab.providers.provider import Outcome
from lab.scenario.loader import find, load
from lab.scenario.scenario import Limit, NodeGroup, Services
from lab.scenario.terms import Family
from lab.topology import registry
from lab.topology.intent import Intent

Trouble = Literal["healthy", "dead-node", "mtu-hole", "mixed"]
Status = Literal["ok", "timeout", "error"]
Attempts = tuple[Status, Status]
RULE = "WIN-NODEPORT-SELF"
"""The one known limit of these runs."""
FIVE = ("master", "worker1", "worker2", "win1", "win2")


def many_nodes(count: int) -> tuple[str, ...]:
    return tuple(f"{'worker' if n % 3 else 'win'}{n}" for n in range(1, count + 1))


@cache
def made_lab(nodes: tuple[str, ...], pods: int) -> tuple[Plan, Intent, Sequence[Limit]]:
    groups = tuple(
        NodeGroup(
            name=name,
            os="windows" if name.startswith("win") else "linux",
            role="worker" if place else "control-plane",
        )
        for place, name in enumerate(nodes)
    )
    scenario = load(find("overlay"))
    plan = make_plan(scenario.replace(nodes=groups, pods_per_node=pods, services=Services()))
    limits = [limit for limit in registry.limits(plan) if limit.id == RULE]
    return plan, replace(registry.intent(plan), kubernetes=None), limits


def intent_of(nodes: tuple[str, ...] = FIVE, pods: int = 2) -> Intent:
    return made_lab(nodes, pods)[1]


def made_assertion(verdict: AssertionVerdict, place: str = "worker1") -> AssertionResult:
    detail = "" if verdict == "pass" else "exit 1 instead of 0"
    repeat = f"lab test overlay -k assertions/forwarding/{place}"
    return AssertionResult("forwarding", place, ("cat", "/a b"), verdict, detail, 0.25, repeat)


def made_run(
    trouble: Trouble,
    nodes: tuple[str, ...] = FIVE,
    pods: int = 2,
    seed: int = 1,
    families: tuple[Family, ...] | None = None,
) -> RunResult:
    plan, intent, limits = made_lab(nodes, pods)
    rng = random.Random(seed)
    chosen = [cell for cell in cells(plan, intent) if not families or cell.family in families]
    windows = tuple(name for name in nodes if name.startswith("win"))
    return RunResult(
        run="20261121-101500-7f3a",
        lab="overlay",
        scenario=plan.scenario,
        summary=plan.summary,
        topology=plan.topology,
        provider="netns",
        banner=f"Provider netns: namespaces; emulated: {', '.join(windows)}.",
        emulated_nodes=windows,
        version=plan.version,
        started="2026-11-21T10:15:00Z",
        seconds=1.9,
        results=tuple(
            _judged(cell, key, limits, TROUBLES[trouble](cell, rng), rng)
            for key, cell in enumerate(chosen)
        ),
        windows_rules_off=(),
    )


def _judged(
    cell: Cell, key: int, limits: Sequence[Limit], fate: Attempts | None, rng: random.Random
) -> CellResult:
    expectation = expect(cell, limits)
    first, second = fate or (("ok", "ok") if expectation.works else ("timeout", "timeout"))
    attempts = (_outcome(cell, key, first, rng),)
    verdict, detail = judge(cell, expectation, attempts)
    if verdict == "fail":
        attempts += (_outcome(cell, key, second, rng),)
        verdict, detail = judge(cell, expectation, attempts)
    repeat = f"lab test overlay -k {cell.id}"
    return CellResult(cell, expectation, verdict, detail, attempts, len(attempts) > 1, repeat)


def _outcome(cell: Cell, key: int, status: Status, rng: random.Random) -> Outcome:
    if status == "error":
        return Outcome(key, status, "socket: too many open files", None, (), None, 0.0)
    if status == "timeout":
        return Outcome(key, status, "connect: no reply in 1.0 s", None, (), None, 1000.0)
    latency = round(rng.lognormvariate(-0.8, 0.5) * (3 if cell.size == "large" else 1), 3)
    if cell.answer:
        return Outcome(key, status, "", None, (), cell.answer, latency)
    return Outcome(key, status, "", min(cell.sources), cell.backends, None, latency)


def _ends(cell: Cell) -> set[str]:
    return {end for end in (cell.source.node, cell.target.node, cell.entry) if end}


def _dead_node(cell: Cell, _: random.Random) -> Attempts | None:
    return ("timeout", "timeout") if "win1" in _ends(cell) else None


def _mtu_hole(cell: Cell, _: random.Random) -> Attempts | None:
    lost = cell.size == "large" and "win1" in _ends(cell) and len(_ends(cell)) > 1
    return ("timeout", "timeout") if lost else None


def _mixed(cell: Cell, rng: random.Random) -> Attempts | None:
    if cell.source.name == cell.entry == "win2":
        return ("ok", "ok") if cell.size == "small" else None
    if cell.entry == "worker2" and cell.protocol == "udp":
        return ("timeout", "timeout")
    if cell.target.name == "win2-p1" and cell.family == "pod-pod":
        return ("timeout", "timeout")
    flaky: Attempts = ("timeout", "ok")
    fates: tuple[Attempts, ...] = (("timeout", "timeout"), flaky, flaky, ("error", "error"))
    return rng.choice(fates) if rng.random() < 0.006 else None


TROUBLES: dict[Trouble, Callable[[Cell, random.Random], Attempts | None]] = {
    "healthy": lambda _cell, _rng: None,
    "dead-node": _dead_node,
    "mtu-hole": _mtu_hole,
    "mixed": _mixed,
}


def _made_finding(name: str) -> Difference:
    return Difference(
        kind="tunnel-udp-dropped",
        fault="tunnel-udp-dropped",
        node="worker2",
        object=name,
        intended="no rule",
        observed="a rule",
        shows="nft list ruleset",
        mends="nft flush ruleset",
        place="worker2",
        hop=1,
    )


def red_run(causes: int = 2) -> RunResult:
    """A run with so many causes, of which the first has most cells."""
    run = made_run("dead-node")
    red = [result.cell.id for result in run.results if result.verdict == "fail"]
    number = {cell: max(0, place - len(red) + causes) for place, cell in enumerate(red)}
    return replace(
        run,
        results=tuple(
            replace(result, finding=_made_finding(f"chain {number[result.cell.id]}"))
            if result.cell.id in number
            else result
            for result in run.results
        ),
    )


FAILOVER = Failover(
    lost="master1",
    before={"node009": "master1"},
    away=Turn(
        (
            Silence("node009-p1", "node001-p1", 2.75, 300, 160),
            Silence("node001-p1", "node009-p1", 2.5, 300, 170),
        ),
        {"node009": "master2"},
        (),
    ),
    back=Turn(
        (
            Silence("node009-p1", "node001-p1", 0.0, 300, 300),
            Silence("node001-p1", "node009-p1", 0.0, 300, 300),
        ),
        {"node009": "master2"},
        (),
    ),
)
SAMPLED = Coverage(
    strategy="node-pairs",
    seed=7,
    cells=Part(1_234, 36_134_400),
    node_pairs=Part(20, 20),
    systems=Part(29, 30),
    askers=Part(10, 10),
    asked=Part(10, 10),
)
"""The coverage of a sampled run."""
REACHED = (
    "sample 'node-pairs', seed 7: every node pair both ways, "
    "29 of 30 pairs of operating systems by family, every pod is a source and a target"
)


def with_texts(run: RunResult, text: str) -> RunResult:
    """The run with every text that is not a fixed name replaced by ``text``."""
    hostile = tuple(
        replace(
            result,
            detail=text,
            repeat=text,
            attempts=tuple(replace(each, detail=text) for each in result.attempts),
            expectation=replace(result.expectation, reason=text, source=text, rule=text),
            cell=replace(
                result.cell,
                source=replace(result.cell.source, name=result.cell.source.name + text),
                target=replace(result.cell.target, name=result.cell.target.name + text),
            ),
        )
        for result in run.results
    )
    return replace(run, lab=text, summary=text, banner=text, results=hostile)
