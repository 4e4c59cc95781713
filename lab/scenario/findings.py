"""What is wrong with a scenario."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong at one place: the keys that lead there, what, and what to do."""

    path: tuple[str | int, ...]
    what: str
    cure: str = ""
