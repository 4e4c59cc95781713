"""Ages as people write them: ``2d``, ``36h``, ``90m``, ``45s``."""

from __future__ import annotations

from lab._errors import UsageError
from lab.inventory import values


def parse_age(text: str) -> float:
    """The seconds that an age stands for.

    Raises
    ------
    UsageError
        When it is not a number with one of the units s, m, h, d, w.

    """
    found = values.seconds(text)
    if found is None:
        raise UsageError(
            f"reading the age '{text}'",
            "an age is a number and a unit: s, m, h, d or w",
            "for example 2d, 36h or 90m",
        )
    return found


def in_words(seconds: float) -> str:
    """The age in its largest whole unit: ``3 d``, ``2 h``, ``5 min``, ``12 s``."""
    for limit, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= limit:
            return f"{int(seconds // limit)} {unit}"
    return f"{max(0, int(seconds))} s"
