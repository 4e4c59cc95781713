"""Where to capture one cell's probe, and how to identify its packets at the source. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from lab.explain.capture.packets import Asked
from lab.explain.capture.trace import Ways
from lab.explain.question import flow_of
from lab.matrix.cell import Cell
from lab.providers.capture import Tap
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
    asked: Asked
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


def listening(intent: Intent, cell: Cell) -> CapturePoint:
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
        asked = _asked(intent, cell, ())
        addresses = {*asked.sources, *(address for address, _ in asked.targets)}
        return CapturePoint(around, (), asked, ends, owners, addresses=frozenset(addresses))
    flow = flow_of(cell)
    paths = walk(intent, flow)
    ways = tuple((stations(one.there), stations(_answer(one))) for one in paths)
    taps = {
        Tap(one.place, one.device): one.machine for there, back in ways for one in (*there, *back)
    }
    onward = _onward(intent, paths[0], owners) if flow.forwarded else None
    taps |= dict(onward.taps) if onward else {}
    asked = _asked(intent, cell, ways)
    addresses = {*asked.sources, *(address for address, _ in asked.targets)}
    for station in (one for there, back in ways for one in (*there, *back)):
        addresses |= {station.packet.source, station.packet.target}
    rest = frozenset(addresses), onward
    return CapturePoint(tuple(taps.items()), ways, asked, ends, owners, paths[0].end, *rest)


def _answer(path: Path) -> tuple[Hop, ...]:
    """The way back, without the server's own query before its answer."""
    if not path.flow.forwarded or path.end or not path.back:
        return () if path.flow.forwarded else path.back
    server = path.there[-1].place
    leaves = [
        at for at, hop in enumerate(path.back) if (hop.kind, hop.place) == ("endpoint", server)
    ]
    return path.back[leaves[-1] :]


def _onward(intent: Intent, path: Path, owners: Mapping[str, str]) -> CapturePoint | None:
    """Capture of the query that a path's DNS server sends to the services node's."""
    front, server = intent.services_node, path.there[-1].place
    if front is None or server == front.machine or not path.back:
        return None
    flow = Flow(server, front.address, path.flow.port, "udp")
    one = walk(intent, flow)[0]
    ways = ((stations(one.there), stations(one.back)),)
    taps = {Tap(at.place, at.device): at.machine for way in ways[0] for at in way}
    pod = next(pod for machine in intent.machines for pod in machine.pods if pod.name == server)
    target = frozenset({(front.address, flow.port)})
    asked = Asked(server, "udp", frozenset({bare(pod.address)}), target)
    ends = frozenset({front.machine})
    return CapturePoint(tuple(taps.items()), ways, asked, ends, owners, one.end)


def _owners(intent: Intent) -> Iterator[tuple[str, str]]:
    for machine in intent.everything():
        devices = (*machine.interfaces, machine.bridge, machine.tunnel)
        yield from ((one.mac, f"{machine.name} {one.name}") for one in devices if one)
        yield from ((pod.mac, f"{pod.name} {_POD_CARD}") for pod in machine.pods)


def _asked(intent: Intent, cell: Cell, ways: Sequence[Ways]) -> Asked:
    machine = _machine_of(intent, cell.source.name)
    pod = next((one for one in machine.pods if one.name == cell.source.name), None)
    first = (cell.target.address, cell.target.port)
    expected = {
        (one.packet.target, one.packet.port)
        for there, _ in ways
        for one in there
        if one.place == cell.source.name
    }
    translates = pod is None and bool(expected - {first})
    return Asked(
        place=cell.source.name,
        protocol=cell.protocol,
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
