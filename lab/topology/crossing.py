"""What a frame passes between two cards of one segment that is in pieces: the hypervisors. Pure.

Each machine is plugged into the switch of the hypervisor that it stands on; between hypervisors
the frame goes through their tunnel. Of a segment in one piece there is nothing between the cards.
"""

from __future__ import annotations

from collections.abc import Iterator

from lab.topology.intent import Intent, MachineIntent, Tunnel
from lab.topology.path import Hop, HopKind, Packet
from lab.topology.segment import Interface
from lab.topology.steering import bare, leaving


def between(
    intent: Intent,
    sender: tuple[MachineIntent, Interface],
    receiver: tuple[MachineIntent, Interface],
    packet: Packet,
) -> Iterator[Hop]:
    """The hops on the hypervisors of both cards, as the frame meets them.

    Parameters
    ----------
    intent
        The lab's.
    sender, receiver
        Machines and their cards, on one segment.
    packet
        What the frame holds, as its sender wrote it.

    """
    here, there = (
        next((one for one in intent.hypervisors if one.name == card.host), None)
        for _, card in (sender, receiver)
    )
    if here is None or there is None:
        return
    yield from _port(here, *sender, packet)
    yield _hop("switch", here, f"switch {_switch(here)}", packet, _switch(here))
    if here is not there:
        yield from _tunnelled(here, there, receiver[1].mac, packet)
        yield _hop("switch", there, f"switch {_switch(there)}", packet, _switch(there))
    yield from _port(there, *receiver, packet)


def _switch(host: MachineIntent) -> str:
    return host.switch.name if host.switch else ""


def _port(
    host: MachineIntent, machine: MachineIntent, card: Interface, packet: Packet
) -> Iterator[Hop]:
    for port in host.switch.ports if host.switch else ():
        if (port.machine, port.card) == (machine.name, card.name):
            what = f"port {port.name} of {machine.name}"
            yield _hop("switch", host, what, packet, port.name)


def _tunnelled(
    here: MachineIntent, there: MachineIntent, mac: str, packet: Packet
) -> Iterator[Hop]:
    tunnel, far = here.tunnel, there.tunnel
    if tunnel is None or far is None:
        return
    outer = Packet("udp", tunnel.local, far.local, tunnel.port)
    yield _end(here, tunnel, packet)
    entry = f"forwarding entry {mac} on {tunnel.name}"
    yield _hop("entry", here, entry, outer, carried=packet)
    yield _hop("firewall", here, "output", outer, carried=packet)
    way = leaving(here, far.local)
    if way:
        yield _hop("route", here, f"route to {way.destination}", outer, carried=packet)
    known = f"neighbour {far.local} on {tunnel.device}"
    yield _hop("neighbour", here, known, outer, carried=packet)
    yield _hop("card", here, f"card {tunnel.device}", outer, tunnel.device, packet)
    arrives = next(
        (card.name for card in there.interfaces if far.local in map(bare, card.addresses)),
        far.device,
    )
    yield _hop("card", there, f"card {arrives}", outer, arrives, packet)
    yield _hop("firewall", there, "input", outer, carried=packet)
    yield _end(there, far, packet)


def _end(host: MachineIntent, tunnel: Tunnel, packet: Packet) -> Hop:
    return _hop("tunnel", host, f"tunnel {tunnel.name}", packet, tunnel.name)


def _hop(  # noqa: PLR0913, PLR0917  a hop is all of these
    kind: HopKind,
    host: MachineIntent,
    what: str,
    packet: Packet,
    device: str = "",
    carried: Packet | None = None,
) -> Hop:
    return Hop(kind, host.name, host.name, device, what, packet, carried)
