"""Services, masquerade and barriers from ``nft -j list ruleset``, whoever made them. Pure.

kube-proxy's table is known by its name and its maps ``service-ips`` and ``service-nodeports``;
what its chains do is read in :mod:`lab.cluster.observers.service_chains`.
Sources: pkg/proxy/nftables of Kubernetes 1.36, pkg/trafficmngr/nftables of flannel 0.28.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from lab.cluster.observers import service_chains
from lab.cluster.observers.nft_words import (
    destination_ports,
    destinations,
    device_of,
    is_about_invalid,
    is_by_chance,
    mark_of,
    packets,
    prefixes,
    protocol_name,
    protocol_of,
    verdict,
    words,
)
from lab.cluster.observers.passage import NOTHING_TRANSLATED, Barrier, Translated, Translations
from lab.cluster.observers.rules import Leaving, Ruleset, masquerades
from lab.cluster.observers.service_chains import Expression, Table

SERVICES = "kube-proxy"
_OTHER_FAMILY = "ip6"
"""A lab is IPv4."""
_Key = tuple[str, str | None, int]
"""Protocol, address (None for a NodePort) and port."""


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
        for it in masquerades([it for rule in one.rules[chain] for it in _leaving(one, rule)])
    )
    return Ruleset(
        replace(found, masquerades=leaving),
        tuple(it for one in tables for it in _barriers(one, live[one.family, one.name])),
    )


def _tables(entries: Iterable[Expression]) -> list[Table]:
    tables: dict[tuple[str, str], Table] = {}
    for entry in entries:
        kind, body = next(iter(entry.items()))
        if kind not in {"chain", "rule", "map", "set"} or body["family"] == _OTHER_FAMILY:
            continue
        key = (str(body["family"]), str(body["table"]))
        table = tables.setdefault(key, Table(*key))
        if kind == "set":
            table.timeouts[str(body["name"])] = body.get("timeout")
            table.sets[str(body["name"])] = list(body.get("elem", ()))
        elif kind == "map":
            table.maps[str(body["name"])] = list(body.get("elem", ()))
        elif kind == "rule":
            table.rules.setdefault(str(body["chain"]), []).append(body)
        else:
            table.rules.setdefault(str(body["name"]), [])
            if "hook" in body:
                table.hooks[str(body["name"])] = body
    return list(tables.values())


def _services(table: Table, live: set[str]) -> Translations:
    """The Services; none where nothing leads to their maps."""
    found: dict[_Key, Translated] = {}
    if "services" in live:
        for name in ("service-ips", "service-nodeports"):
            for element, target in table.maps.get(name, ()):
                key = _key(element)
                found[key] = service_chains.translated(table, key, target)
    if live & {"service-endpoints-check", "nodeport-endpoints-check"}:
        for name in ("no-endpoint-services", "no-endpoint-nodeports"):
            for element, verdict_of in table.maps.get(name, ()):
                key = _key(element)
                there = found.get(key, Translated(*key, ()))
                found[key] = replace(there, lost="drop" in verdict_of)
    ours = "mark-for-masquerade" in table.rules
    marked = "masquerading" in live and any(
        verdict(rule) == "masquerade" for rule in table.rules["masquerading"]
    )
    stranded = not ours and any(map(_is_of_service, table.rules.keys() - live))
    by = "lab" if ours else "nftables"
    return Translations(by, _sorted(found.values()), (), marked, stranded)


def _is_of_service(chain: str) -> bool:
    """Whether kube-proxy has made it for a Service: ``service-OPKMFHQF-shop/web/tcp/http``."""
    return chain.startswith("service-") and "/" in chain


def _sorted(found: Iterable[Translated]) -> tuple[Translated, ...]:
    return tuple(sorted(found, key=lambda one: (one.address or "", one.port, one.protocol)))


def _key(key: Expression) -> _Key:
    """Protocol, address and port of an element's key, with a comment or without."""
    if "elem" in key:
        key = key["elem"]["val"]
    parts = list(key["concat"])
    address = str(parts[0]) if len(parts) == 3 else None  # noqa: PLR2004  address, protocol, port
    return protocol_name(parts[-2]), address, int(parts[-1])


def _leaving(table: Table, rule: Expression) -> Iterator[Leaving]:
    """One for each source: Calico's rule has a set of all pools."""
    sources, source_is_not = prefixes(rule, "saddr", table.sets)
    destination, not_destination = prefixes(rule, "daddr", table.sets)
    for source in sources or (None,):
        yield Leaving(
            verdict=verdict(rule),
            source=source,
            source_is_not=source_is_not,
            spared=destination if not_destination else (),
            destination=destination[0] if destination and not not_destination else None,
            marked=mark_of(rule),
        )


def _barriers(table: Table, live: set[str]) -> Iterator[Barrier]:
    if table.name == SERVICES:
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
                table=table.name,
            )


def _accepts(table: Table, chain: str) -> bool:
    rules = table.rules.get(chain, [])
    return any(verdict(rule) == "accept" or table.targets(rule) for rule in rules)


def _barrier(table: Table, where: str, rule: Expression) -> Barrier:
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
        refuses=verdict(rule) == "reject",
        by_chance=is_by_chance(rule),
        device=device_of(rule),
        table=table.name,
    )
