"""Names that begin with a time, and sort in the order in which they were given."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

FORMAT = "%Y%m%d-%H%M%S"
"""In UTC: ``20261121-101500``."""
_STAMP = re.compile(r"[0-9]{8}-[0-9]{6}(?![0-9])", re.ASCII)
_SECOND = timedelta(seconds=1)


def stamp(moment: float) -> str:
    """How a name of that moment begins: seconds since 1970."""
    return f"{datetime.fromtimestamp(moment, UTC):{FORMAT}}"


def is_stamp(text: str) -> bool:
    """Check whether it is a time and nothing else."""
    return _STAMP.fullmatch(text) is not None and _next(text) is not None


def in_order(name: str, others: Iterable[str]) -> str:
    """The name; where the clock went back, a second behind the last of the others.

    Others that do not begin with a time do not count.
    """
    found = _STAMP.match(name)
    behind = max(filter(None, map(_next, others)), default="")
    return name if found is None or behind <= found[0] else f"{behind}{name[found.end() :]}"


def _next(name: str) -> str | None:
    """The time that a name begins with, and a second."""
    found = _STAMP.match(name)
    try:
        moment = datetime.strptime(found[0], FORMAT).replace(tzinfo=UTC) if found else None
        return f"{moment + _SECOND:{FORMAT}}" if moment else None
    except (ValueError, OverflowError):  # of no such day, or the last one
        return None
