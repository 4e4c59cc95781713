"""Ages as people write them: ``2d``, ``36h``, ``90m``, ``45s``."""

from __future__ import annotations

import re

from lab._errors import UsageError

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_AGE = re.compile(r"(?P<number>[0-9]+(\.[0-9]+)?)(?P<unit>[smhdw])")


def parse_age(text: str) -> float:
    """The seconds that an age stands for.

    Raises
    ------
    UsageError
        When it is not a number with one of the units s, m, h, d, w.

    """
    found = _AGE.fullmatch(text.strip().lower())
    if not found:
        raise UsageError(
            f"reading the age '{text}'",
            "an age is a number and a unit: s, m, h, d or w",
            "for example 2d, 36h or 90m",
        )
    return float(found["number"]) * _SECONDS[found["unit"]]


def in_words(seconds: float) -> str:
    """The age in its largest whole unit: ``3 d``, ``2 h``, ``5 min``, ``12 s``."""
    for limit, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= limit:
            return f"{int(seconds // limit)} {unit}"
    return f"{max(0, int(seconds))} s"
