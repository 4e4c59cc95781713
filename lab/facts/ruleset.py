"""Parses nftables rulesets as ``nft -a -s list ruleset`` prints them, and compares them. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher, ndiff

from lab.facts.difference import DEVIATION, Change, Difference, name_in_state
from lab.facts.effect import read_effect
from lab.topology.subject import ChainSubject, SetSubject, TableSubject, values_of


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
        order = sorted(self.objects.values(), key=lambda member: member.kind == "chain")
        # chains that rules and maps refer to must exist before them; they have no hook
        targets = (member.name for member in order if member.kind == "chain" and not member.head)
        empty = " ".join(f"chain {name} {{ }};" for name in targets)
        inner = " ".join(f"{member.text()};" for member in order)
        first = f"table {self.name} {{ {empty} }}\n" if empty else ""
        return f"{first}table {self.name} {{{head} {inner} }}"

    def summary(self) -> str:
        """A short description: the table's base chains and first rules."""
        chains = [member for member in self.objects.values() if member.kind == "chain"]
        hooks = [f"chain {chain.name} ({' '.join(chain.head)})" for chain in chains if chain.head]
        rules = [rule for chain in chains for rule, _ in chain.rules]
        more = f" and {len(rules) - _SHOWN} more" if len(rules) > _SHOWN else ""
        listed = "; ".join(f"'{rule}'" for rule in rules[:_SHOWN])
        return ", ".join([*hooks, *([f"rules {listed}{more}"] if rules else ["no rules"])])


Ruleset = Mapping[str, NftTable]


def read_ruleset(text: str) -> Ruleset:
    """The tables by family and name."""
    tables: dict[str, NftTable] = {}
    for match, lines in _bodies(text.splitlines(), _TABLE, "}"):
        if match:
            tables[match[1]] = _read_table(match[1], lines)
    return tables


def _bodies(
    lines: Iterable[str], begin: re.Pattern[str], end: str
) -> Iterator[tuple[re.Match[str] | None, list[str]]]:
    """Each block between ``begin`` and ``end`` with its lines; None with each line outside."""
    match: re.Match[str] | None = None
    inner: list[str] = []
    for line in lines:
        if match is None:
            match, inner = begin.fullmatch(_HANDLE.sub("", line)), []
            if match is None:
                yield None, [line]
        elif _HANDLE.sub("", line) == end:
            yield match, inner
            match = None
        else:
            inner.append(line)


def _read_table(name: str, lines: Iterable[str]) -> NftTable:
    table = NftTable(name)
    for match, inner in _bodies(lines, _OBJECT, "\t}"):
        if match:
            table.objects[match[1], match[2]] = _read_object(match[1], match[2], inner)
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


def _element(element: tuple[str, str]) -> str:
    key, value = element
    return f"{key} : {value}" if value else key


def compare_rulesets(
    made: Ruleset, now: Ruleset, varies: re.Pattern[str] = NOTHING
) -> Iterator[Difference]:
    """Every difference; rules are compared by text and position in their chain.

    ``varies``: the part of a rule that is not compared; a rule that is nothing else is left out.
    """
    for name in now.keys() - made.keys():
        if all(_lasting(member, varies).idle for member in now[name].objects.values()):
            continue  # programs make the tables that they only list
        yield _differs(
            _table(name),
            ("no such table", now[name].summary()),
            f"nft delete table {name}",
            "new",
            raw=("", now[name].text()),
        )
    for name, table in made.items():
        if name not in now:
            mends, missing = load(table.text()), "there is no such table"
            words = (table.summary(), missing)
            yield _differs(_table(name), words, mends, "gone", raw=(table.text(), ""))
        else:
            yield from _tables(table, now[name], varies)


def _table(name: str) -> TableSubject:
    return TableSubject(*name.split())


def _subject(table: str, member: NftObject) -> ChainSubject | SetSubject:
    family, name = table.split()
    if member.kind == "chain":
        return ChainSubject(family, name, member.name)
    return SetSubject(member.kind, family, name, member.name)


def load(text: str) -> str:
    """The command that loads a ruleset."""
    return f"printf '%s\\n' {shlex.quote(text)} | nft -f -"


def _tables(made: NftTable, now: NftTable, varies: re.Pattern[str]) -> Iterator[Difference]:
    name = made.name
    remade = load(f"delete table {name}\n{made.text()}")  # all of it or nothing
    if made.head != now.head:
        flags = f" '{{ {' '.join(made.head)}; }}'" if made.head else ""
        mends = f"nft add table {name}{flags}"
        yield _differs(_table(name), (_flags(made.head), _flags(now.head)), mends)
    for key in now.objects.keys() - made.objects.keys():
        member = now.objects[key]
        if member.kind == "chain" and member.idle:
            continue
        flush = f"nft flush chain {name} {member.name}; " if member.kind == "chain" else ""
        mends = f"{flush}nft delete {member.kind} {name} {member.name}"
        words = (f"no such {member.kind}", member.text())
        yield _differs(_subject(name, member), words, mends, "new", raw=("", member.text()))
    for key, member in made.objects.items():
        subject, actual = _subject(name, member), now.objects.get(key)
        if actual is None:
            words = (member.text(), f"there is no such {member.kind}")
            yield _differs(subject, words, remade, "gone", raw=(member.text(), ""))
            continue
        if member.head != actual.head:
            words = (_flags(member.head), _flags(actual.head))
            yield _differs(subject, words, _reheaded(name, member, actual, remade))
        if isinstance(subject, ChainSubject):
            yield from _rules(subject, _lasting(member, varies), _lasting(actual, varies), varies)
        elif not member.living:
            yield from _set_elements(name, member, actual)


def _flags(head: list[str]) -> str:
    return " ".join(head) or "no flags"


def _policy(head: list[str]) -> tuple[str, str]:
    match = re.fullmatch(r"(.*priority .*); policy (\w+);", " ".join(head))
    return (match[1], match[2]) if match else (" ".join(head), "")


def _reheaded(table: str, made: NftObject, now: NftObject, remade: str) -> str:
    (hook, policy), (other, _) = _policy(made.head), _policy(now.head)
    if policy and hook == other:
        return f"nft chain {table} {made.name} '{{ policy {policy}; }}'"
    return remade


def _lasting(member: NftObject, varies: re.Pattern[str]) -> NftObject:
    """The object without the rules that vary as a whole."""
    rules = [(rule, handle) for rule, handle in member.rules if not varies.fullmatch(rule)]
    return replace(member, rules=rules)


def _rules(
    subject: ChainSubject, made: NftObject, now: NftObject, varies: re.Pattern[str]
) -> Iterator[Difference]:
    wanted = [rule for rule, _ in made.rules]
    chain = f"{subject.family} {subject.table} {subject.chain}"
    matcher = SequenceMatcher(
        a=[varies.sub("", rule) for rule in wanted],
        b=[varies.sub("", rule) for rule, _ in now.rules],
        autojunk=False,
    )
    for tag, first, last, begin, end in matcher.get_opcodes():
        if tag == "equal":
            continue
        gone = [f"nft delete rule {chain} handle {h}" for _, h in now.rules[begin:end]]
        if end < len(now.rules):
            how = f"nft insert rule {chain} handle {now.rules[end][1]} "
            put = [how + shlex.quote(rule) for rule in wanted[first:last]]
        else:
            put = [f"nft add rule {chain} {shlex.quote(rule)}" for rule in wanted[first:last]]
        missing, actual = wanted[first:last], [rule for rule, _ in now.rules[begin:end]]
        listed = "; ".join(f"'{rule}'" for rule in missing[:_SHOWN])
        present = "; ".join(f"'{rule}' (handle {h})" for rule, h in now.rules[begin:end][:_SHOWN])
        words = (
            f"rule {listed}" if listed else "no such rule",
            f"rule {present}" if present else _GONE,
        )
        yield _differs(
            subject,
            words,
            "; ".join([*put, *gone]),
            "changed" if wanted and now.rules else "gone" if wanted else "new",
            raw=("; ".join(missing), "; ".join(actual)),
            attribute=RULES,
        )


RULES = "rules"
"""The attribute of a chain whose rules differ."""
_GONE = "it is missing"


def _set_elements(table: str, made: NftObject, now: NftObject) -> Iterator[Difference]:
    extra = {key: value for key, value in now.elements.items() if made.elements.get(key) != value}
    missing = {k: v for k, v in made.elements.items() if now.elements.get(k) != v}
    if not extra and not missing:
        return
    mends = []
    for verb, elements in (("delete", extra), ("add", missing)):
        if elements:
            listed = ", ".join(map(_element, elements.items()))
            mends.append(f"nft {verb} element {table} {made.name} '{{ {listed} }}'")
    yield _differs(_subject(table, made), (_listed(missing), _listed(extra)), "; ".join(mends))


def _listed(elements: Mapping[str, str]) -> str:
    if not elements:
        return "no such element"
    shown = "; ".join(list(map(_element, elements.items()))[:_SHOWN])
    more = f" and {len(elements) - _SHOWN} more" if len(elements) > _SHOWN else ""
    return f"element {shown}{more}"


def _differs(  # noqa: PLR0913  a difference is all of these
    subject: TableSubject | ChainSubject | SetSubject,
    words: tuple[str, str],
    mends: str,
    change: Change = "changed",
    *,
    raw: tuple[str, str] | None = None,
    attribute: str = "",
) -> Difference:
    """A difference; ``words``: what is intended and observed; ``raw``: the same by nft."""
    made, now = raw or words
    name = name_in_state(subject)
    listed = not isinstance(subject, SetSubject) or subject.kind in _ELEMENTS
    return Difference(
        *(DEVIATION, "", "", name, *words),
        *(f"nft -a list {name if listed else 'ruleset'}", mends, ""),
        subject=subject,
        attribute=attribute,
        change=change,
        effect=read_effect(now, made),
        values=(*values_of(subject), now),
        section="nftables",
    )
