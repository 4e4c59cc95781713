"""What network devices, addresses and default routes there are, as the kernel lists them."""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass

from lab.providers.netns.netlink import GET_ADDRESS, GET_LINK, GET_ROUTE, Socket, attributes

_MAC, _NAME, _MTU, _PEER, _INFO, _KIND = 1, 3, 4, 5, 18, 1
_NUMBER = struct.Struct("=I")
_LOCAL = 2
_LOWER_UP = 1 << 16
"""IFF_LOWER_UP of linux/if.h: the device has a carrier."""
_LINK_BODY, _ADDRESS_BODY, _ROUTE_BODY = 16, 8, 12
_OUT, _GATEWAY, _PRIORITY = 4, 5, 6
_MAIN_TABLE, _UNICAST, _ONLINK = 254, 1, 4


@dataclass(frozen=True, slots=True)
class Link:
    """One device of a namespace."""

    name: str
    index: int
    mac: str
    """Empty for a device without one."""
    kind: str
    """``"bridge"``, ``"veth"``, ``"vxlan"``, ...; empty for a network card."""
    carrier: bool
    mtu: int = 0
    peer: int = 0
    """Of a veth: the index of its other end, in whatever namespace that is."""


def links(channel: Socket) -> tuple[Link, ...]:
    """Every device of the channel's namespace."""
    return tuple(
        _link(body) for body in channel.dump(GET_LINK, struct.pack("=BxHiII", 0, 0, 0, 0, 0))
    )


def _link(body: bytes) -> Link:
    _, _, index, flags, _ = struct.unpack_from("=BxHiII", body)
    found = attributes(body[_LINK_BODY:])
    return Link(
        found[_NAME].rstrip(b"\0").decode(),
        index,
        found.get(_MAC, b"").hex(":"),
        attributes(found.get(_INFO, b"")).get(_KIND, b"").rstrip(b"\0").decode(),
        bool(flags & _LOWER_UP),
        _number(found.get(_MTU)),
        _number(found.get(_PEER)),
    )


def _number(value: bytes | None) -> int:
    found: int = 0 if value is None else _NUMBER.unpack(value)[0]
    return found


def addresses(channel: Socket) -> tuple[tuple[int, str], ...]:
    """Every IPv4 address of the channel's namespace: interface index, address with prefix."""
    found: list[tuple[int, str]] = []
    for body in channel.dump(GET_ADDRESS, struct.pack("=BBBBI", socket.AF_INET, 0, 0, 0, 0)):
        _, prefix, _, _, index = struct.unpack_from("=BBBBI", body)
        local = attributes(body[_ADDRESS_BODY:])[_LOCAL]
        found.append((index, f"{socket.inet_ntoa(local)}/{prefix}"))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class DefaultRoute:
    """A default route of the main table, by one device."""

    index: int
    """Of the device."""
    via: str | None
    onlink: bool
    metric: int


def default_routes(channel: Socket) -> tuple[DefaultRoute, ...]:
    """Every IPv4 default route of the channel's namespace but those by several devices."""
    found: list[DefaultRoute] = []
    for body in channel.dump(GET_ROUTE, struct.pack("=BBBBBBBBI", socket.AF_INET, *(0,) * 8)):
        _, length, _, _, table, _, _, kind, flags = struct.unpack_from("=BBBBBBBBI", body)
        given = attributes(body[_ROUTE_BODY:])
        if length or table != _MAIN_TABLE or kind != _UNICAST or _OUT not in given:
            continue
        gateway = given.get(_GATEWAY)
        found.append(
            DefaultRoute(
                struct.unpack("=I", given[_OUT])[0],
                None if gateway is None else socket.inet_ntoa(gateway),
                bool(flags & _ONLINK),
                struct.unpack("=I", given.get(_PRIORITY, bytes(4)))[0],
            )
        )
    return tuple(found)
