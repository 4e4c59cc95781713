"""What one rule of nft's JSON says: its matches, its verdict, and its words. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from ipaddress import IPv4Address, summarize_address_range
from typing import Any

from lab.facts.rules import KUBE_PROXY_MARK

Rule = Mapping[str, Any]
_NO_SETS: Mapping[str, Iterable[object]] = {}
_PROTOCOLS = {1: "icmp", 6: "tcp", 17: "udp", 132: "sctp"}
_VERDICTS = ("accept", "drop", "reject", "return", "masquerade", "dnat", "snat", "queue")


def verdict(rule: Rule) -> str:
    """What becomes of a packet; empty where the rule only marks, counts or jumps."""
    for part in rule["expr"]:
        for name in _VERDICTS:
            if name in part:
                return name
    return ""


def protocol_name(protocol: object) -> str:
    """``"tcp"``, also where nft says 6: it has no names without ``/etc/protocols``."""
    return _PROTOCOLS.get(protocol, str(protocol)) if isinstance(protocol, int) else str(protocol)


def _matches(rule: Rule) -> Iterator[tuple[str, str, object, object]]:
    """Operator, what is matched (``ip saddr``), its value, and the left side as it is."""
    for part in rule["expr"]:
        match = part.get("match")
        if match:
            left = match["left"]
            yield str(match["op"]), _field(left), match["right"], left


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
    rule: Rule, field: str, sets: Mapping[str, Iterable[object]] = _NO_SETS
) -> tuple[tuple[str, ...], bool]:
    """The prefixes of ``saddr`` or ``daddr``, and whether they are those that are not meant.

    Those of a set that has a name are its elements, as far as the sets are given.
    """
    for operator, what, right, _ in _matches(rule):
        if what in {f"ip {field}", f"arp {field} ip"}:
            named = sets.get(right[1:], ()) if isinstance(right, str) and right[:1] == "@" else ()
            found = (one for part in (right, *named) for one in _prefixes(part))
            return tuple(found), operator == "!="
    return (), False


def _prefixes(right: object) -> Iterator[str]:
    if isinstance(right, str):
        if not right.startswith("@"):
            yield right if "/" in right else f"{right}/32"
    elif isinstance(right, Mapping):
        if "prefix" in right:
            yield f"{right['prefix']['addr']}/{right['prefix']['len']}"
        if "range" in right:  # what adjoins is written so
            first, last = map(IPv4Address, right["range"])
            yield from map(str, summarize_address_range(first, last))
        for one in right.get("set", ()):
            yield from _prefixes(one)


def destinations(rule: Rule) -> tuple[str, ...]:
    """Every prefix that a rule is for, source or destination."""
    found: list[str] = []
    for field in ("saddr", "daddr"):
        there, negated = prefixes(rule, field)
        found += () if negated else there
    return tuple(found)


def protocol_of(rule: Rule) -> str | None:
    """``"tcp"``, ``"udp"``, ``"icmp"`` or ``"arp"`` where a rule is for one of them."""
    for operator, what, right, _ in _matches(rule):
        numbered = what in {"meta l4proto", "ip protocol"} and isinstance(right, str | int)
        if operator == "==" and numbered:
            return protocol_name(right)
        if what.split(" ")[0] in {"tcp", "udp", "icmp", "arp"}:
            return what.split(" ")[0]
    return None


def destination_ports(rule: Rule) -> tuple[int, int] | None:
    """The first and last destination port that a rule is for; None for any."""
    for operator, what, right, _ in _matches(rule):
        if what.endswith(" dport") and operator in {"==", "in"}:
            numbers = sorted(_numbers(right))
            if numbers:
                return numbers[0], numbers[-1]
    return None


def _numbers(right: object) -> Iterator[int]:
    if isinstance(right, int):
        yield right
    elif isinstance(right, Mapping):
        for one in right.get("range", right.get("set", ())):
            yield from _numbers(one)


def mark_of(rule: Rule) -> bool | None:
    """Whether a rule takes packets with kube-proxy's mark (True), without (False), or both."""
    for operator, what, right, left in _matches(rule):
        masked = isinstance(left, Mapping) and "&" in left
        if what == "meta mark" and right == KUBE_PROXY_MARK:
            return operator == "=="
        if masked and isinstance(left, Mapping) and left["&"][-1] == KUBE_PROXY_MARK:
            return (operator == "!=") == (right == 0)
    return None


def is_from_here(rule: Rule) -> bool:
    """Whether a rule is for the node's own packets alone, or for those of its pods."""
    for operator, what, right, left in _matches(rule):
        flags = left.get("fib", {}).get("flags", ()) if isinstance(left, Mapping) else ()
        if what == "fib type" and "saddr" in flags and right == "local" and operator == "==":
            return True
        if what == "ip saddr" and operator == "==" and not str(right).startswith("@"):
            return True
    return False


def remembered_in(rule: Rule) -> Iterator[str]:
    """The sets of clients that a rule asks: who is in one is led to the backend that it is of."""
    for operator, what, right, _ in _matches(rule):
        if what == "ip saddr" and operator in {"==", "in"} and str(right).startswith("@"):
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
    """Whether a rule is for packets of no connection, which may be lost."""
    return any(
        what == "ct state" and "invalid" in str(right) for _, what, right, _ in _matches(rule)
    )


def is_by_chance(rule: Rule) -> bool:
    """Whether a rule draws lots."""
    return any(
        isinstance(left, Mapping) and "numgen" in left and left["numgen"].get("mode") == "random"
        for _, _, _, left in _matches(rule)
    )


def device_of(rule: Rule) -> str:
    """The one device by which packets come or leave; empty where the rule names none."""
    for operator, what, right, _ in _matches(rule):
        if what in {"meta iifname", "meta oifname", "meta iif", "meta oif"} and operator == "==":
            return str(right) if isinstance(right, str) else ""
    return ""


def packets(rule: Rule) -> int | None:
    """How many packets a rule has met, where it counts them."""
    for part in rule["expr"]:
        counter = part.get("counter")
        if isinstance(counter, Mapping):
            return int(counter.get("packets", 0))
    return None


def words(rule: Rule) -> str:
    """The rule as one would write it, near enough to know it again."""
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
        return f"{_field(inner)} and {mask:#x}"
    if isinstance(left, Mapping) and "numgen" in left:
        return f"numgen {left['numgen']['mode']} mod {left['numgen']['mod']}"
    return _field(left)


def _value(right: object) -> str:
    if isinstance(right, Mapping):
        if "prefix" in right:
            return f"{right['prefix']['addr']}/{right['prefix']['len']}"
        if "range" in right:
            return "-".join(str(_value(one)) for one in right["range"])
        if "set" in right:
            return "{ " + ", ".join(_value(one) for one in right["set"]) + " }"
    return str(right)
