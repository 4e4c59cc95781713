"""What is wrong in a scenario file: problems by key path, findings by line and column."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

Key = tuple[str | int, ...]
"""A place in the file: ``("nodes", 3, "address")``."""

SHOWN = 100
"""Findings printed of one file; the rest are counted in a last line."""

QUOTED = 60
"""Characters of a value repeated in a message."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong at a key path, before its position is known.

    ``what`` and ``hint`` are clauses without a full stop: ``"vxlan" is no topology kind`` and
    ``did you mean "overlay"?``.
    """

    key: Key
    what: str
    hint: str
    at_key: bool = False
    """Point at the key itself, not at its value."""


@dataclass(frozen=True, slots=True)
class FileFinding:
    """A problem with its position; line and column count from 1, line 0 is the whole file."""

    key: Key
    line: int
    col: int
    what: str
    hint: str

    def text(self, file: str) -> str:
        """``file:line:col: what; hint``."""
        place = f"{file}:{self.line}:{self.col}" if self.line else file
        return f"{place}: {self.what}; {self.hint}"


def lines(file: str, findings: Iterable[FileFinding]) -> tuple[str, ...]:
    """Every finding of one file, ready to print, in file order; repeats are printed once."""
    ordered = sorted(findings, key=lambda finding: (finding.line, finding.col))
    texts = tuple(dict.fromkeys(finding.text(file) for finding in ordered))
    if len(texts) <= SHOWN:
        return texts
    more = f"{file}: {len(texts) - SHOWN} more findings are not shown; mend the ones above first"
    return (*texts[:SHOWN], more)


def quoted(value: object) -> str:
    """``"value"``, cut to a readable length, with what cannot be printed escaped."""
    shown = "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii")
        for letter in cut(str(value))
    )
    return f'"{shown}"'


def cut(text: str) -> str:
    """The text, or its beginning and dots where it is longer than anyone reads."""
    return text if len(text) <= QUOTED else f"{text[: QUOTED - 3]}..."


def alternatives(values: Iterable[str]) -> str:
    """``"a", "b" or "c"``."""
    names = [quoted(value) for value in values]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


def nearest(word: str, words: Iterable[str]) -> str | None:
    """The word most like ``word``, if one is like it at all."""
    folded = {candidate.lower(): candidate for candidate in words}
    meant = word[:QUOTED].lower()
    close = difflib.get_close_matches(meant, folded, n=1)
    close = close or difflib.get_close_matches(meant.replace("-", "_"), folded, n=1)
    return folded[close[0]] if close else None


def did_you_mean(word: str, words: Iterable[str], otherwise: str) -> str:
    """``did you mean "overlay"?``, or ``otherwise`` where nothing is near."""
    near = nearest(word, words)
    return f"did you mean {quoted(near)}?" if near else otherwise
