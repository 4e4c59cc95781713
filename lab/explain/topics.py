"""What a difference has to do with, by its fields: what the kernel may say of it. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, get_args

from lab.facts.difference import Difference
from lab.facts.ruleset import RULES
from lab.topology.subject import (
    AddressSubject,
    CachedMtuSubject,
    ChainSubject,
    ClaimSubject,
    DeviceSubject,
    EntranceSubject,
    EntrySubject,
    FirewallSubject,
    NeighbourSubject,
    NexthopSubject,
    PodSubject,
    ProxySubject,
    RouteSubject,
    RuleSubject,
    SetSubject,
    SettingSubject,
    SocketSubject,
    TableSubject,
    VlanSubject,
    XfrmSubject,
)

Topic = Literal[
    "routes", "forwarding", "reverse path", "ttl", "mtu", "fragments", "sockets", "buffers", "xfrm",
    "neighbours", "addresses", "macs", "arp", "entries", "vni", "firewall", "listeners", "links",
]  # fmt: skip
ANYTHING: frozenset[Topic] = frozenset(get_args(Topic))
_BY_SUBJECT: tuple[tuple[type, Topic], ...] = (
    *((kind, "routes") for kind in (RouteSubject, RuleSubject, NexthopSubject, AddressSubject)),
    (AddressSubject, "addresses"),
    (ProxySubject, "addresses"),
    (NeighbourSubject, "neighbours"),
    (ProxySubject, "neighbours"),
    (EntrySubject, "entries"),
    (SocketSubject, "sockets"),
    (XfrmSubject, "xfrm"),
    (CachedMtuSubject, "mtu"),
    (FirewallSubject, "firewall"),
)
_BY_SETTING: tuple[tuple[str, Topic], ...] = (
    (r"forward", "forwarding"),
    (r"rp_filter", "reverse path"),
    (r"ttl", "ttl"),
    (r"mtu", "mtu"),
    (r"^ipfrag", "fragments"),
    (r"rmem", "buffers"),
    (r"xfrm", "xfrm"),
    (r"arp", "arp"),
)
"""Parts of the kernel's names of settings."""
_BY_ATTRIBUTE: tuple[tuple[str, Topic], ...] = (
    (r"mtu$", "mtu"),
    (r"ttl$", "ttl"),
    (r"^mac$|address$", "macs"),
    (r"^address$", "addresses"),
    (r"^vni$", "vni"),
    (r"^(?:up|carrier)$", "links"),
    (r"^up$", "routes"),  # a device that is set down loses its routes
)
"""Parts of the names of a device's attributes."""
_BY_CLAIM: dict[str, tuple[Topic, ...]] = {"address": ("addresses", "routes"), "MAC": ("macs",)}
_SETTINGS_THAT_ALTER = re.compile(r"mtu|ttl|port_range|mark|redirect|source_route$")
_ATTRIBUTES_THAT_ALTER = re.compile(
    r"mtu|ttl|mark|port_range|redirect|(?:^|\.)(?:address|link)$"
    r"|^(?:up|noarp|promisc|allmulti|multicast|broadcast)$"
)


def topics_of(difference: Difference) -> frozenset[Topic]:
    """What a difference has to do with."""
    return frozenset(_topics(difference))


def _topics(difference: Difference) -> Iterator[Topic]:
    subject, effect = difference.subject, difference.effect
    yield from (topic for kind, topic in _BY_SUBJECT if isinstance(subject, kind))
    if isinstance(subject, SettingSubject):
        yield from (topic for part, topic in _BY_SETTING if re.search(part, subject.name))
    elif isinstance(subject, ClaimSubject):
        yield from _BY_CLAIM.get(subject.claim, ())
    elif isinstance(subject, PodSubject) and difference.attribute == "listening":
        yield "listeners"
    elif isinstance(subject, TableSubject | ChainSubject) and subject.family == "arp":
        yield "arp"
    yield from (topic for part, topic in _BY_ATTRIBUTE if re.search(part, difference.attribute))
    if effect.of_ttl:
        yield "ttl"
    if effect.of_mtu:
        yield "mtu"


def alters(difference: Difference) -> bool:
    """Whether packets may continue changed, or on another path, so that they are lost later."""
    match difference.subject:
        case (
            RouteSubject() | RuleSubject() | NexthopSubject() | NeighbourSubject() | ProxySubject()
            | EntrySubject() | VlanSubject() | XfrmSubject(kind="state") | AddressSubject()
        ):  # fmt: skip
            return True
        case DeviceSubject() if not difference.attribute:
            return difference.change == "new"
        case DeviceSubject():
            return _ATTRIBUTES_THAT_ALTER.search(difference.attribute) is not None
        case SettingSubject(path=path):
            return _SETTINGS_THAT_ALTER.search(path) is not None
        case ChainSubject() if difference.attribute == RULES:
            return True
        case _:
            return difference.effect.alters


def protocols_of(difference: Difference) -> frozenset[str]:
    """The protocols that a difference is about; empty for all."""
    match difference.subject:
        case EntranceSubject(protocols=protocols):
            return frozenset(protocols)
        case SocketSubject(protocol=protocol):
            return frozenset({protocol})
        case _:
            return difference.effect.protocols


def table_family(difference: Difference) -> str:
    """The family of the nftables table that a difference is in; empty if it is in none."""
    subject = difference.subject
    return subject.family if isinstance(subject, TableSubject | ChainSubject | SetSubject) else ""
