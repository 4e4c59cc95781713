"""One thing that was looked at, what was seen, and what mends it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "warn", "fail"]
"""``warn``: labs come up, but slower, with less, or at a risk. ``fail``: they do not."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One finding of ``lab doctor``."""

    subject: str
    """``"hypervisor 'rack1'"``, ``"this machine"``."""
    check: str
    """``"acceleration"``."""
    level: Level
    seen: str
    """A clause without a full stop."""
    hint: str = ""
    """The exact command, or the sentence, that mends it; empty where all is well."""
