"""Names that start with a time, and sort in the order of their creation."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

FORMAT = "%Y%m%d-%H%M%S"
"""In UTC: ``20261121-101500``."""
_STAMP = re.compile(r"[0-9]{8}-[0-9]{6}(?![0-9])", re.ASCII)
_SECOND = timedelta(seconds=1)


def stamp(moment: float) -> str:
    """The prefix of a name created at ``moment``, seconds since 1970."""
    return f"{datetime.fromtimestamp(moment, UTC):{FORMAT}}"


def is_stamp(text: str) -> bool:
    """Whether the text is a valid time and nothing else."""
    return _STAMP.fullmatch(text) is not None and _next_second(text) is not None


def in_order(name: str, others: Iterable[str]) -> str:
    """The name; if the clock went back, with a time one second after the latest of ``others``.

    Others that do not start with a time are ignored.
    """
    match = _STAMP.match(name)
    behind = max(filter(None, map(_next_second, others)), default="")
    return name if match is None or behind <= match[0] else f"{behind}{name[match.end() :]}"


def _next_second(name: str) -> str | None:
    """The time that a name starts with, plus one second."""
    match = _STAMP.match(name)
    try:
        moment = datetime.strptime(match[0], FORMAT).replace(tzinfo=UTC) if match else None
        return f"{moment + _SECOND:{FORMAT}}" if moment else None
    except (ValueError, OverflowError):  # an invalid date, or the last possible one
        return None
