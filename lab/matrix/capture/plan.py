"""Where to listen for one cell's probe, and how its packets are known where it is sent. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from lab.matrix.capture.matching import Asked
from lab.matrix.capture.trace import Ways
from lab.matrix.cell import Cell
from lab.matrix.explain.scope import flow_of
from lab.providers.capture import Tap
from lab.topology.intent import Intent, MachineIntent
from lab.topology.stations import stations
from lab.topology.steering import bare, own_addresses
from lab.topology.walk import walk

_POD_CARD = "eth0"


@dataclass(frozen=True, slots=True)
class Listening:
    """Where to listen, and for what."""

    taps: tuple[tuple[Tap, str], ...]
    """Each with its machine, in the order in which the probe should meet them."""
    ways: tuple[Ways, ...]
    """The intended paths; none where the Intent's tables are not all that leads the packets."""
    asked: Asked
    ends: frozenset[str]
    """Pods and machines of which one should answer."""
    owners: Mapping[str, str]
    """Whose each MAC is, in words."""
    end: str = ""
    """Where the Intent itself leads no further, and why; empty where the answer comes back."""


def listening(intent: Intent, cell: Cell) -> Listening:
    """Where to listen for a cell's probe.

    Raises
    ------
    KeyError
        If the Intent has no pod or machine of the source's name.

    """
    ends = frozenset(cell.backends or (cell.target.name,))
    owners = dict(_owners(intent))
    if intent.logical:
        around = tuple(_around(intent, cell))
        return Listening(around, (), _asked(intent, cell, ()), ends, owners)
    paths = walk(intent, flow_of(cell))
    ways = tuple((stations(one.there), stations(one.back)) for one in paths)
    taps = {
        Tap(one.place, one.device): one.machine for there, back in ways for one in (*there, *back)
    }
    asked = _asked(intent, cell, ways)
    return Listening(tuple(taps.items()), ways, asked, ends, owners, paths[0].end)


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
    """Every device of the pods and machines that the probe may pass, where no path is known."""
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
