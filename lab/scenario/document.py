"""A scenario file as a tree of plain values, and where everything in it stands. Pure data."""

from __future__ import annotations

from dataclasses import dataclass, field

from lab.scenario.findings import FileFinding, Key, Problem


@dataclass(frozen=True, slots=True)
class Position:
    """Line and column, counted from 1."""

    line: int
    col: int


@dataclass(slots=True)
class Document:
    """One file: its tree and where everything in it stands."""

    value: dict[str, object] = field(default_factory=dict)
    keys: dict[Key, Position] = field(default_factory=dict)
    """Position of the key, for the entries of mappings."""
    values: dict[Key, Position] = field(default_factory=dict)
    texts: dict[Key, str] = field(default_factory=dict)
    """Scalars as they were written."""
    problems: list[FileFinding] = field(default_factory=list)
    """Findings of the reading itself: duplicate keys, unprintable text, a second document."""

    def at(self, key: Key) -> object:
        """The value at a key, None where there is none."""
        return look(self.value, key)

    def position(self, key: Key, *, at_key: bool = False) -> Position:
        """Where to point for a key path; the nearest thing above it that the file holds.

        A scalar is pointed at itself, a mapping or list at its key.
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
    """The value at a key of a tree of mappings and lists, None where there is none."""
    for name in key:
        if isinstance(tree, dict):
            tree = tree.get(name)
        elif isinstance(tree, list) and isinstance(name, int) and name < len(tree):
            tree = tree[name]
        else:
            return None
    return tree
