"""What is kept of an installation that is under way, so that a later command goes on with it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from lab.imaging.job import UNFINISHED
from lab.state.files import write_private

Stage = Literal["making", "installing", "steps", "sealing", "taking"]
"""Its machine is made; Setup and our script run; steps run over the shell; sysprep runs; its disk
comes home."""
KEY = "key"
"""The private key of this build, beside the record; OpenSSH's format, mode 0600."""


@dataclass(frozen=True, slots=True)
class Record:
    """What cannot be seen of the machine itself."""

    stage: Stage
    password: str = field(repr=False)
    """The administrator's. Secret."""
    steps: tuple[str, ...] = ()
    """Those that are done."""
    resets: int = 0
    """How often the machine was reset that was heard of."""


def load(directory: Path) -> Record | None:
    """The record in a build's directory; None if there is none, or what is there is none."""
    try:
        found = json.loads((directory / UNFINISHED).read_text(encoding="utf-8"))
        return Record(found["stage"], found["password"], tuple(found["steps"]), found["resets"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def save(directory: Path, record: Record) -> None:
    """Write it down; nobody else can read it."""
    write_private(directory / UNFINISHED, json.dumps(asdict(record)) + "\n")


def forget(directory: Path) -> None:
    """There is nothing to go on with any more."""
    for name in (UNFINISHED, KEY, f"{KEY}.pub"):
        (directory / name).unlink(missing_ok=True)
