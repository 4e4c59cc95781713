"""What a node was seen doing to packets: translation, masquerading, dropping, rejecting."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Network
from typing import NamedTuple

from lab.topology.subject import Subject


class End(NamedTuple):
    """Destination of translated packets."""

    address: str
    port: int


@dataclass(frozen=True, slots=True)
class Translated:
    """A Service's port: packets to this address and port go to these backends."""

    protocol: str
    """``"tcp"`` or ``"udp"``."""
    address: str | None
    """None for a NodePort: any address of the node."""
    port: int
    backends: tuple[End, ...]
    """Empty: packets are rejected or dropped."""
    lost: bool = False
    """Whether packets without a backend are dropped; otherwise they are rejected."""
    own: tuple[End, ...] | None = None
    """For a NodePort: the backends for packets from the node itself and its pods, if those differ
    from the backends for others; None if they are the same.
    """
    affinity: int | None = None
    """Seconds that a client keeps its backend; None without affinity."""
    kept: bool | None = False
    """For a NodePort: whether packets from elsewhere keep their source address; None if unknown."""
    behind: tuple[End, ...] | None = None
    """Backends of another load balancer of HNS for the same packets, which gets none; None if there
    is no other."""


@dataclass(slots=True)
class ServiceChains:
    """What was found in the chains of one Service's port, while they are followed."""

    ends: set[End] = field(default_factory=set)
    own: set[End] = field(default_factory=set)
    """Backends for packets from the node itself and from its pods."""
    short: bool = False
    """Whether those have other backends."""
    marked: bool = False
    seconds: int | None = None
    """How long clients are remembered."""

    def translated(self, protocol: str, address: str | None, port: int) -> Translated:
        """What happens to packets to the port."""
        return Translated(
            protocol,
            address,
            port,
            tuple(sorted(self.ends)),
            own=tuple(sorted(self.own)) if self.short else None,
            affinity=self.seconds,
            kept=address is None and not self.marked,
        )


@dataclass(frozen=True, slots=True)
class Masquerade:
    """Packets from ``source`` leave with the node's address, except those to ``spared``."""

    source: str
    spared: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Barrier:
    """A rule that drops or rejects packets."""

    subject: Subject
    """Where it is: a chain, or a device."""
    rule: str
    """The rule as its tool prints it."""
    protocol: str = ""
    """Empty for any."""
    ports: tuple[int, int] | None = None
    """First and last destination port; None for any."""
    prefixes: tuple[str, ...] = ()
    """Sources and destinations that it names; empty for any."""
    packets: int | None = None
    """Number of matched packets, if it counts."""
    shows: str = ""
    """The command that shows it."""
    mends: str = ""
    """The command that removes it."""
    refuses: bool = False
    """Whether the sender gets an error; otherwise packets are dropped silently."""
    by_chance: bool = False
    """Whether it takes a random part of the packets."""
    device: str = ""
    """The device by which they come or leave; empty for any."""
    table: str = ""
    """The nftables table; empty if it is in none."""
    hook: str = ""
    """``input``, ``forward`` or ``output`` if it only sees packets to the machine, through it or
    from it; else empty."""
    networks: tuple[str, ...] = ()
    """For an ARP rule: networks in which the machine itself sends ARP from an address of the
    rule."""


@dataclass(frozen=True, slots=True)
class Translations:
    """The node's translations."""

    by: str
    """``"lab"``, ``"nftables"``, ``"iptables"``, ``"hns"``; empty if there is nothing."""
    services: tuple[Translated, ...]
    masquerades: tuple[Masquerade, ...]
    marked: bool
    """Whether Linux masquerades packets with kube-proxy's mark; HNS has no mark."""
    stranded: bool = False
    """Whether kube-proxy has chains for Services that nothing leads to."""


NOTHING_TRANSLATED = Translations("", (), (), marked=False)


KUBE_PROXY_MARK = 0x4000
"""kube-proxy's packet mark bit for masquerading (its default)."""


@dataclass(frozen=True, slots=True)
class Leaving:
    """One rule of a postrouting chain: which packets it takes, and what it does with them."""

    verdict: str
    """``"masquerade"``, or ``"return"`` and ``"accept"``, which exempt packets."""
    source: str | None = None
    """None for any."""
    source_is_not: bool = False
    spared: tuple[str, ...] = ()
    """For masquerading: destinations that are exempt."""
    destination: str | None = None
    """The destination that it takes; None for any."""
    marked: bool | None = None
    """True: only packets with kube-proxy's mark; False: only others; None: both."""


def masquerades(rules: Sequence[Leaving]) -> tuple[Masquerade, ...]:
    """What leaves with the node's address, from one chain's rules in order."""
    masqueraded = []
    spared: list[tuple[str | None, str]] = []
    for rule in rules:
        if rule.verdict != "masquerade":
            if rule.destination and not rule.source_is_not and rule.marked is None:
                spared.append((rule.source, rule.destination))
        elif rule.source and not rule.source_is_not and not rule.marked and not rule.destination:
            passed = [where for source, where in spared if _meet(source, rule.source)]
            masqueraded.append(
                Masquerade(rule.source, tuple(dict.fromkeys((*passed, *rule.spared))))
            )
    return tuple(masqueraded)


def _meet(source: str | None, other: str) -> bool:
    return source is None or overlap(source, other)


HOOKS = frozenset({"input", "forward", "output"})


def only_hook(hooks: Iterable[str]) -> str:
    """The hook of a chain's rules, of those from which it is reached: see ``Barrier.hook``."""
    (first, *others) = {hook.lower() for hook in hooks} or {""}
    return first if first in HOOKS and not others else ""


def overlap(prefix: str, other: str) -> bool:
    """Whether two prefixes overlap; False if one is not an IPv4 prefix."""
    try:
        return IPv4Network(prefix, strict=False).overlaps(IPv4Network(other, strict=False))
    except ValueError:
        return False


def within(inner: str, outer: str) -> bool:
    """Whether a prefix lies within another."""
    try:
        return IPv4Network(inner, strict=False).subnet_of(IPv4Network(outer, strict=False))
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class RuleEffects:
    """The effects of one tool's rules."""

    translations: Translations
    barriers: tuple[Barrier, ...]


def join_rule_effects(rulesets: Iterable[RuleEffects]) -> RuleEffects:
    """Combine several tools' rules; the Services are from the one that has any."""
    listed = tuple(rulesets)
    services: tuple[Translated, ...] = ()
    by = ""
    for ruleset in listed:
        if ruleset.translations.services and not services:
            services, by = ruleset.translations.services, ruleset.translations.by
    return RuleEffects(
        Translations(
            by,
            services,
            tuple(it for ruleset in listed for it in ruleset.translations.masquerades),
            any(ruleset.translations.marked for ruleset in listed),
            any(ruleset.translations.stranded for ruleset in listed),
        ),
        tuple(it for ruleset in listed for it in ruleset.barriers),
    )
