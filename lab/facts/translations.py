"""What a node does to packets, as it was seen: translates, masquerades, loses or refuses them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network
from typing import NamedTuple


class End(NamedTuple):
    """Where packets are sent on to."""

    address: str
    port: int


@dataclass(frozen=True, slots=True)
class Translated:
    """Packets to this address and port go to these backends."""

    protocol: str
    """``"tcp"`` or ``"udp"``."""
    address: str | None
    """None for a NodePort: any address of the node."""
    port: int
    backends: tuple[End, ...]
    """None at all: packets are refused, or lost."""
    lost: bool = False
    """Whether packets without a backend are dropped; else they are refused."""
    own: tuple[End, ...] | None = None
    """Of a NodePort that leads the node's own packets, and its pods', to other backends than
    those that come from elsewhere: where those go. None where it makes no difference."""
    affinity: int | None = None
    """Seconds for which a client keeps its backend; None for no affinity."""
    kept: bool = False
    """Of a NodePort: whether what comes from elsewhere keeps the address that it came from."""


@dataclass(frozen=True, slots=True)
class Masquerade:
    """Packets from ``source`` leave with the node's address, but for those to ``spared``."""

    source: str
    spared: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Barrier:
    """A rule that loses or refuses packets."""

    where: str
    """Table and chain, or device."""
    rule: str
    """As its tool writes it."""
    protocol: str = ""
    """Empty for any."""
    ports: tuple[int, int] | None = None
    """First and last destination port; None for any."""
    prefixes: tuple[str, ...] = ()
    """Sources and destinations that it names; none at all for any."""
    packets: int | None = None
    """How many it has met, where it counts."""
    shows: str = ""
    """The command that shows it."""
    mends: str = ""
    """The command that takes it away."""
    refuses: bool = False
    """Whether the sender gets an error; else packets are lost silently."""
    by_chance: bool = False
    """Whether it takes some of the packets only, by lot."""
    device: str = ""
    """By which they come or leave; empty for any."""
    table: str = ""
    """Of nftables; empty where it is none of its."""
    networks: tuple[str, ...] = ()
    """Of a rule about ARP: those in which the machine itself asks with an address of the rule."""


@dataclass(frozen=True, slots=True)
class Translations:
    """What the node translates."""

    by: str
    """``"lab"``, ``"nftables"``, ``"iptables"``, ``"hns"``; empty where there is nothing."""
    services: tuple[Translated, ...]
    masquerades: tuple[Masquerade, ...]
    marked: bool
    """Whether what kube-proxy has marked is masqueraded, by Linux; HNS does without."""
    stranded: bool = False
    """Whether kube-proxy has chains for Services that nothing leads to."""


NOTHING_TRANSLATED = Translations("", (), (), marked=False)


KUBE_PROXY_MARK = 0x4000
"""The bit of the packet mark by which kube-proxy asks for masquerade (its own default)."""


@dataclass(frozen=True, slots=True)
class Leaving:
    """One rule of a postrouting chain: which packets it takes, and what becomes of them."""

    verdict: str
    """``"masquerade"``, or ``"return"`` and ``"accept"``, which spare."""
    source: str | None = None
    """None for any."""
    source_is_not: bool = False
    spared: tuple[str, ...] = ()
    """Destinations that it does not take, of a masquerade."""
    destination: str | None = None
    """The destination that it takes; None for any."""
    marked: bool | None = None
    """True where it takes kube-proxy's marked packets only, False where only others."""


def masquerades(rules: Sequence[Leaving]) -> tuple[Masquerade, ...]:
    """Who leaves with the node's address, from one chain's rules in their order."""
    found = []
    spared: list[tuple[str | None, str]] = []
    for rule in rules:
        if rule.verdict != "masquerade":
            if rule.destination and not rule.source_is_not and rule.marked is None:
                spared.append((rule.source, rule.destination))
        elif rule.source and not rule.source_is_not and not rule.marked and not rule.destination:
            passed = [where for source, where in spared if _meet(source, rule.source)]
            found.append(Masquerade(rule.source, tuple(dict.fromkeys((*passed, *rule.spared)))))
    return tuple(found)


def _meet(one: str | None, other: str) -> bool:
    return one is None or overlap(one, other)


def overlap(one: str, other: str) -> bool:
    """Whether two prefixes have addresses in common; what is no IPv4 prefix has none."""
    try:
        return IPv4Network(one, strict=False).overlaps(IPv4Network(other, strict=False))
    except ValueError:
        return False


def within(inner: str, outer: str) -> bool:
    """Whether a prefix lies wholly within another."""
    try:
        return IPv4Network(inner, strict=False).subnet_of(IPv4Network(outer, strict=False))
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class Ruleset:
    """Everything that one tool's rules say."""

    translations: Translations
    barriers: tuple[Barrier, ...]


def joined(rulesets: Iterable[Ruleset]) -> Ruleset:
    """What several tools' rules say together: the Services of the one that has any."""
    there = tuple(rulesets)
    services: tuple[Translated, ...] = ()
    by = ""
    for one in there:
        if one.translations.services and not services:
            services, by = one.translations.services, one.translations.by
    return Ruleset(
        Translations(
            by,
            services,
            tuple(it for one in there for it in one.translations.masquerades),
            any(one.translations.marked for one in there),
            any(one.translations.stranded for one in there),
        ),
        tuple(it for one in there for it in one.barriers),
    )
