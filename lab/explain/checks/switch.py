"""The switch of a hypervisor: its bridge and its ports."""

from __future__ import annotations

from collections.abc import Iterator

from lab.explain.check import Check, Difference, Kind, Look, at_object
from lab.facts.node import LinkFacts
from lab.topology.intent import Switch
from lab.topology.path import Hop, Path


def _at_port(difference: Difference, hop: Hop, path: Path) -> bool:
    """``port vxlan-nodes of the tunnel``, or of a machine."""
    if difference.object.endswith(" of the tunnel"):
        return hop.machine == difference.node and hop.kind == "tunnel"
    return at_object(difference, hop, path)


UNPLUGGED = Kind("unplugged", meets=_at_port)


def _port(look: Look, switch: Switch, name: str, whose: str) -> Iterator[Difference]:
    link, what = look.observed.link(name), f"port {name} of {whose}"
    if link is None:
        yield look.differs(
            "link-missing", what, "there", "no such device", "ip link", "lab down, then lab up"
        )
        return
    if not link.up or not link.carrier:
        yield look.differs(
            "link-down",
            what,
            "up",
            "set down" if not link.up else f"no carrier: the card of {whose} is down",
            f"ip -details link show dev {name}",
            f"ip link set dev {name} up" if not link.up else f"set the card of {whose} up",
        )
    yield from _plugged(look, switch, link, whose)


def _plugged(look: Look, switch: Switch, link: LinkFacts, whose: str) -> Iterator[Difference]:
    if link.master != switch.name:
        yield look.differs(
            "unplugged",
            f"port {link.name} of {whose}",
            f"plugged into {switch.name}",
            f"plugged into {link.master}" if link.master else "plugged into nothing",
            f"bridge link show dev {link.name}",
            f"ip link set dev {link.name} master {switch.name}",
        )


class SwitchCheck(Check):
    """The switch of a hypervisor: its bridge and its ports."""

    order = 60
    question = "address"
    kinds = (UNPLUGGED,)

    def on_machine(self, look: Look) -> Iterator[Difference]:
        switch = look.intended.switch
        if switch is None:
            return
        link = look.observed.link(switch.name)
        what, shows = f"switch {switch.name}", f"ip -details link show dev {switch.name}"
        if link is None:
            there = ", ".join(one.name for one in look.observed.bridges) or "none"
            yield look.differs(
                "bridge-missing",
                what,
                "there",
                f"no such bridge (there: {there})",
                "ip -details link show type bridge",
                "lab down, then lab up",
            )
            return
        if not link.up:
            mends = f"ip link set dev {switch.name} up"
            yield look.differs("bridge-down", what, "up", "set down", shows, mends)
        if link.mtu and link.mtu != switch.mtu:
            yield look.differs(
                "bridge-mtu",
                what,
                f"MTU {switch.mtu}",
                f"MTU {link.mtu}",
                shows,
                f"ip link set dev {switch.name} mtu {switch.mtu}",
            )
        tunnel = look.intended.tunnel
        seen = look.observed.link(tunnel.name) if tunnel else None
        if seen is not None:  # TunnelCheck reports its other differences
            yield from _plugged(look, switch, seen, "the tunnel")
        for port in switch.ports:
            yield from _port(look, switch, port.name, port.machine)
