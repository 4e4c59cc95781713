"""Captures a cell's probe: where, how to identify its packets at the source, and what was seen."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import cast

from lab._deadline import Deadline
from lab.explain.capture.conclusion import Conclusion, conclude
from lab.explain.capture.files import Captured
from lab.explain.capture.packets import Matched, ProbeIdentity, match
from lab.explain.capture.trace import Trace, Ways, by_time, trace
from lab.explain.kernel import read_kernel_reports, route_questions, trace_table
from lab.explain.paths import flow_of
from lab.matrix.cell import Cell
from lab.matrix.judge import expect, judge
from lab.matrix.run import make_probe
from lab.matrix.verdict import GREEN
from lab.providers.capture import Capturing, KernelTrace, KernelTracing, Taken, Tap, TracedFlow
from lab.providers.provider import (
    CAPTURE,
    KERNEL_TRACE,
    LabHandle,
    Outcome,
    ProbeSettings,
    Provider,
)
from lab.scenario.scenario import Limit
from lab.topology.intent import Intent, MachineIntent
from lab.topology.path import Flow, Hop, Path, stations
from lab.topology.routing import bare, own_addresses
from lab.topology.walk import walk

_POD_CARD = "eth0"


@dataclass(frozen=True, slots=True)
class CapturePoint:
    """Where to capture, and what."""

    taps: tuple[tuple[Tap, str], ...]
    """Each tap with its machine, in the expected order of the probe."""
    ways: tuple[Ways, ...]
    """The intended paths; empty if the packets' path does not follow from the Intent's tables
    alone."""
    request: ProbeIdentity
    ends: frozenset[str]
    """Pods and machines of which one should answer."""
    owners: Mapping[str, str]
    """Owner of each MAC, as text."""
    end: str = ""
    """Where and why the Intent leads no further; empty if the answer comes back."""
    addresses: frozenset[str] = frozenset()
    """Addresses of its packets anywhere, without the tunnels' own."""
    onward: CapturePoint | None = None
    """The same for the query that the DNS server itself sends before it answers."""


def choose_capture_points(intent: Intent, cell: Cell) -> CapturePoint:
    """Where to capture a cell's probe.

    Raises
    ------
    KeyError
        If the Intent has no pod or machine named as the source.

    """
    ends = frozenset(cell.backends or (cell.target.name,))
    owners = dict(_owners(intent))
    if intent.logical:
        around = tuple(_around(intent, cell))
        request = _asked(intent, cell, ())
        addresses = {*request.sources, *(address for address, _ in request.targets)}
        return CapturePoint(around, (), request, ends, owners, addresses=frozenset(addresses))
    flow = flow_of(cell)
    paths = walk(intent, flow)
    ways = tuple((stations(path.request), stations(_select_answer_hops(path))) for path in paths)
    taps = {
        Tap(station.place, station.device): station.machine
        for outbound, back in ways
        for station in (*outbound, *back)
    }
    onward = _onward(intent, paths[0], owners) if flow.forwarded else None
    taps |= dict(onward.taps) if onward else {}
    request = _asked(intent, cell, ways)
    addresses = {*request.sources, *(address for address, _ in request.targets)}
    for station in chain(*chain(*ways)):
        addresses |= {station.packet.source, station.packet.target}
    rest = frozenset(addresses), onward
    return CapturePoint(tuple(taps.items()), ways, request, ends, owners, paths[0].end, *rest)


def _select_answer_hops(path: Path) -> tuple[Hop, ...]:
    """The way back, without the server's own query before its answer."""
    if not path.flow.forwarded or path.end or not path.reply:
        return () if path.flow.forwarded else path.reply
    server = path.request[-1].place
    leaves = [
        at for at, hop in enumerate(path.reply) if (hop.kind, hop.place) == ("endpoint", server)
    ]
    return path.reply[leaves[-1] :]


def _onward(intent: Intent, path: Path, owners: Mapping[str, str]) -> CapturePoint | None:
    """Capture of the query that a path's DNS server sends to the services node's."""
    front, server = intent.services_node, path.request[-1].place
    if front is None or server == front.machine or not path.reply:
        return None
    flow = Flow(server, front.address, path.flow.port, "udp")
    onward = walk(intent, flow)[0]
    ways = ((stations(onward.request), stations(onward.reply)),)
    taps = {Tap(at.place, at.device): at.machine for way in ways[0] for at in way}
    pod = next(pod for machine in intent.machines for pod in machine.pods if pod.name == server)
    target = frozenset({(front.address, flow.port)})
    request = ProbeIdentity(server, _UDP, frozenset({bare(pod.address)}), target)
    ends = frozenset({front.machine})
    return CapturePoint(tuple(taps.items()), ways, request, ends, owners, onward.end)


def _owners(intent: Intent) -> Iterator[tuple[str, str]]:
    for machine in intent.everything():
        devices = (*machine.interfaces, machine.bridge, machine.tunnel)
        yield from ((device.mac, f"{machine.name} {device.name}") for device in devices if device)
        yield from ((pod.mac, f"{pod.name} {_POD_CARD}") for pod in machine.pods)


def _asked(intent: Intent, cell: Cell, ways: Sequence[Ways]) -> ProbeIdentity:
    machine = _machine_of(intent, cell.source.name)
    pod = next((pod for pod in machine.pods if pod.name == cell.source.name), None)
    first = (cell.target.address, cell.target.port)
    expected = {
        (station.packet.target, station.packet.port)
        for outbound, _ in ways
        for station in outbound
        if station.place == cell.source.name
    }
    translates = pod is None and bool(expected - {first})
    return ProbeIdentity(
        place=cell.source.name,
        # a system that looks a name up chooses the protocol itself, as in Windows pods
        protocols=_BOTH if cell.target.kind == "name" else frozenset({cell.protocol}),
        sources=frozenset((bare(pod.address),)) if pod else own_addresses(machine),
        targets=frozenset((first, *expected)),
        ports=frozenset(port for _, port in expected) if translates else frozenset(),
    )


def _machine_of(intent: Intent, name: str) -> MachineIntent:
    for machine in intent.machines:
        if name == machine.name or name in {pod.name for pod in machine.pods}:
            return machine
    raise KeyError(name)


def _around(intent: Intent, cell: Cell) -> Iterator[tuple[Tap, str]]:
    """Every device of the pods and machines that the probe may pass, if no path is known."""
    ends = (cell.source.name, *cell.backends)
    named = {*ends, cell.source.node, cell.target.node, cell.entry}
    outside = "client" in {cell.source.kind, cell.target.kind}
    for machine in intent.machines:
        pods = [pod for pod in machine.pods if pod.name in ends]
        passes = outside and machine.kind in {"router", "client"}
        if not passes and not pods and machine.name not in named:
            continue
        for pod in pods:
            yield Tap(pod.name, _POD_CARD), machine.name
            yield Tap(machine.name, pod.port), machine.name
        if machine.bridge:
            yield Tap(machine.name, machine.bridge.name), machine.name
        for card in machine.interfaces:
            yield Tap(machine.name, card.name), machine.name
            if card.card:
                yield Tap(machine.name, card.card), machine.name


LIMIT_BYTES = 8 << 20
"""Bytes captured per device; a large probe is 128 KiB, and other traffic shares the space."""
_SECONDS = 120.0
"""Seconds for one probe: a name is tried with up to five domains, each with its own timeout."""
_TRIES = 3
_UDP = frozenset({"udp"})
_BOTH = frozenset({"udp", "tcp"})


def capture_probe(  # noqa: PLR0913  a lab, a cell of it, and how to probe it
    provider: Provider,
    lab: LabHandle,
    intent: Intent,
    cell: Cell,
    limits: Sequence[Limit],
    *,
    timeout: float,
    traced: bool = False,
) -> Captured:
    """Probe one cell once, and capture its packets wherever they should pass.

    ``traced``: also trace them in the kernel, if the provider can.

    Raises BrokenError when the lab's machines are not there.
    """
    where = choose_capture_points(intent, cell)
    expectation = expect(cell, limits)
    question = make_probe(0, cell)
    if question.dialect == "throughput":  # the packets of a stream take the same path as others
        question, cell = replace(question, dialect="lab"), replace(cell, min_throughput=None)
    if not cell.sticky:  # one connection; any of several backends is fine
        question, cell = replace(question, tries=1), replace(cell, sticky=len(cell.backends) > 1)
    outcomes: list[Outcome] = []

    def ask() -> None:
        answers = provider.probe(lab, intent, [question], ProbeSettings(timeout, 1), lambda _: None)
        outcomes.append(answers[0])

    reports: list[KernelTrace] = []

    def ask_traced() -> None:
        routes = route_questions(where.ways)
        places = {tap.place: routes.get(tap.place, ()) for tap, _ in where.taps}
        table = trace_table(cell.protocol, where.addresses)
        flow = TracedFlow(cell.protocol, _ends(where.ways), table)
        reports.extend(
            cast(KernelTracing, provider).trace_kernel(
                lab, intent, places, flow, ask, Deadline(_SECONDS)
            )
        )

    during = ask_traced if traced and KERNEL_TRACE in provider.abilities else ask
    taken = cast(Capturing, provider).capture(
        lab, intent, [tap for tap, _ in where.taps], LIMIT_BYTES, during, Deadline(_SECONDS)
    )
    judged = judge(cell, expectation, (outcomes[0],))
    answered = judged.verdict in GREEN and outcomes[0].status == "ok"
    heard = outcomes[0].status not in {"timeout", "error"}
    matched, packet_trace, conclusion = _seen(
        where, taken, answered=answered, heard=heard, refusal=cell.refusal is not None
    )
    if cell.unreachable and outcomes[0].status == "ok":
        ends = f"last seen {conclusion.last}, where the Intent ends; it went on, and was answered"
        conclusion = replace(conclusion, sentence=ends)
    return Captured(
        cell=cell,
        expectation=expectation,
        verdict=judged.verdict,
        detail=judged.detail,
        outcome=outcomes[0],
        trace=packet_trace,
        conclusion=conclusion,
        taken=taken,
        matched=matched,
        end=where.end,
        kernel=read_kernel_reports(reports),
        untraced=tuple((report.place, report.trouble) for report in reports if report.trouble),
        onward=_seen(where.onward, taken, answered=answered, heard=True)[2]
        if where.onward
        else None,
    )


def _ends(ways: Iterable[Ways]) -> Mapping[str, set[tuple[str, str, int]]]:
    """The pairs of addresses that the probe has in each place, with the server's port."""
    pairs: dict[str, set[tuple[str, str, int]]] = {}
    for station in chain(*chain(*ways)):
        packet = station.packet
        low, high = sorted((packet.source, packet.target))
        pairs.setdefault(station.place, set()).add((low, high, packet.port))
    return pairs


def _seen(
    where: CapturePoint,
    taken: Sequence[Taken],
    *,
    answered: bool,
    heard: bool,
    refusal: bool = False,
) -> tuple[Matched, Trace, Conclusion]:
    matched = match(taken, where.request)
    blind = frozenset(capture.tap for capture in taken if capture.blind)
    packet_trace = (
        trace(where.ways, matched, well=answered, blind=blind)
        if where.ways
        else by_time(where.taps, where.ends, matched)
    )
    conclusion = conclude(
        packet_trace, well=answered, owners=where.owners, heard=heard, refusal=refusal
    )
    return matched, packet_trace, conclusion


def follow_loss(  # noqa: PLR0913  a lab, a cell of it, and how long to ask
    provider: Provider,
    lab: LabHandle,
    intent: Intent,
    cell: Cell,
    limits: Sequence[Limit],
    *,
    timeout: float,
) -> Captured | None:
    """A probe of the cell with an unexpected result; None if a few attempts give none.

    A Service, also DNS, is probed often enough for each of its backends to answer most likely.

    Raises BrokenError when the lab's machines are not there.
    """
    if CAPTURE not in provider.abilities:
        return None
    for number in range(_TRIES * len(walk(intent, flow_of(cell)))):
        captured = capture_probe(provider, lab, intent, cell, limits, timeout=timeout, traced=True)
        if not captured.well:
            return replace(captured, tried=number + 1)
    return None
