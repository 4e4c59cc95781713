"""What a shell on a hypervisor shows: clock, links, addresses, routes. Pure.

libvirt tells none of these.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from typing import Any

SCRIPT = "date +%s.%N; ip -json -4 route show; echo; ip -json address show"
"""Four lines: the time, the routes, a gap, the links with their addresses."""


@dataclass(frozen=True, slots=True)
class KernelRoute:
    """A way of the main table that is no default route."""

    network: IPv4Network
    device: str


@dataclass(frozen=True, slots=True)
class Survey:
    """One hypervisor, seen from within."""

    clock: float
    """Seconds since 1970."""
    routes: tuple[KernelRoute, ...]
    uplink: str | None
    """Device of the default route."""
    mtus: dict[str, int]
    devices: dict[IPv4Address, str]
    """Which device has an address."""

    def device_of(self, address: str | None) -> str | None:
        """The device that has the address; without one, the uplink."""
        return self.uplink if address is None else self.devices.get(IPv4Address(address))


def read(printed: str) -> Survey:
    """What :data:`SCRIPT` has printed.

    Raises
    ------
    ValueError
        When it is anything else.

    """
    clock, _, rest = printed.partition("\n")
    routes, _, links = rest.partition("\n\n")
    ways, cards = _list(routes), _list(links)
    return Survey(
        clock=float(clock.replace("N", "0")),  # a date without nanoseconds prints the letter
        routes=tuple(
            KernelRoute(IPv4Network(str(way["dst"])), str(way.get("dev", "")))
            for way in ways
            if way.get("dst") != "default"
        ),
        uplink=next((str(way["dev"]) for way in ways if way.get("dst") == "default"), None),
        mtus={str(card["ifname"]): int(card["mtu"]) for card in cards},
        devices={
            IPv4Address(one["local"]): str(card["ifname"])
            for card in cards
            for one in card.get("addr_info", ())
            if one.get("family") == "inet"
        },
    )


def _list(text: str) -> list[dict[str, Any]]:
    found = json.loads(text or "[]")
    if not isinstance(found, list):
        raise ValueError("the output of ip is no list")  # noqa: TRY004  of the text, not of a type
    return [one for one in found if isinstance(one, dict) and one]
