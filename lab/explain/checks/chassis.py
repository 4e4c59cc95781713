"""A node of a logical network: its own Open vSwitch, up to where OVN takes over."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from lab.explain.difference import Difference, Look
from lab.facts.ovn import Switching
from lab.topology.logical import GENEVE_PORT, Chassis


def check(look: Look) -> Iterator[Difference]:
    """Its end of tunnels, the cards that it switches, its flows, and who is where."""
    chassis, seen = look.intended.chassis, look.observed.switching
    if chassis is None or seen is None:
        return
    yield from _end(look, chassis, seen)
    for card in look.intended.interfaces:
        if card.card:
            yield from _plugged(look, card.name, card.card, seen)
            yield from _neighbours(look, card.name, seen)
    yield from _flows(look, seen)


def _end(look: Look, chassis: Chassis, seen: Switching) -> Iterator[Difference]:
    for key, value in (
        ("ovn-encap-ip", chassis.local),
        ("ovn-encap-type", chassis.encapsulation),
        ("ovn-bridge", chassis.integration),
    ):
        found = seen.settings.get(key, "")
        if found != value:
            yield look.differs(
                "tunnel-local",
                f"chassis {chassis.name}",
                f"{key} {value}",
                f"{key} {found}" if found else f"no {key}",
                "ovs-vsctl get Open_vSwitch . external_ids",
                f"ovs-vsctl set Open_vSwitch . external_ids:{key}={value}",
            )


def _plugged(look: Look, bridge: str, card: str, seen: Switching) -> Iterator[Difference]:
    port = seen.port(card)
    if port is None or port.bridge != bridge:
        yield look.differs(
            "unplugged",
            f"card {card}",
            f"a port of {bridge}",
            f"a port of {port.bridge}" if port else "a port of no bridge",
            "ovs-vsctl show",
            f"ovs-vsctl --if-exists del-port {card} -- add-port {bridge} {card}",
        )


def _neighbours(look: Look, bridge: str, seen: Switching) -> Iterator[Difference]:
    known = {one.address: one.mac for one in seen.neighbours if one.device == bridge}
    for one in look.intended.neighbours:
        found = known.get(one.address)
        if one.device == bridge and found and found != one.mac:
            yield look.differs(
                "stale-neighbour",
                f"tunnel neighbour {one.address} on {bridge}",
                one.mac,
                found,
                "ovs-appctl tnl/neigh/show",
                f"ovs-appctl tnl/neigh/set {bridge} {one.address} {one.mac}",
            )


def _flows(look: Look, seen: Switching) -> Iterator[Difference]:
    for barrier in seen.flows:
        first, last = barrier.ports or (0, 0)
        tunnel = first <= GENEVE_PORT <= last and barrier.protocol != "tcp"
        found = look.differs(
            "tunnel-port-dropped" if tunnel else "packets-barred",
            barrier.where,
            "no flow that bars the lab's packets",
            barrier.rule,
            barrier.shows,
            barrier.mends,
        )
        yield replace(found, barrier=barrier)
