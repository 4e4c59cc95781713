"""Services, masquerading and barriers from ``iptables-save -c``, for rules of any origin. Pure.

Sources: pkg/proxy/iptables of Kubernetes 1.36, pkg/trafficmngr/iptables of flannel 0.28. The names
of their chains begin with ``KUBE-`` and ``FLANNEL-``, those of Docker with ``DOCKER``.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from lab.facts.translations import (
    KUBE_PROXY_MARK,
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

_LOOPBACK = "127.0.0.0/8"
_KNOWN = ("KUBE-", "FLANNEL-", "CNI-", "DOCKER")
_ANY_PORT = (0, 65_535)
_COUNTED = re.compile(r"\[(\d+):\d+\] (.*)")
_BUILT_IN = {"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"}


@dataclass(frozen=True, slots=True)
class _Rule:
    """One rule: its text, and the values that are relevant here."""

    chain: str
    text: str
    packets: int | None
    target: str = ""
    source: str | None = None
    source_is_not: bool = False
    destination: str | None = None
    destination_is_not: bool = False
    protocol: str = ""
    ports: tuple[int, int] | None = None
    marked: bool | None = None
    invalid: bool = False
    local: bool = False
    """Whether it is for the node's own addresses."""
    from_here: bool = False
    """Whether it is for packets from the node itself or from its pods."""
    seconds: int | None = None
    """How long it remembers a client."""
    to: str = ""
    """DNAT's target."""


@dataclass(slots=True)
class _Table:
    name: str
    policies: dict[str, str] = field(default_factory=dict)
    rules: dict[str, list[_Rule]] = field(default_factory=dict)

    def live(self, *chains: str) -> set[str]:
        """The chains that a packet can reach, from any built-in chain or from these."""
        reached, ahead = set[str](), [name for name in chains or self.rules if name in _BUILT_IN]
        while ahead:
            chain = ahead.pop()
            if chain not in reached:
                reached.add(chain)
                ahead += [rule.target for rule in self.rules.get(chain, ())]
        return reached


def read(text: str) -> RuleEffects:
    """Parse the rules; :func:`tables` lists the tables that they are in."""
    by_name = {table.name: table for table in _tables(text)}
    nat, filters = by_name.get("nat"), by_name.get("filter")
    services = tuple(_services(nat, filters)) if nat else ()
    leaving = tuple(
        it
        for chain in (nat.live() if nat else ())
        for it in masquerades([_leaving(rule) for rule in nat.rules.get(chain, ())] if nat else [])
    )
    return RuleEffects(
        Translations("iptables" if services else "", services, leaving, _marked(nat)),
        tuple(it for table in by_name.values() for it in _barriers(table)),
    )


def tables(text: str) -> frozenset[tuple[str, str]]:
    """Family and name of the listed tables, as nft names them."""
    return frozenset(("ip", table.name) for table in _tables(text))


def _tables(text: str) -> list[_Table]:
    parsed: list[_Table] = []
    for line in text.splitlines():
        if line.startswith("*"):
            parsed.append(_Table(line[1:].strip()))
        elif line.startswith(":") and parsed:
            name, policy, *_ = line[1:].split()
            parsed[-1].policies[name] = policy
            parsed[-1].rules.setdefault(name, [])
        elif parsed and "-A " in line:
            rule = _rule(line)
            parsed[-1].rules.setdefault(rule.chain, []).append(rule)
    return parsed


def _rule(line: str) -> _Rule:
    counted = _COUNTED.match(line)
    number, text = (int(counted[1]), counted[2]) if counted else (None, line)
    words = shlex.split(text)
    chain, options = words[1], words[2:]
    values = _Options(options)
    source, source_is_not = values.value("-s", "--source")
    destination, destination_is_not = values.value("-d", "--destination")
    return _Rule(
        chain=chain,
        text=text,
        packets=number,
        target=values.value("-j", "--jump")[0] or values.value("-g", "--goto")[0] or "",
        source=source,
        source_is_not=source_is_not,
        destination=destination,
        destination_is_not=destination_is_not,
        protocol=values.value("-p", "--protocol")[0] or "",
        ports=_ports(values.value("--dport", "--dports")[0]),
        marked=_mark(*values.value("--mark")),
        invalid="INVALID" in (values.value("--ctstate", "--state")[0] or ""),
        local=values.value("--dst-type")[0] == "LOCAL",
        from_here=values.value("--src-type")[0] == "LOCAL" or (bool(source) and not source_is_not),
        seconds=_seconds(values.value("--seconds")[0]),
        to=values.value("--to-destination")[0] or "",
    )


class _Options:
    """The values of options; ``!`` before an option negates it."""

    def __init__(self, words: list[str]) -> None:
        self._words = words

    def value(self, *options: str) -> tuple[str | None, bool]:
        """The value of the first of these options that is present, and whether it is negated."""
        for number, word in enumerate(self._words[:-1]):
            if word in options:
                return self._words[number + 1], number > 0 and self._words[number - 1] == "!"
        return None, False


def _ports(text: str | None) -> tuple[int, int] | None:
    numbers = [int(number) for number in re.findall(r"\d+", text or "")]
    return (min(numbers), max(numbers)) if numbers else None


def _seconds(text: str | None) -> int | None:
    return int(text) if text else None


def _mark(text: str | None, negated: bool) -> bool | None:
    if text is None or int(text.split("/")[0], 0) != KUBE_PROXY_MARK:
        return None
    return not negated


def _services(nat: _Table, filters: _Table | None) -> Iterator[Translated]:
    services: dict[tuple[str, str | None, int], Translated] = {}
    for translation in (*_translations(nat), *_unserved(filters)):
        key = (translation.protocol, translation.address, translation.port)
        earlier = services.get(key)
        services[key] = replace(earlier, lost=translation.lost) if earlier else translation
    yield from services.values()


def _translations(nat: _Table) -> Iterator[Translated]:
    """The destinations of packets."""
    live = nat.live()
    for rule in nat.rules.get("KUBE-SERVICES", ()) if "KUBE-SERVICES" in live else ():
        if rule.destination and rule.ports and rule.target != "KUBE-MARK-MASQ":
            yield _translated(nat, rule, rule.destination.removesuffix("/32"))
    for rule in nat.rules.get("KUBE-NODEPORTS", ()) if "KUBE-NODEPORTS" in live else ():
        if rule.ports and rule.destination != _LOOPBACK and rule.target.startswith("KUBE-"):
            yield _translated(nat, rule, None)


def _unserved(filters: _Table | None) -> Iterator[Translated]:
    """What is rejected or dropped because it has no backend."""
    for name in ("KUBE-SERVICES", "KUBE-EXTERNAL-SERVICES"):
        for rule in filters.rules.get(name, ()) if filters else ():
            if rule.target in {"REJECT", "DROP"} and rule.ports:
                address = rule.destination.removesuffix("/32") if rule.destination else None
                if address or rule.local:
                    lost = rule.target == "DROP"
                    yield Translated(rule.protocol, address, rule.ports[0], (), lost=lost)


def _translated(nat: _Table, rule: _Rule, address: str | None) -> Translated:
    assert rule.ports, "asked for by the callers"
    read = ServiceChains()
    _follow(nat, rule.target, read, from_here=False, been=set())
    return read.translated(rule.protocol, address, rule.ports[0])


def _follow(
    nat: _Table, chain: str, read: ServiceChains, *, from_here: bool, been: set[str]
) -> None:
    """Read every rule of a chain and of the chains that it leads to."""
    visit = f"{chain} {from_here}"
    if visit in been:
        return
    been.add(visit)
    for rule in nat.rules.get(chain, ()):
        here = from_here or rule.from_here
        read.seconds = rule.seconds or read.seconds
        if rule.target == "DNAT" and ":" in rule.to:
            address, _, port = rule.to.partition(":")
            (read.own if here else read.ends).add(End(address, int(port)))
        elif rule.target == "KUBE-MARK-MASQ":
            read.marked |= not here
        elif rule.target.startswith("KUBE-"):
            read.short |= here and not from_here
            _follow(nat, rule.target, read, from_here=here, been=been)


def _marked(nat: _Table | None) -> bool:
    if nat is None or "KUBE-POSTROUTING" not in nat.live():
        return False
    return any(rule.target == "MASQUERADE" for rule in nat.rules["KUBE-POSTROUTING"])


def _leaving(rule: _Rule) -> Leaving:
    spared = (rule.destination,) if rule.destination and rule.destination_is_not else ()
    return Leaving(
        verdict={"MASQUERADE": "masquerade", "RETURN": "return", "ACCEPT": "accept"}.get(
            rule.target, ""
        ),
        source=rule.source,
        source_is_not=rule.source_is_not,
        spared=spared,
        destination=None if rule.destination_is_not else rule.destination,
        marked=rule.marked,
    )


def _barriers(table: _Table) -> Iterator[Barrier]:
    live = table.live()
    reached = {base: table.live(base) for base in _BUILT_IN}
    for chain, rules in table.rules.items():
        if chain not in live or chain.startswith(_KNOWN):
            continue
        subject = ChainSubject("", table.name, chain)
        shows = f"iptables -t {table.name} -L {chain} -n -v"
        hook = only_hook(base for base, chains in reached.items() if chain in chains)
        for rule in rules:
            if rule.target in {"DROP", "REJECT"} and not rule.invalid:
                yield _barrier(table, subject, shows, rule, hook)
        refuses = table.policies.get(chain) == "DROP"
        if refuses and all(rule.target in {"DROP", "REJECT"} for rule in rules):
            yield Barrier(
                subject,
                "policy DROP, and nothing is accepted",
                shows=shows,
                mends=f"iptables -t {table.name} -P {chain} ACCEPT",
                hook=hook,
            )


def _barrier(table: _Table, subject: ChainSubject, shows: str, rule: _Rule, hook: str) -> Barrier:
    named = (
        (rule.source, rule.source_is_not),
        (rule.destination, rule.destination_is_not),
    )
    return Barrier(
        subject=subject,
        rule=rule.text.removeprefix(f"-A {rule.chain} "),
        protocol=rule.protocol,
        ports=rule.ports if rule.ports != _ANY_PORT else None,
        prefixes=tuple(prefix for prefix, negated in named if prefix and not negated),
        packets=rule.packets,
        shows=shows,
        mends=f"iptables -t {table.name} -D {rule.text.removeprefix('-A ')}",
        refuses=rule.target == "REJECT",
        by_chance="--mode random" in rule.text,
        hook=hook,
    )
