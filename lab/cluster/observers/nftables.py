"""Services, masquerade and barriers from ``nft -j list ruleset``, whoever made them. Pure.

kube-proxy's table is known by its name and its maps ``service-ips`` and ``service-nodeports``;
its chains are followed to the endpoints, in the shape of every version: a chain an endpoint
(with affinity, and up to 1.35), and a map of endpoints in the Service's own chain.
Sources: pkg/proxy/nftables of Kubernetes 1.36, pkg/trafficmngr/nftables of flannel 0.28.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lab.cluster.observers.facts import NOTHING_TRANSLATED, Barrier, Translated, Translations
from lab.cluster.observers.nft_words import (
    destination_ports,
    destinations,
    is_about_invalid,
    mark_of,
    packets,
    prefixes,
    protocol_of,
    verdict,
    words,
)
from lab.cluster.observers.rules import Leaving, Ruleset, masquerades
from lab.topology.intent import Backend

SERVICES = "kube-proxy"
_OURS = {SERVICES, "host-limits"}
_FLANNEL = "flannel-"
_OTHER_FAMILY = "ip6"
"""A lab is IPv4."""
Expression = Mapping[str, Any]


@dataclass(slots=True)
class _Table:
    """One table while it is being read."""

    family: str
    name: str
    hooks: dict[str, Expression] = field(default_factory=dict)
    """Base chains."""
    rules: dict[str, list[Expression]] = field(default_factory=dict)
    maps: dict[str, list[Sequence[Any]]] = field(default_factory=dict)

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


def read(entries: Iterable[Expression], *, but: frozenset[tuple[str, str]]) -> Ruleset:
    """What a ruleset does.

    Parameters
    ----------
    entries
        The list ``nftables`` of nft's answer.
    but
        Family and name of tables that another tool has told of.

    """
    tables = [one for one in _tables(entries) if (one.family, one.name) not in but]
    services = next((one for one in tables if (one.family, one.name) == ("ip", SERVICES)), None)
    live = {(one.family, one.name): one.live() for one in tables}
    found = _services(services, live["ip", SERVICES]) if services else NOTHING_TRANSLATED
    leaving = tuple(
        it
        for one in tables
        for chain in one.rules
        if chain in live[one.family, one.name]
        for it in masquerades([_leaving(rule) for rule in one.rules[chain]])
    )
    return Ruleset(
        Translations(found.by, found.services, leaving, found.marked),
        tuple(it for one in tables for it in _barriers(one, live[one.family, one.name])),
    )


def _tables(entries: Iterable[Expression]) -> list[_Table]:
    tables: dict[tuple[str, str], _Table] = {}
    for entry in entries:
        kind, body = next(iter(entry.items()))
        if kind not in {"chain", "rule", "map"} or body["family"] == _OTHER_FAMILY:
            continue
        key = (str(body["family"]), str(body["table"]))
        table = tables.setdefault(key, _Table(*key))
        if kind == "map":
            table.maps[str(body["name"])] = list(body.get("elem", ()))
        elif kind == "rule":
            table.rules.setdefault(str(body["chain"]), []).append(body)
        else:
            table.rules.setdefault(str(body["name"]), [])
            if "hook" in body:
                table.hooks[str(body["name"])] = body
    return list(tables.values())


def _services(table: _Table, live: set[str]) -> Translations:
    """The Services; none where nothing leads to their maps."""
    found: list[Translated] = []
    if "services" in live:
        for name in ("service-ips", "service-nodeports"):
            found += [_translated(table, key, target) for key, target in table.maps.get(name, ())]
    if live & {"service-endpoints-check", "nodeport-endpoints-check"}:
        taken = {(one.address, one.port, one.protocol) for one in found}
        for name in ("no-endpoint-services", "no-endpoint-nodeports"):
            for key, _ in table.maps.get(name, ()):
                refused = Translated(*_key(key), ())
                if (refused.address, refused.port, refused.protocol) not in taken:
                    found.append(refused)
    ours = "mark-for-masquerade" in table.rules
    marked = "masquerading" in live and any(
        verdict(rule) == "masquerade" for rule in table.rules["masquerading"]
    )
    return Translations("lab" if ours else "nftables", _sorted(found), (), marked)


def _sorted(found: Iterable[Translated]) -> tuple[Translated, ...]:
    return tuple(sorted(found, key=lambda one: (one.address or "", one.port, one.protocol)))


def _key(key: Expression) -> tuple[str, str | None, int]:
    """Protocol, address and port of an element's key, with a comment or without."""
    if "elem" in key:
        key = key["elem"]["val"]
    parts = list(key["concat"])
    address = str(parts[0]) if len(parts) == 3 else None  # noqa: PLR2004  address, protocol, port
    return str(parts[-2]), address, int(parts[-1])


def _translated(table: _Table, key: Expression, target: Expression) -> Translated:
    protocol, address, port = _key(key)
    first = next(iter(target.values()))["target"]
    backends = dict.fromkeys(_backends(table, str(first), protocol, set()))
    return Translated(protocol, address, port, tuple(sorted(backends, key=_by_address)))


def _by_address(backend: Backend) -> tuple[str, int]:
    return backend.address, backend.port


def _backends(table: _Table, chain: str, protocol: str, been: set[str]) -> Iterator[Backend]:
    if chain in been:
        return
    been.add(chain)
    for rule in table.rules.get(chain, ()):
        said = protocol_of(rule)
        if said and said != protocol:
            continue
        for part in rule["expr"]:
            if "dnat" in part:
                yield from _ends(part["dnat"])
        for target in table.targets(rule):
            yield from _backends(table, target, protocol, been)


def _ends(dnat: Expression) -> Iterator[Backend]:
    """One address, or the values of a map of them."""
    address = dnat.get("addr")
    if isinstance(address, str):
        yield Backend("", address, int(dnat.get("port", 0)))
    elif isinstance(address, Mapping):
        for _, value in address.get("map", {}).get("data", {}).get("set", ()):
            if isinstance(value, Mapping) and "concat" in value:
                yield Backend("", str(value["concat"][0]), int(value["concat"][1]))


def _leaving(rule: Expression) -> Leaving:
    source, source_is_not = prefixes(rule, "saddr")
    destination, not_destination = prefixes(rule, "daddr")
    return Leaving(
        verdict=verdict(rule),
        source=source[0] if source else None,
        source_is_not=source_is_not,
        spared=destination if not_destination else (),
        destination=destination[0] if destination and not not_destination else None,
        marked=mark_of(rule),
    )


def _barriers(table: _Table, live: set[str]) -> Iterator[Barrier]:
    if table.name in _OURS or table.name.startswith(_FLANNEL):
        return
    for chain, rules in table.rules.items():
        if chain not in live:
            continue
        where = f"table {table.family} {table.name}, chain {chain}"
        for rule in rules:
            if verdict(rule) in {"drop", "reject"} and not is_about_invalid(rule):
                yield _barrier(table, where, rule)
        hook = table.hooks.get(chain)
        if hook and hook.get("policy") == "drop" and not _accepts(table, chain):
            yield Barrier(
                where,
                f"policy drop at hook {hook['hook']}, and nothing is accepted",
                shows=f"nft list chain {table.family} {table.name} {chain}",
                mends=f"nft add chain {table.family} {table.name} {chain} '{{ policy accept; }}'",
            )


def _accepts(table: _Table, chain: str) -> bool:
    rules = table.rules.get(chain, [])
    return any(verdict(rule) == "accept" or table.targets(rule) for rule in rules)


def _barrier(table: _Table, where: str, rule: Expression) -> Barrier:
    chain = f"{table.family} {table.name} {rule['chain']}"
    return Barrier(
        where=where,
        rule=words(rule),
        protocol=protocol_of(rule) or "",
        ports=destination_ports(rule),
        prefixes=destinations(rule),
        packets=packets(rule),
        shows=f"nft -a list chain {chain}",
        mends=f"nft delete rule {chain} handle {rule.get('handle', '')}",
    )
