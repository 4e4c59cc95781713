"""Errors in a scenario file: problems by key path, findings by line and column."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field

from lab._dataclass import dataclass
from lab._errors import nearest_names
from lab.scenario.topics import topic_of

Key = tuple[str | int, ...]
"""A key path in the file: ``("nodes", 3, "address")``."""

SHOWN = 100
"""Findings printed for one file; the rest are counted in a last line."""

QUOTED = 60
"""Characters of a value quoted in a message."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong at a key path, before its position is known.

    ``what`` and ``hint`` are clauses without a full stop: ``"vxlan" is not a topology kind`` and
    ``did you mean "overlay"?``.
    """

    key: Key
    what: str
    hint: str
    at_key: bool = False
    """Point at the key itself, not at its value."""


@dataclass(frozen=True, slots=True)
class FileFinding:
    """A problem with its position; line and column count from 1.

    Line 0 means the whole file, or a finding located by its key.
    """

    key: Key
    line: int
    col: int
    what: str
    hint: str

    def text(self, file: str) -> str:
        """``file:line:col: what; hint``, or ``file: some.key: what; hint``."""
        by_key = f"{file}: {'.'.join(map(str, self.key))}" if self.key else file
        place = f"{file}:{self.line}:{self.col}" if self.line else by_key
        return f"{place}: {self.what}; {self.hint}"


def lines(file: str, findings: Iterable[FileFinding]) -> tuple[str, ...]:
    """Every finding of one file, ready to print, in file order, without duplicates."""
    ordered = sorted(findings, key=lambda finding: (finding.line, finding.col))
    texts = tuple(dict.fromkeys(finding.text(file) for finding in ordered))
    if len(texts) <= SHOWN:
        return texts
    more = f"{file}: {len(texts) - SHOWN} more findings are not shown; fix the ones above first"
    return (*texts[:SHOWN], more)


def quoted(value: object) -> str:
    """``"value"``, cut to a readable length, with unprintable characters escaped."""
    shown = "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii")
        for letter in cut(str(value))
    )
    return f'"{shown}"'


def cut(text: str) -> str:
    """The text, or if it is too long its beginning and dots."""
    return text if len(text) <= QUOTED else f"{text[: QUOTED - 3]}..."


def alternatives(values: Iterable[str]) -> str:
    """``"a", "b" or "c"``."""
    names = [quoted(value) for value in values]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


def nearest(word: str, words: Iterable[str]) -> list[str]:
    """The words most similar to ``word``; empty if none is similar."""
    folded = {candidate.lower(): candidate for candidate in words}
    meant = word[:QUOTED].lower()
    close = nearest_names(meant, folded) or nearest_names(meant.replace("-", "_"), folded)
    return [folded[name] for name in close]


def did_you_mean(word: str, words: Iterable[str], otherwise: str, value: str = "") -> str:
    """What is said of :mod:`lab.scenario.topics`, else ``did you mean "overlay"?``.

    ``value``: if the word is a key, its value. ``otherwise`` if neither is a topic's and no word is
    similar.
    """
    topic = topic_of(word) or topic_of(value)
    if topic:
        return topic.answer
    near = nearest(word, words)
    return f"did you mean {alternatives(near)}?" if near else otherwise


@dataclass(frozen=True, slots=True)
class Position:
    """Line and column, counted from 1."""

    line: int
    col: int


@dataclass(slots=True)
class Document:
    """One file: its tree and the position of everything in it."""

    value: dict[str, object] = field(default_factory=dict)
    keys: dict[Key, Position] = field(default_factory=dict)
    """Positions of the keys of mappings."""
    values: dict[Key, Position] = field(default_factory=dict)
    texts: dict[Key, str] = field(default_factory=dict)
    """Scalars as written."""
    problems: list[FileFinding] = field(default_factory=list)
    """Findings of the parser: duplicate keys, unprintable text, a second document."""

    def at(self, key: Key) -> object:
        """The value at a key; None if there is none."""
        return look(self.value, key)

    def position(self, key: Key, *, at_key: bool = False) -> Position:
        """The position to report for a key path, or for its nearest ancestor in the file.

        For a scalar it is that of the value, for a mapping or list that of the key.
        """
        for length in range(len(key), 0, -1):
            part = key[:length]
            whole = length == len(key)
            if part in self.texts and not (at_key and whole):
                return self.values[part]
            if part in self.keys:
                return self.keys[part]
            if part in self.values:
                return self.values[part]
        return Position(1, 1)

    def finding(self, problem: Problem) -> FileFinding:
        """The problem with its position."""
        at = self.position(problem.key, at_key=problem.at_key)
        return FileFinding(problem.key, at.line, at.col, problem.what, problem.hint)


def look(tree: object, key: Key) -> object:
    """The value at a key of a tree of mappings and lists; None if there is none."""
    for name in key:
        if isinstance(tree, dict):
            tree = tree.get(name)
        elif isinstance(tree, list) and isinstance(name, int) and name < len(tree):
            tree = tree[name]
        else:
            return None
    return tree


@dataclass(frozen=True, slots=True)
class Language:
    """The language of a kind of file, as messages show it."""

    name: str
    """``"YAML"``."""
    mapping: str
    """``"mapping"``."""
    assign: str
    """The sign between a key and its value."""
    listing: str
    """Hint on how to write a list."""
    written: Callable[[object], str]
    """Formats a value for the file, on one line."""


@dataclass(frozen=True, slots=True)
class FileKind:
    """The wording of messages about one kind of file."""

    noun: str
    """``"scenario"``."""
    language: Language
    absent: str
    """Hint if the file does not exist."""
    large: str
    """Hint if it is too large."""
    entries: Mapping[str, str]
    """Name of an entry of each list or table: ``{"nodes": "node group"}``."""
    other_entry: str = "entry"
    """Name of an entry of any other list."""
    example: str = "my-lab"
    """An example of the value of ``name``."""
    repeated: str = "write each value out"
    """Hint to use instead of an alias."""


def as_yaml(value: object) -> str:
    """Format a value as YAML, on one line."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return f"{{{', '.join(f'{name}: {as_yaml(item)}' for name, item in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(as_yaml(item) for item in value)}]"
    if isinstance(value, str) and re.fullmatch(r"[0-9.]*", value) and value.count(".") <= 1:
        return f'"{value}"'
    return str(value)


YAML_LANGUAGE = Language(
    name="YAML",
    mapping="mapping",
    assign=": ",
    listing='begin each entry on a line of its own with "- "',
    written=as_yaml,
)
