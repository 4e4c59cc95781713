"""Plausible runs from a seed: healthy, one dead node, an MTU hole, mixed trouble."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Literal

from lab.matrix.cell import Cell, Endpoint, Expectation, Relation
from lab.matrix.failover import Failover, Turn
from lab.matrix.sampling import Coverage, Part
from lab.matrix.verdict import CellResult, RunResult, Verdict
from lab.providers.provider import Outcome, Silence
from lab.scenario.terms import Family, Os
from lab.topology.intent import (
    Bridge,
    Intent,
    Interface,
    MachineIntent,
    Pod,
    Resolver,
    Route,
    Segment,
    Tunnel,
)

Trouble = Literal["healthy", "dead-node", "mtu-hole", "mixed"]
Pair = tuple[Family, Endpoint, Endpoint, str | None]
CLIENT = Endpoint("client", "client", "linux", None, "192.0.2.10", 8080)
NODEPORT_SELF = Expectation(
    False,
    "WIN-NODEPORT-SELF",
    "a Windows node cannot reach a NodePort on itself",
    "Kubernetes documentation, Windows networking",
    "timeout",
)
WORKS = Expectation(
    True, "REACHABLE", "every pod reaches every endpoint", "the Kubernetes model", None
)


@dataclass(frozen=True)
class MadeNode:
    name: str
    os: Os
    number: int

    def pods(self, count: int) -> tuple[Endpoint, ...]:
        return tuple(
            Endpoint(
                f"{self.name}-p{pod}",
                "pod",
                self.os,
                self.name,
                f"10.244.{self.number}.{pod + 1}",
                8080,
            )
            for pod in range(1, count + 1)
        )

    def endpoint(self) -> Endpoint:
        return Endpoint(self.name, "node", self.os, self.name, f"10.9.176.{10 + self.number}", 8080)


FIVE = (
    MadeNode("master", "linux", 1),
    MadeNode("worker1", "linux", 2),
    MadeNode("worker2", "linux", 3),
    MadeNode("win1", "windows", 4),
    MadeNode("win2", "windows", 5),
)


def many_nodes(count: int) -> tuple[MadeNode, ...]:
    return tuple(
        MadeNode(f"win{n}" if n % 3 == 0 else f"worker{n}", "windows" if n % 3 == 0 else "linux", n)
        for n in range(1, count + 1)
    )


def intent_of(nodes: tuple[MadeNode, ...] = FIVE, pods: int = 2) -> Intent:
    return Intent(
        scenario="overlay",
        topology="vxlan",
        domain="cluster.local",
        segments=(
            Segment("cluster", "10.9.176.0/24", 1500),
            Segment("outside", "192.0.2.0/24", 1500),
        ),
        machines=(
            *(_node_intent(node, pods) for node in nodes),
            _machine(
                "router", "router", (("cluster", "10.9.176.1/24"), ("outside", "192.0.2.1/24"))
            ),
            _machine("client", "client", (("outside", "192.0.2.10/24"),)),
        ),
        pod_mtu=1450,
        node_mtu=1500,
    )


def made_run(
    trouble: Trouble,
    nodes: tuple[MadeNode, ...] = FIVE,
    pods: int = 2,
    seed: int = 1,
    families: tuple[Family, ...] | None = None,
) -> RunResult:
    rng = random.Random(seed)
    cells = [cell for cell in _cells(nodes, pods) if not families or cell.family in families]
    results = tuple(_judged(cell, key, _TROUBLES[trouble], rng) for key, cell in enumerate(cells))
    windows = tuple(node.name for node in nodes if node.os == "windows")
    return RunResult(
        run="20261121-101500-7f3a",
        lab="overlay",
        scenario="overlay",
        summary="flannel VXLAN over one node segment",
        topology="vxlan",
        provider="netns",
        banner=f"Provider netns: namespaces; emulated: {', '.join(windows)}.",
        emulated_nodes=windows,
        version="1.36",
        started="2026-11-21T10:15:00Z",
        seconds=1.9,
        results=results,
        windows_rules_off=(),
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


def _machine(
    name: str, kind: Literal["router", "client"], cards: tuple[tuple[str, str], ...]
) -> MachineIntent:
    interfaces = tuple(
        Interface(f"eth{n}", segment, f"02:00:00:00:00:{n:02x}", (address,), 1500)
        for n, (segment, address) in enumerate(cards)
    )
    return MachineIntent(
        name=name, kind=kind, os="linux", interfaces=interfaces, forwards=kind == "router"
    )


def _node_intent(node: MadeNode, pods: int) -> MachineIntent:
    address = node.endpoint().address
    bare = _machine(node.name, "router", (("cluster", f"{address}/24"),))
    resolver = Resolver("10.96.0.10", ("default.svc.cluster.local",), 5)
    return replace(
        bare,
        kind="node",
        os=node.os,
        bridge=Bridge("cni0", "02:00:00:00:01:01", (f"10.244.{node.number}.1/24",), 1450),
        tunnel=Tunnel("flannel.4096", 4096, 4789, address, "eth0", "02:00:00:00:02:01", (), 1450),
        routes=(Route("default", "eth0", "10.9.176.1"),),
        pods=tuple(
            Pod(
                name=pod.name,
                role="probe",
                port=f"veth{n}",
                mac=f"02:00:00:00:03:{n:02x}",
                address=f"{pod.address}/24",
                gateway=f"10.244.{node.number}.1",
                mtu=1450,
                neighbours=(),
                resolver=resolver,
            )
            for n, pod in enumerate(node.pods(pods), 1)
        ),
    )


def _cells(nodes: tuple[MadeNode, ...], per_node: int) -> Iterator[Cell]:
    for pair in _pairs(nodes, per_node):
        for protocol in ("tcp", "udp"):
            yield _cell(pair, protocol, "small")
            if pair[0] != "dns":
                yield _cell(pair, protocol, "large")


def _service(pod: Endpoint) -> Endpoint:
    return replace(pod, name=f"to-{pod.name}", kind="service")


def _pairs(nodes: tuple[MadeNode, ...], per_node: int) -> Iterator[Pair]:
    pods = [pod for node in nodes for pod in node.pods(per_node)]
    hosts = [node.endpoint() for node in nodes]
    for source, target in product(pods, pods):
        if source == target:
            yield "hairpin", source, _service(target), None
        else:
            yield "pod-pod", source, target, None
            yield "pod-service", source, _service(target), None
    for host, pod in product(hosts, pods):
        yield "node-service", host, _service(pod), None
        yield "node-pod", host, pod, None
        yield "pod-node", pod, host, None
    firsts = pods[::per_node]
    for source, host, pod in product((*firsts, *hosts, CLIENT), hosts, firsts):
        port = replace(pod, name=f"{host.name}:to-{pod.name}", kind="nodeport", port=30001)
        yield "nodeport", source, port, host.name
    for pod in pods:
        yield "pod-external", pod, CLIENT, None
        for name in ("to-worker1-p1", "to-worker1-p1.default", "to-worker1-p1.default.svc.x"):
            server = Endpoint(name, "name", "linux", hosts[0].name, "10.96.0.10", 53)
            yield "dns", pod, server, None


def _cell(pair: Pair, protocol: Literal["tcp", "udp"], size: Literal["small", "large"]) -> Cell:
    family, source, target, entry = pair
    relation: Relation = "other-node"
    if target.node is None:
        relation = "outside"
    elif family == "hairpin" or source.name == target.name:
        relation = "self"
    elif source.node == target.node:
        relation = "same-node"
    backend = target.name.rpartition(":")[2].removeprefix("to-")
    return Cell(
        id=f"{family}/{source.name}/{target.name}/{protocol}-{size}",
        family=family,
        source=source,
        target=target,
        protocol=protocol,
        size=size,
        relation=relation,
        entry=entry,
        name_form=None,
        backends=() if family == "dns" else (backend,),
        sources=frozenset({source.address}),
        answer="10.96.0.21" if family == "dns" else None,
        mtu=1450,
    )


def _touches(cell: Cell, node: str) -> bool:
    return node in {cell.source.node, cell.target.node, cell.entry}


def _dead_node(cell: Cell, _: random.Random) -> Verdict:
    return "fail" if _touches(cell, "win1") else "pass"


def _mtu_hole(cell: Cell, _: random.Random) -> Verdict:
    ends = {end for end in (cell.source.node, cell.target.node, cell.entry) if end}
    return "fail" if cell.size == "large" and "win1" in ends and len(ends) > 1 else "pass"


def _mixed(cell: Cell, rng: random.Random) -> Verdict:
    if cell.entry == "worker2" and cell.protocol == "udp":
        return "fail"
    if cell.target.name == "win2-p1" and cell.family == "pod-pod":
        return "fail"
    if rng.random() < 0.003:
        return rng.choice(("fail", "flaky", "flaky", "probe-error"))
    return "pass"


_TROUBLES: dict[Trouble, Callable[[Cell, random.Random], Verdict]] = {
    "healthy": lambda _cell, _rng: "pass",
    "dead-node": _dead_node,
    "mtu-hole": _mtu_hole,
    "mixed": _mixed,
}


def _judged(
    cell: Cell, key: int, trouble: Callable[[Cell, random.Random], Verdict], rng: random.Random
) -> CellResult:
    verdict, expectation = trouble(cell, rng), WORKS
    if cell.entry and cell.source.node == cell.entry and cell.entry.startswith("win"):
        expectation = NODEPORT_SELF
        surprise = trouble is _mixed and cell.entry == "win2" and cell.size == "small"
        verdict = "unexpected-pass" if surprise else "known-limit"
    made = {status: _outcome(cell, key, rng, status) for status in ("ok", "timeout", "error")}
    statuses, detail = _ENDS[verdict]
    return CellResult(
        cell=cell,
        expectation=expectation,
        verdict=verdict,
        detail=detail,
        attempts=tuple(made[status] for status in statuses),
        retried=verdict in {"fail", "flaky"},
        repeat=f"lab probe overlay {cell.id}",
    )


_ENDS: dict[Verdict, tuple[tuple[str, ...], str]] = {
    "pass": (("ok",), ""),
    "known-limit": (("timeout",), "It got no reply, as rule WIN-NODEPORT-SELF expects."),
    "fail": (("timeout", "timeout"), "There was no reply in 1.0 s, twice."),
    "flaky": (
        ("timeout", "ok"),
        "The first attempt got no reply in 1.0 s; the second was answered.",
    ),
    "unexpected-pass": (("ok",), "It was answered, and rule WIN-NODEPORT-SELF expects no reply."),
    "probe-error": (("error",), "The prober could not open a socket: too many open files."),
}


def _outcome(
    cell: Cell, key: int, rng: random.Random, status: Literal["ok", "timeout", "error"]
) -> Outcome:
    if status != "ok":
        words = (
            "connect: no reply in 1.0 s" if status == "timeout" else "socket: too many open files"
        )
        return Outcome(key, status, words, None, (), None, 1000.0 if status == "timeout" else 0.0)
    latency = rng.lognormvariate(-0.8, 0.5) * (3 if cell.size == "large" else 1)
    return Outcome(
        key, "ok", "", cell.source.address, cell.backends, cell.answer, round(latency, 3)
    )
