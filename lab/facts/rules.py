"""What rules of nftables and iptables have in common once they are read. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network

from lab.facts.translations import Barrier, Masquerade, Translated, Translations

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
