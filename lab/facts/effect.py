"""What rules, queues and sockets do to packets, read from the lines that tools print. Pure.

A whole state is compared line by line; this says of a line what decisions need to know.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_PROTOCOL = re.compile(r"\b(tcp|udp)\b")
_HOOK = re.compile(r"\bhook (\w+)")
_ACTS = re.compile(
    r"\b(?:drop|reject|queue|jump|goto|vmap|[sd]nat|masquerade|redirect|tproxy|notrack|set|dup|fwd)\b"
)
_PORTS = re.compile(r"\bdport (\{[^}]*\}|\d\S*)")
_NUMBERS = re.compile(r"(\d+)(?:-(\d+))?")
_BY_LOAD = re.compile(r"\b(?:limit|quota|ct count|numgen|rate)\b")
_ALTERS = re.compile(
    r"snat|dnat|masquerade|redirect|mark|notrack| set |ttl|tproxy|dup |fwd |mtu|port_range"
    r"|type route "
)


@dataclass(frozen=True, slots=True)
class Effect:
    """What is done to packets."""

    protocols: frozenset[str] = frozenset()
    """``"tcp"`` and ``"udp"``, if it is for these."""
    hooks: frozenset[str] = frozenset()
    """The hooks of netfilter at which it is."""
    ports: tuple[tuple[int, int], ...] = ()
    """First and last of the destination ports, if it is for these only."""
    partial: bool = False
    """Whether it takes only some packets, or those beyond a rate."""
    alters: bool = False
    """Whether a packet may continue changed, or on another path."""
    of_ttl: bool = False
    of_mtu: bool = False
    """Whether a TTL, or an MTU, is part of it."""


def read_effect(now: str, made: str = "") -> Effect:
    """The effect of what a tool prints now, or was expected to print."""
    return Effect(
        frozenset(_PROTOCOL.findall(now)),
        frozenset(_HOOK.findall(now)),
        tuple(_read_ports(now)),
        partial=_BY_LOAD.search(now) is not None,
        alters=any(_ALTERS.search(text) for text in (now, made)),
        of_ttl="ttl" in now,
        of_mtu="mtu" in now,
    )


def _read_ports(text: str) -> list[tuple[int, int]]:
    """The destination ports of rules of nftables; none if one of them is for others, too."""
    ranges: list[tuple[int, int]] = []
    for statement in text.split(";"):
        if _ACTS.search(statement):
            match = _PORTS.search(statement)
            numbers = _NUMBERS.findall(match[1]) if match else []
            if not numbers:
                return []
            ranges += ((int(first), int(last or first)) for first, last in numbers)
    return ranges


NO_EFFECT = Effect()
