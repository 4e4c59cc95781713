r"""State on the disk between two starts: ``C:\stand-in\state.json``, and the answer file."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

FOLDER = Path("/c/stand-in")
FILE = FOLDER / "state.json"
CACHED = Path("/c/Windows/Panther/unattend.xml")
"""Setup's copy of the answer file, which takes precedence over media until it is removed."""
SECRET = FOLDER / "secret"
"""The administrator's password, instead of Windows' account database."""


@dataclass(frozen=True)
class State:
    """The state of one disk."""

    stage: str
    """``specialize``, ``oobe``, ``installed``, ``generalized``."""
    drivers: tuple[str, ...]
    """Names of drivers installed by Setup, in lower case."""
    script: str = "bootstrap.ps1"
    """The script of the first logon; ``clone.ps1`` on a clone."""
    computer_name: str = ""
    sid: str = ""
    """The machine's SID, which changes after generalizing."""
    steps: tuple[str, ...] = ()
    """Steps done over a shell."""

    def save(self) -> State:
        FOLDER.mkdir(parents=True, exist_ok=True)
        made = FILE.with_suffix(".new")
        made.write_text(json.dumps(asdict(self), indent=1), encoding="utf-8")
        made.replace(FILE)
        return self

    def with_(self, **changes: Any) -> State:
        """Return a changed copy, and save it."""
        return replace(self, **changes).save()


def load() -> State:
    told = json.loads(FILE.read_text(encoding="utf-8"))
    return State(**{k: tuple(v) if isinstance(v, list) else v for k, v in told.items()})
