"""Moments as a person says them."""

from __future__ import annotations

import time
from datetime import datetime

_UNITS = ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second"))


def ago(moment: float, now: float | None = None) -> str:
    """``3 minutes ago``; ``moment`` and ``now`` are seconds since 1970."""
    seconds = int((time.time() if now is None else now) - moment)
    for size, unit in _UNITS:
        if seconds >= size:
            number = seconds // size
            return f"{number} {unit}{'' if number == 1 else 's'} ago"
    return "just now"


def in_full(started: str) -> str:
    """``21 November 2026, 10:15:00 UTC``; the text itself where it is no ISO 8601."""
    try:
        moment = datetime.fromisoformat(started)
    except ValueError:
        return started
    return f"{moment.day} {moment:%B %Y, %H:%M:%S} UTC"
