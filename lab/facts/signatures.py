"""Log lines with a known cause and hint: the table, and its matches in a log. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from itertools import takewhile
from pathlib import Path

_LONGEST = 4096
"""Characters of a line that are searched; anything longer is a payload that a program repeats."""
_TABLE = Path(__file__).with_name("signatures.json")


@dataclass(frozen=True, slots=True)
class Signature:
    """One kind of log line."""

    id: str
    of: str
    pattern: str
    """A regular expression, found anywhere in a line; cause and hint may use its named groups."""
    cause: str
    hint: str
    source: str
    versions: str


@dataclass(frozen=True, slots=True)
class SignatureMatch:
    """A signature that was found."""

    id: str
    cause: str
    """The cause, with the line's values filled in."""
    hint: str
    line: str
    number: int
    """Number of the line, from 0."""
    times: int
    source: str
    versions: str

    def __str__(self) -> str:
        return f"{self.cause}; try: {self.hint}"


@dataclass(frozen=True, slots=True)
class InLog:
    """A signature found in one log."""

    path: str
    match: SignatureMatch

    @property
    def place(self) -> str:
        """``worker1/bird/log, line 3 and 2 more``."""
        more = f" and {self.match.times - 1} more" if self.match.times > 1 else ""
        return f"{self.path}, line {self.match.number + 1}{more}"

    def __str__(self) -> str:
        return f"{self.place}: {self.match}\n  {self.match.line}\n"


@cache
def table() -> tuple[Signature, ...]:
    """Every signature in display order: what stops a program first."""
    return tuple(Signature(**entry) for entry in json.loads(_TABLE.read_text(encoding="utf-8")))


def match(lines: Iterable[str]) -> tuple[SignatureMatch, ...]:
    """The signatures that match these lines, each once, in the table's order."""
    matches: list[SignatureMatch] = []
    listed = [line[:_LONGEST] for line in lines]
    text = "\n".join(listed)
    for signature, pattern in _patterns():
        if not pattern.search(text):  # all lines at once, which is faster
            continue
        hits = [
            (number, hit) for number, line in enumerate(listed) if (hit := pattern.search(line))
        ]
        if hits:
            number, hit = hits[-1]
            groups = {name: value for name, value in hit.groupdict().items() if value is not None}
            matches.append(
                SignatureMatch(
                    signature.id,
                    _filled(signature.cause, groups),
                    _filled(signature.hint, groups),
                    listed[number].strip(),
                    number,
                    len(hits),
                    signature.source,
                    signature.versions,
                )
            )
    return tuple(matches)


def in_log(path: str, text: str, since: float = 0) -> tuple[InLog, ...]:
    """The signatures that match one log, in the table's order.

    Lines before ``since`` (seconds since 1970) are left out, if they begin with their time; and in
    a log of klog, which tells neither year nor zone, those of earlier processes, once the present
    one has logged for a minute: until then it may be one that is started again and again.
    """
    lines = text.splitlines()
    begun = _present_process(lines)
    recent = (line if number >= begun else "" for number, line in enumerate(lines))
    return tuple(InLog(path, hit) for hit in match(_recent(recent, since)))


_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.\d+)?(Z|[+-]\d\d:?\d\d) ")
"""As journalctl and container runtimes write it."""


_KLOG = re.compile(r"[IWEF](\d{4} \d\d:\d\d:\d\d)\.\d+ +(\d+) ")
"""Severity, month and day, time, and the process: the format of klog's documentation."""
_STEADY = timedelta(minutes=1)


def _present_process(lines: Sequence[str]) -> int:
    """The number of the line with which the log's present process begins; 0 if it is not known."""
    heads = [(number, head) for number, line in enumerate(lines) if (head := _KLOG.match(line))]
    own = list(takewhile(lambda each: each[1][2] == heads[-1][1][2], reversed(heads)))
    if len(own) == len(heads):
        return 0
    last, first = (_klog_time(head) for _, head in (own[0], own[-1]))
    return own[-1][0] if last - first >= _STEADY else 0


def _klog_time(head: re.Match[str]) -> datetime:
    return datetime.strptime(f"2000{head[1]}", "%Y%m%d %H:%M:%S")  # noqa: DTZ007  it has no zone


def _recent(lines: Iterable[str], since: float) -> Iterator[str]:
    """The lines, empty where they are older; one without a time is as old as the one before it."""
    old = False
    for line in lines:
        if stamp := _TIME.match(line):
            old = datetime.fromisoformat(stamp[1] + stamp[2]).timestamp() < since
        yield "" if old else line


@cache
def _patterns() -> tuple[tuple[Signature, re.Pattern[str]], ...]:
    return tuple((signature, re.compile(signature.pattern, re.MULTILINE)) for signature in table())


def _filled(text: str, groups: dict[str, str]) -> str:
    for name, value in groups.items():
        text = text.replace(f"{{{name}}}", value)
    return text
