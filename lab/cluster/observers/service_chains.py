"""A table of nftables, and what the chains of a Service in it do with a packet. Pure.

kube-proxy's chains are followed to the endpoints in the shape of every version: a chain an
endpoint (with affinity, and up to 1.35), and a map of endpoints in the Service's own chain.
What a rule does for the node's own packets, or its pods', stands beside what it does for others.
Source: pkg/proxy/nftables of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lab.cluster.observers.nft_words import is_from_here, marks, protocol_of, remembered_in
from lab.cluster.observers.passage import End, Translated

Expression = Mapping[str, Any]


@dataclass(slots=True)
class Table:
    """One table while it is being read."""

    family: str
    name: str
    hooks: dict[str, Expression] = field(default_factory=dict)
    """Base chains."""
    rules: dict[str, list[Expression]] = field(default_factory=dict)
    maps: dict[str, list[Sequence[Any]]] = field(default_factory=dict)
    sets: dict[str, list[object]] = field(default_factory=dict)
    """Their elements, as nft writes them."""
    timeouts: dict[str, int | None] = field(default_factory=dict)
    """Seconds after which elements of a set go; None where they stay."""

    def live(self) -> set[str]:
        """The chains that a packet can come to."""
        reached, ahead = set[str](), list(self.hooks)
        while ahead:
            chain = ahead.pop()
            if chain in reached:
                continue
            reached.add(chain)
            for rule in self.rules.get(chain, ()):
                ahead += self.targets(rule)
        return reached

    def targets(self, rule: Expression) -> list[str]:
        """The chains that a rule may send a packet to."""
        return [name for part in rule["expr"] for name in self._targets(part)]

    def _targets(self, part: Expression) -> Iterator[str]:
        for way in ("jump", "goto"):
            if isinstance(part.get(way), Mapping):
                yield str(part[way]["target"])
        if isinstance(part.get("vmap"), Mapping):
            data = part["vmap"].get("data")
            pairs = self.maps.get(data[1:], []) if isinstance(data, str) else data.get("set", [])
            for _, target in pairs:
                yield from self._targets(target) if isinstance(target, Mapping) else ()


@dataclass(slots=True)
class _Read:
    """What was found in the chains of one Service's port."""

    protocol: str
    ends: set[End] = field(default_factory=set)
    own: set[End] = field(default_factory=set)
    """Of packets of the node's own, and of its pods."""
    short: bool = False
    """Whether those are led apart."""
    marked: bool = False
    sets: set[str] = field(default_factory=set)
    """Where clients are remembered."""


def translated(table: Table, key: tuple[str, str | None, int], target: Expression) -> Translated:
    """What becomes of packets to a Service, from the chain that its element leads to."""
    protocol, address, port = key
    read = _Read(protocol)
    first = str(next(iter(target.values()))["target"])
    _follow(table, first, read, from_here=False, been=set())
    seconds = {table.timeouts.get(name) for name in read.sets} - {None}
    return Translated(
        protocol,
        address,
        port,
        tuple(sorted(read.ends)),
        own=tuple(sorted(read.own)) if read.short else None,
        affinity=min((one for one in seconds if one), default=None),
        kept=address is None and not read.marked,
    )


def _follow(table: Table, chain: str, read: _Read, *, from_here: bool, been: set[str]) -> None:
    """Every rule of a chain, and of those that it leads to."""
    visit = f"{chain} {from_here}"
    if visit in been:
        return
    been.add(visit)
    for rule in table.rules.get(chain, ()):
        if (protocol_of(rule) or read.protocol) != read.protocol:
            continue
        here = from_here or is_from_here(rule)
        read.sets.update(remembered_in(rule))
        targets = table.targets(rule)
        if not here and (marks(rule) or any(_is_marker(table, one) for one in targets)):
            read.marked = True
        if here and not from_here and any(not _is_marker(table, one) for one in targets):
            read.short = True
        found = {end for part in rule["expr"] if "dnat" in part for end in _ends(part["dnat"])}
        (read.own if here else read.ends).update(found)
        for one in targets:
            _follow(table, one, read, from_here=here, been=been)


def _is_marker(table: Table, chain: str) -> bool:
    """Whether a chain does nothing but mark."""
    rules = table.rules.get(chain, [])
    return bool(rules) and all(marks(rule) and not table.targets(rule) for rule in rules)


def _ends(dnat: Expression) -> Iterator[End]:
    """One address, or the values of a map of them."""
    address = dnat.get("addr")
    if isinstance(address, str):
        yield End(address, int(dnat.get("port", 0)))
    elif isinstance(address, Mapping):
        for _, value in address.get("map", {}).get("data", {}).get("set", ()):
            if isinstance(value, Mapping) and "concat" in value:
                yield End(str(value["concat"][0]), int(value["concat"][1]))
