"""Parses nftables rulesets as ``nft -a -s list ruleset`` prints them, and compares them. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher, ndiff
from typing import Literal

Change = Literal["new", "gone", "changed"]


@dataclass(frozen=True, slots=True)
class StateDifference:
    """A difference, and the commands that show and undo it; empty if no command can."""

    section: str
    """``"nftables"``, ``"route"``, ``"rule"``, ``"link"``, ``"setting"``, ..."""
    object: str
    """``"chain ip filter forward"``, ``"route to 10.244.1.0/24"``, ``"eth0"``."""
    intended: str
    observed: str
    shows: str
    mends: str
    device: str = ""
    """The only device concerned; empty if none or all are."""
    change: Change = "changed"
    concerns: tuple[str, ...] = ()
    """Of an object of a cluster's API, what of a path it has to do with: ``"Service NAME"``,
    ``"pod NAME"``, ``"node NAME"``, or every one."""


def changed_lines(before: str, after: str) -> tuple[str, str]:
    """The lines that only one of two texts has, each side in one line."""
    lines = [*ndiff(before.splitlines(), after.splitlines())]
    gone, new = (
        "; ".join(f"'{line[2:].strip()}'" for line in lines if line[:2] == mark)
        for mark in ("- ", "+ ")
    )
    return gone or "no such lines", new or "no such lines"


_HANDLE = re.compile(r"\s*# handle (\d+)$")
_TABLE = re.compile(r"table (\S+ \S+) \{")
_OBJECT = re.compile(r"\t(\S+) (\S+) \{")
_ELEMENTS = ("set", "map")
NOTHING = re.compile(r"(?!)")
_LIVING = re.compile(r" (?:expires|timeout) \S+")
_SHOWN = 3


@dataclass(slots=True)
class NftObject:
    """A chain, set, map or other named object of a table."""

    kind: str
    name: str
    head: list[str] = field(default_factory=list)
    """Lines other than rules and elements: a chain's hook and policy, a set's type."""
    rules: list[tuple[str, str]] = field(default_factory=list)
    """Rule and handle, in order."""
    elements: dict[str, str] = field(default_factory=dict)
    """Key and value; a set's elements have an empty value."""

    def text(self) -> str:
        """The object in the syntax of ``nft -f``."""
        lines = [*self.head, *(rule for rule, _ in self.rules)]
        if self.elements:
            lines.append(f"elements = {{ {', '.join(map(_element, self.elements.items()))} }}")
        return f"{self.kind} {self.name} {{ {'; '.join(line.rstrip('; ') for line in lines)}; }}"

    @property
    def idle(self) -> bool:
        """Whether it does nothing to packets by itself."""
        if self.kind == "chain":
            return not self.rules and "policy drop" not in " ".join(self.head)
        return self.kind != "flowtable"

    @property
    def living(self) -> bool:
        """Whether packets themselves change its elements."""
        return any("dynamic" in line or "timeout" in line for line in self.head)


@dataclass(slots=True)
class NftTable:
    """One table: its family and name, and its content."""

    name: str
    head: list[str] = field(default_factory=list)
    objects: dict[tuple[str, str], NftObject] = field(default_factory=dict)

    def text(self) -> str:
        """The table in the syntax of ``nft -f``."""
        head = "".join(f" {line.rstrip('; ')};" for line in self.head)
        order = sorted(self.objects.values(), key=lambda one: one.kind == "chain")
        # chains that rules and maps refer to must exist before them; they have no hook
        targets = (one.name for one in order if one.kind == "chain" and not one.head)
        empty = " ".join(f"chain {name} {{ }};" for name in targets)
        inner = " ".join(f"{one.text()};" for one in order)
        first = f"table {self.name} {{ {empty} }}\n" if empty else ""
        return f"{first}table {self.name} {{{head} {inner} }}"

    def summary(self) -> str:
        """A short description: the table's base chains and first rules."""
        chains = [one for one in self.objects.values() if one.kind == "chain"]
        hooks = [f"chain {chain.name} ({' '.join(chain.head)})" for chain in chains if chain.head]
        rules = [rule for chain in chains for rule, _ in chain.rules]
        more = f" and {len(rules) - _SHOWN} more" if len(rules) > _SHOWN else ""
        listed = "; ".join(f"'{rule}'" for rule in rules[:_SHOWN])
        return ", ".join([*hooks, *([f"rules {listed}{more}"] if rules else ["no rules"])])


Ruleset = Mapping[str, NftTable]


def read_ruleset(text: str) -> Ruleset:
    """The tables by family and name."""
    tables: dict[str, NftTable] = {}
    for found, lines in _bodies(text.splitlines(), _TABLE, "}"):
        if found:
            tables[found[1]] = _read_table(found[1], lines)
    return tables


def _bodies(
    lines: Iterable[str], begin: re.Pattern[str], end: str
) -> Iterator[tuple[re.Match[str] | None, list[str]]]:
    """Each block between ``begin`` and ``end`` with its lines; None with each line outside."""
    found: re.Match[str] | None = None
    inner: list[str] = []
    for line in lines:
        if found is None:
            found, inner = begin.fullmatch(_HANDLE.sub("", line)), []
            if found is None:
                yield None, [line]
        elif _HANDLE.sub("", line) == end:
            yield found, inner
            found = None
        else:
            inner.append(line)


def _read_table(name: str, lines: Iterable[str]) -> NftTable:
    table = NftTable(name)
    for found, inner in _bodies(lines, _OBJECT, "\t}"):
        if found:
            table.objects[found[1], found[2]] = _read_object(found[1], found[2], inner)
        else:
            table.head += filter(None, (line.strip() for line in inner))
    return table


def _read_object(kind: str, name: str, lines: Iterable[str]) -> NftObject:
    made = NftObject(kind, name)
    elements: list[str] = []
    for raw in lines:
        handle, line = _HANDLE.search(raw), _HANDLE.sub("", raw).strip()
        if kind in _ELEMENTS and (elements or line.startswith("elements = {")):
            elements.append(line)
        elif kind == "chain" and handle:
            made.rules.append((line, handle[1]))
        elif line:
            made.head.append(line)
    text = " ".join(elements).removeprefix("elements = {").removesuffix("}")
    made.elements = dict(_elements(text))
    return made


def _elements(text: str) -> Iterator[tuple[str, str]]:
    for word in text.split(","):
        key, _, value = _LIVING.sub("", word.strip()).partition(" : ")
        if key:
            yield key.replace(" counter", "").strip(), value.strip()


def _element(one: tuple[str, str]) -> str:
    key, value = one
    return f"{key} : {value}" if value else key


def compare_rulesets(
    made: Ruleset, now: Ruleset, varies: re.Pattern[str] = NOTHING
) -> Iterator[StateDifference]:
    """Every difference; rules are compared by text and position in their chain.

    ``varies``: the part of a rule that is not compared; a rule that is nothing else is left out.
    """
    for name in now.keys() - made.keys():
        if all(one.idle for one in now[name].objects.values()):
            continue  # programs make the tables that they only list
        yield _differs(
            f"table {name}", "no such table", now[name].summary(), f"nft delete table {name}", "new"
        )
    for name, table in made.items():
        if name not in now:
            mends, missing = load(table.text()), "there is no such table"
            yield _differs(f"table {name}", table.summary(), missing, mends, "gone")
        else:
            yield from _tables(table, now[name], varies)


def load(text: str) -> str:
    """The command that loads a ruleset."""
    return f"printf '%s\\n' {shlex.quote(text)} | nft -f -"


def _tables(made: NftTable, now: NftTable, varies: re.Pattern[str]) -> Iterator[StateDifference]:
    name = made.name
    remade = load(f"delete table {name}\n{made.text()}")  # all of it or nothing
    if made.head != now.head:
        flags = f" '{{ {' '.join(made.head)}; }}'" if made.head else ""
        mends = f"nft add table {name}{flags}"
        yield _differs(f"table {name}", _said(made.head), _said(now.head), mends)
    for key in now.objects.keys() - made.objects.keys():
        one = now.objects[key]
        if one.kind == "chain" and one.idle:
            continue
        flush = f"nft flush chain {name} {one.name}; " if one.kind == "chain" else ""
        mends = f"{flush}nft delete {one.kind} {name} {one.name}"
        yield _differs(
            f"{one.kind} {name} {one.name}", f"no such {one.kind}", one.text(), mends, "new"
        )
    for key, one in made.objects.items():
        where = f"{one.kind} {name} {one.name}"
        seen = now.objects.get(key)
        if seen is None:
            missing = f"there is no such {one.kind}"
            yield _differs(where, one.text(), missing, remade, "gone")
            continue
        if one.head != seen.head:
            yield _differs(
                where, _said(one.head), _said(seen.head), _reheaded(name, one, seen, remade)
            )
        if one.kind == "chain":
            yield from _rules(name, _lasting(one, varies), _lasting(seen, varies), varies)
        elif not one.living:
            yield from _set_elements(name, one, seen)


def _said(head: list[str]) -> str:
    return " ".join(head) or "no flags"


def _policy(head: list[str]) -> tuple[str, str]:
    found = re.fullmatch(r"(.*priority .*); policy (\w+);", " ".join(head))
    return (found[1], found[2]) if found else (" ".join(head), "")


def _reheaded(table: str, made: NftObject, now: NftObject, remade: str) -> str:
    (hook, policy), (other, _) = _policy(made.head), _policy(now.head)
    if policy and hook == other:
        return f"nft chain {table} {made.name} '{{ policy {policy}; }}'"
    return remade


def _lasting(chain: NftObject, varies: re.Pattern[str]) -> NftObject:
    """The chain without the rules that vary as a whole."""
    rules = [(rule, handle) for rule, handle in chain.rules if not varies.fullmatch(rule)]
    return replace(chain, rules=rules)


def _rules(
    table: str, made: NftObject, now: NftObject, varies: re.Pattern[str]
) -> Iterator[StateDifference]:
    wanted = [rule for rule, _ in made.rules]
    where = f"chain {table} {made.name}"
    matcher = SequenceMatcher(
        a=[varies.sub("", rule) for rule in wanted],
        b=[varies.sub("", rule) for rule, _ in now.rules],
        autojunk=False,
    )
    for tag, first, last, begin, end in matcher.get_opcodes():
        if tag == "equal":
            continue
        gone = [f"nft delete rule {table} {made.name} handle {h}" for _, h in now.rules[begin:end]]
        if end < len(now.rules):
            how = f"nft insert rule {table} {made.name} handle {now.rules[end][1]} "
            put = [how + shlex.quote(rule) for rule in wanted[first:last]]
        else:
            put = [f"nft add rule {table} {made.name} {shlex.quote(r)}" for r in wanted[first:last]]
        listed = "; ".join(f"'{rule}'" for rule in wanted[first:last][:_SHOWN])
        seen = "; ".join(f"'{rule}' (handle {h})" for rule, h in now.rules[begin:end][:_SHOWN])
        yield _differs(
            where,
            f"rule {listed}" if listed else "no such rule",
            f"rule {seen}" if seen else "it is missing",
            "; ".join([*put, *gone]),
            "changed" if wanted and now.rules else "gone" if wanted else "new",
        )


def _set_elements(table: str, made: NftObject, now: NftObject) -> Iterator[StateDifference]:
    where = f"{made.kind} {table} {made.name}"
    extra = {key: value for key, value in now.elements.items() if made.elements.get(key) != value}
    missing = {k: v for k, v in made.elements.items() if now.elements.get(k) != v}
    if not extra and not missing:
        return
    mends = []
    for verb, these in (("delete", extra), ("add", missing)):
        if these:
            listed = ", ".join(map(_element, these.items()))
            mends.append(f"nft {verb} element {table} {made.name} '{{ {listed} }}'")
    yield _differs(where, _listed(missing), _listed(extra), "; ".join(mends))


def _listed(elements: Mapping[str, str]) -> str:
    if not elements:
        return "no such element"
    shown = "; ".join(list(map(_element, elements.items()))[:_SHOWN])
    more = f" and {len(elements) - _SHOWN} more" if len(elements) > _SHOWN else ""
    return f"element {shown}{more}"


def _differs(
    where: str, intended: str, observed: str, mends: str, change: Change = "changed"
) -> StateDifference:
    shows = f"nft -a list {_named(where)}"
    return StateDifference("nftables", where, intended, observed, shows, mends, change=change)


def _named(where: str) -> str:
    return where if where.split(maxsplit=1)[0] in {"table", "chain", "set", "map"} else "ruleset"
