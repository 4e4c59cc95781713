"""The machines of the fake provider: entries in a mapping instead of processes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class FakeLab:
    """One lab that is there, as its own objects would tell."""

    name: str
    token: str
    directory: Path
    holder: int
    """A number for the process that would hold it; another one each time it is made."""
    born: float
    """Seconds since 1970."""
    machines: tuple[str, ...] = ()
    broken: str = ""
    """Why it is broken, in words; empty for a sound one."""
    owner: str = ""
    """Another user whose it is."""
