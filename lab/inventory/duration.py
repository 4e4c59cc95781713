"""Times as people write them: ``2d``, ``36h``, ``90m``, ``45s``."""

from __future__ import annotations

import re

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_DURATION = re.compile(r"(?P<number>[0-9]+(\.[0-9]+)?)(?P<unit>[smhdw])")


def seconds(text: str) -> float | None:
    """The seconds that a number with one of the units s, m, h, d, w stands for; else None."""
    found = _DURATION.fullmatch(text.strip().lower())
    return float(found["number"]) * UNITS[found["unit"]] if found else None
