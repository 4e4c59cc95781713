"""Services, masquerading and barriers from ``nft -j list ruleset``, for rules of any origin. Pure.

kube-proxy's table is known by its name and its maps ``service-ips`` and ``service-nodeports``. Its
chains are followed to the endpoints in the form of every version: a chain per endpoint (with
affinity, and up to 1.35), or a map of endpoints in the Service's own chain. The effect of a rule on
packets from the node itself or its pods is kept apart from its effect on others.

Sources: pkg/proxy/nftables of Kubernetes 1.36, pkg/trafficmngr/nftables of flannel 0.28.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address, summarize_address_range
from typing import Any

from lab.facts.ruleset import read_ruleset
from lab.facts.translations import (
    KUBE_PROXY_MARK,
    NOTHING_TRANSLATED,
    Barrier,
    End,
    Leaving,
    RuleEffects,
    ServiceChains,
    Translated,
    Translations,
    masquerades,
    only_hook,
)
from lab.topology.subject import ChainSubject

Rule = Mapping[str, Any]
_NO_SETS: Mapping[str, Iterable[object]] = {}
_PROTOCOLS = {1: "icmp", 6: "tcp", 17: "udp", 132: "sctp"}
_VERDICTS = ("accept", "drop", "reject", "return", "masquerade", "dnat", "snat", "queue")


def verdict(rule: Rule) -> str:
    """What the rule does with a packet; empty if it only marks, counts or jumps."""
    for part in rule["expr"]:
        for name in _VERDICTS:
            if name in part:
                return name
    return ""


def protocol_name(protocol: object) -> str:
    """``"tcp"`` even if nft prints 6: without ``/etc/protocols`` it has no names."""
    return _PROTOCOLS.get(protocol, str(protocol)) if isinstance(protocol, int) else str(protocol)


def _matches(rule: Rule) -> Iterator[tuple[str, str, object, object]]:
    """Operator, what is matched (``ip saddr``), its value, and the left side unchanged."""
    for part in rule["expr"]:
        match = part.get("match")
        if match:
            left = match["left"]
            yield str(match["op"]), _field(left), match["right"], left


def _unmasked(left: object) -> object:
    """What is matched, without the bits that are looked at: ``tcp flags`` of ``syn / syn,ack``."""
    return left["&"][0] if isinstance(left, Mapping) and "&" in left else left


def _field(left: object) -> str:
    if not isinstance(left, Mapping):
        return str(left)
    if "payload" in left:
        payload = left["payload"]
        return f"{payload.get('protocol', '')} {payload.get('field', '')}".strip()
    kind, body = next(iter(left.items()))
    if isinstance(body, Mapping):
        return f"{kind} {body.get('key', body.get('result', ''))}".strip()
    return str(kind)


def prefixes(
    rule: Rule, side: str, sets: Mapping[str, Iterable[object]] = _NO_SETS
) -> tuple[tuple[str, ...], bool]:
    """The prefixes of ``saddr`` or ``daddr``, and whether the match is negated.

    Prefixes in a named set are its elements, if the sets are given.
    """
    for operator, operand, right, _ in _matches(rule):
        if operand in {f"ip {side}", f"arp {side} ip"}:
            named = sets.get(right[1:], ()) if isinstance(right, str) and right[:1] == "@" else ()
            networks = (prefix for part in (right, *named) for prefix in _prefixes(part))
            return tuple(networks), operator == "!="
    return (), False


def _prefixes(right: object) -> Iterator[str]:
    if isinstance(right, str):
        if not right.startswith("@"):
            yield right if "/" in right else f"{right}/32"
    elif isinstance(right, Mapping):
        if "prefix" in right:
            yield f"{right['prefix']['addr']}/{right['prefix']['len']}"
        if "range" in right:  # nft prints adjoining prefixes like this
            first, last = map(IPv4Address, right["range"])
            yield from map(str, summarize_address_range(first, last))
        for element in right.get("set", ()):
            yield from _prefixes(element)


def named_prefixes(rule: Rule) -> tuple[str, ...]:
    """Every prefix that a rule names, source or destination."""
    networks: list[str] = []
    for side in ("saddr", "daddr"):
        named, negated = prefixes(rule, side)
        networks += () if negated else named
    return tuple(networks)


def protocol_of(rule: Rule) -> str | None:
    """``"tcp"``, ``"udp"``, ``"icmp"`` or ``"arp"`` if a rule is for one of them."""
    for operator, operand, right, left in _matches(rule):
        numbered = operand in {"meta l4proto", "ip protocol"} and isinstance(right, str | int)
        if operator == "==" and numbered:
            return protocol_name(right)
        of, _, _ = _field(_unmasked(left)).partition(" ")
        if of in {"tcp", "udp", "icmp", "arp"}:
            return of
    return None


def destination_ports(rule: Rule) -> tuple[int, int] | None:
    """The first and last destination port of a rule; None for any."""
    for operator, operand, right, _ in _matches(rule):
        if operand.endswith(" dport") and operator in {"==", "in"}:
            numbers = sorted(_numbers(right))
            if numbers:
                return numbers[0], numbers[-1]
    return None


def _numbers(right: object) -> Iterator[int]:
    if isinstance(right, int):
        yield right
    elif isinstance(right, Mapping):
        for element in right.get("range", right.get("set", ())):
            yield from _numbers(element)


def mark_of(rule: Rule) -> bool | None:
    """Whether a rule requires kube-proxy's mark (True) or its absence (False); None for both."""
    for operator, operand, right, left in _matches(rule):
        masked = isinstance(left, Mapping) and "&" in left
        if operand == "meta mark" and right == KUBE_PROXY_MARK:
            return operator == "=="
        if masked and isinstance(left, Mapping) and left["&"][-1] == KUBE_PROXY_MARK:
            return (operator == "!=") == (right == 0)
    return None


def is_from_here(rule: Rule) -> bool:
    """Whether a rule is only for packets from the node itself or from its pods."""
    for operator, operand, right, left in _matches(rule):
        flags = left.get("fib", {}).get("flags", ()) if isinstance(left, Mapping) else ()
        if operand == "fib type" and "saddr" in flags and right == "local" and operator == "==":
            return True
        if operand == "ip saddr" and operator == "==" and not str(right).startswith("@"):
            return True
    return False


def remembered_in(rule: Rule) -> Iterator[str]:
    """The sets of clients that a rule matches: a client in one is sent to the set's backend."""
    for operator, operand, right, _ in _matches(rule):
        if operand == "ip saddr" and operator in {"==", "in"} and str(right).startswith("@"):
            yield str(right)[1:]


def marks(rule: Rule) -> bool:
    """Whether a rule sets kube-proxy's mark."""
    for part in rule["expr"]:
        mangle = part.get("mangle")
        if isinstance(mangle, Mapping) and _field(mangle.get("key")) == "meta mark":
            value = mangle.get("value")
            if isinstance(value, Mapping) and KUBE_PROXY_MARK in value.get("|", ()):
                return True
    return False


def is_about_invalid(rule: Rule) -> bool:
    """Whether a rule is for packets of no connection, which may be dropped."""
    return any(
        operand == "ct state" and "invalid" in str(right) for _, operand, right, _ in _matches(rule)
    )


def is_by_chance(rule: Rule) -> bool:
    """Whether a rule is random."""
    return any(
        isinstance(left, Mapping) and "numgen" in left and left["numgen"].get("mode") == "random"
        for _, _, _, left in _matches(rule)
    )


def device_of(rule: Rule) -> str:
    """The one device by which packets come or leave; empty if the rule names none."""
    for operator, operand, right, _ in _matches(rule):
        if operand in {"meta iifname", "meta oifname", "meta iif", "meta oif"} and operator == "==":
            return str(right) if isinstance(right, str) else ""
    return ""


def packets(rule: Rule) -> int | None:
    """A rule's packet counter, or None."""
    for part in rule["expr"]:
        counter = part.get("counter")
        if isinstance(counter, Mapping):
            return int(counter.get("packets", 0))
    return None


def words(rule: Rule) -> str:
    """The rule in nft's syntax, close enough to recognise it."""
    return " ".join(word for part in rule["expr"] for word in _words(part))


def _words(part: Rule) -> Iterator[str]:
    kind, body = next(iter(part.items()))
    if kind == "match":
        operator = "" if body["op"] in {"==", "in"} else f"{body['op']} "
        yield f"{_left(body['left'])} {operator}{_value(body['right'])}"
    elif kind == "counter":
        return
    elif body is None:
        yield kind
    elif kind == "reject":
        yield f"reject with {body.get('type', '')} {body.get('expr', '')}".strip()
    elif kind in {"jump", "goto"}:
        yield f"{kind} {body['target']}"
    elif kind == "comment":
        return
    else:
        yield kind


def _left(left: object) -> str:
    if isinstance(left, Mapping) and "&" in left:
        inner, mask = left["&"]
        bits = f"{mask:#x}" if isinstance(mask, int) else ",".join(mask)
        return f"{_field(inner)} and {bits}"
    if isinstance(left, Mapping) and "numgen" in left:
        return f"numgen {left['numgen']['mode']} mod {left['numgen']['mod']}"
    return _field(left)


def _value(right: object) -> str:
    if isinstance(right, Mapping):
        if "prefix" in right:
            return f"{right['prefix']['addr']}/{right['prefix']['len']}"
        if "range" in right:
            return "-".join(str(_value(end)) for end in right["range"])
        if "set" in right:
            return "{ " + ", ".join(_value(element) for element in right["set"]) + " }"
    return str(right)


Expression = Mapping[str, Any]


@dataclass(slots=True)
class Table:
    """One table while it is being parsed."""

    family: str
    name: str
    hooks: dict[str, Expression] = field(default_factory=dict)
    """Base chains."""
    rules: dict[str, list[Expression]] = field(default_factory=dict)
    maps: dict[str, list[Sequence[Any]]] = field(default_factory=dict)
    sets: dict[str, list[object]] = field(default_factory=dict)
    """Elements of the sets, as nft prints them."""
    timeouts: dict[str, int | None] = field(default_factory=dict)
    """Seconds after which elements of a set expire; None if they do not."""

    def live(self, *chains: str) -> set[str]:
        """The chains that a packet can reach, from any base chain or from these."""
        reached, ahead = set[str](), list(chains or self.hooks)
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


def translated(table: Table, key: tuple[str, str | None, int], target: Expression) -> Translated:
    """What happens to packets to a Service, from the chain of its map element on."""
    read = ServiceChains()
    first = str(next(iter(target.values()))["target"])
    _follow(table, first, key[0], read, from_here=False, been=set())
    return read.translated(*key)


def _follow(  # noqa: PLR0913  a walk over chains
    table: Table, chain: str, protocol: str, read: ServiceChains, *, from_here: bool, been: set[str]
) -> None:
    """Read every rule of a chain and of the chains that it leads to."""
    visit = f"{chain} {from_here}"
    if visit in been:
        return
    been.add(visit)
    for rule in table.rules.get(chain, ()):
        if (protocol_of(rule) or protocol) != protocol:
            continue
        here = from_here or is_from_here(rule)
        times = [table.timeouts.get(name) for name in remembered_in(rule)]
        read.seconds = min((limit for limit in (*times, read.seconds) if limit), default=None)
        targets = table.targets(rule)
        if not here and (marks(rule) or any(_is_marker(table, target) for target in targets)):
            read.marked = True
        if here and not from_here and any(not _is_marker(table, target) for target in targets):
            read.short = True
        ends = {end for part in rule["expr"] if "dnat" in part for end in _ends(part["dnat"])}
        (read.own if here else read.ends).update(ends)
        for target in targets:
            _follow(table, target, protocol, read, from_here=here, been=been)


def _is_marker(table: Table, chain: str) -> bool:
    """Whether a chain only marks."""
    rules = table.rules.get(chain, [])
    return bool(rules) and all(marks(rule) and not table.targets(rule) for rule in rules)


def _ends(dnat: Expression) -> Iterator[End]:
    """One address, or the values of a map of addresses."""
    address = dnat.get("addr")
    if isinstance(address, str):
        yield End(address, int(dnat.get("port", 0)))
    elif isinstance(address, Mapping):
        for _, value in address.get("map", {}).get("data", {}).get("set", ()):
            if isinstance(value, Mapping) and "concat" in value:
                yield End(str(value["concat"][0]), int(value["concat"][1]))


SERVICES = "kube-proxy"
_OTHER_FAMILY = "ip6"
"""Families with IPv4; a lab has no IPv6."""
_Key = tuple[str, str | None, int]
"""Protocol, address (None for a NodePort) and port."""


def read(
    entries: Iterable[Expression], *, but: frozenset[tuple[str, str]], listing: str = ""
) -> RuleEffects:
    """Parse a ruleset.

    Parameters
    ----------
    entries
        The list ``nftables`` of nft's output.
    but
        Family and name of tables that another tool has listed.
    listing
        The same rules as ``nft -a list ruleset`` prints them, to show those that are named.

    """
    listed = {
        (table.name, chain.name, handle): text
        for table in read_ruleset(listing).values()
        for chain in table.objects.values()
        for text, handle in chain.rules
    }
    tables = [table for table in _tables(entries) if (table.family, table.name) not in but]
    services = next(
        (table for table in tables if (table.family, table.name) == ("ip", SERVICES)), None
    )
    live = {(table.family, table.name): table.live() for table in tables}
    translations = _services(services, live["ip", SERVICES]) if services else NOTHING_TRANSLATED
    leaving = tuple(
        it
        for table in tables
        for chain in table.rules
        if chain in live[table.family, table.name]
        for it in masquerades([it for rule in table.rules[chain] for it in _leaving(table, rule)])
    )
    return RuleEffects(
        replace(translations, masquerades=leaving),
        tuple(
            it
            for table in tables
            for it in _barriers(table, live[table.family, table.name], listed)
        ),
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
    """The Services; none if nothing leads to their maps."""
    by_key: dict[_Key, Translated] = {}
    if "services" in live:
        for name in ("service-ips", "service-nodeports"):
            for element, target in table.maps.get(name, ()):
                key = _key(element)
                by_key[key] = translated(table, key, target)
    if live & {"service-endpoints-check", "nodeport-endpoints-check"}:
        for name in ("no-endpoint-services", "no-endpoint-nodeports"):
            for element, verdict_of in table.maps.get(name, ()):
                key = _key(element)
                known = by_key.get(key, Translated(*key, ()))
                by_key[key] = replace(known, lost="drop" in verdict_of)
    ours = "mark-for-masquerade" in table.rules
    marked = "masquerading" in live and any(
        verdict(rule) == "masquerade" for rule in table.rules["masquerading"]
    )
    stranded = not ours and any(map(_is_of_service, table.rules.keys() - live))
    by = "lab" if ours else "nftables"
    return Translations(by, _sorted(by_key.values()), (), marked, stranded)


def _is_of_service(chain: str) -> bool:
    """Whether a chain is kube-proxy's for a Service: ``service-OPKMFHQF-shop/web/tcp/http``."""
    return chain.startswith("service-") and "/" in chain


def _sorted(services: Iterable[Translated]) -> tuple[Translated, ...]:
    return tuple(
        sorted(
            services, key=lambda service: (service.address or "", service.port, service.protocol)
        )
    )


def _key(key: Expression) -> _Key:
    """Protocol, address and port of an element's key, with or without a comment."""
    if "elem" in key:
        key = key["elem"]["val"]
    parts = list(key["concat"])
    address = str(parts[0]) if len(parts) == 3 else None  # noqa: PLR2004  address, protocol, port
    return protocol_name(parts[-2]), address, int(parts[-1])


def _leaving(table: Table, rule: Expression) -> Iterator[Leaving]:
    """One item per source: Calico's rule has a set of all pools."""
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


_Listed = Mapping[tuple[str, str, str], str]
"""Rules as nft lists them, by table, chain and handle."""


def _barriers(table: Table, live: set[str], listed: _Listed) -> Iterator[Barrier]:
    if table.name == SERVICES:
        return
    reached = [(str(body["hook"]), table.live(name)) for name, body in table.hooks.items()]
    for chain, rules in table.rules.items():
        if chain not in live:
            continue
        subject = ChainSubject(table.family, table.name, chain)
        sees = only_hook(hook for hook, chains in reached if chain in chains)
        for rule in rules:
            if verdict(rule) in {"drop", "reject"} and not is_about_invalid(rule):
                yield _barrier(table, subject, rule, sees, listed)
        hook = table.hooks.get(chain)
        if hook and hook.get("policy") == "drop" and not _accepts(table, chain):
            yield Barrier(
                subject,
                f"policy drop at hook {hook['hook']}, and nothing is accepted",
                shows=f"nft list chain {table.family} {table.name} {chain}",
                mends=f"nft add chain {table.family} {table.name} {chain} '{{ policy accept; }}'",
                table=table.name,
                hook=sees,
            )


def _accepts(table: Table, chain: str) -> bool:
    rules = table.rules.get(chain, [])
    return any(verdict(rule) == "accept" or table.targets(rule) for rule in rules)


def _barrier(
    table: Table, subject: ChainSubject, rule: Expression, hook: str, listed: _Listed
) -> Barrier:
    chain = f"{table.family} {table.name} {rule['chain']}"
    key = (f"{table.family} {table.name}", str(rule["chain"]), str(rule.get("handle", "")))
    return Barrier(
        subject=subject,
        rule=listed.get(key) or words(rule),
        protocol=protocol_of(rule) or "",
        ports=destination_ports(rule),
        prefixes=named_prefixes(rule),
        packets=packets(rule),
        shows=f"nft -a list chain {chain}",
        mends=f"nft delete rule {chain} handle {rule.get('handle', '')}",
        refuses=verdict(rule) == "reject",
        by_chance=is_by_chance(rule),
        device=device_of(rule),
        table=table.name,
        hook=hook,
    )
