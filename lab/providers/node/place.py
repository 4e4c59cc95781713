"""Where an agent and what it leaves stand on its computer."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path

DIRECTORY = Path("/run/hybridlab")
"""Gone with a restart of the computer, as is all that it speaks of."""
ENTER = DIRECTORY / "enter"
"""For people: ``/run/hybridlab/enter worker1-p1 ping 10.244.1.2``."""
_SUFFIX = ".pyz"


def archive(digest: str) -> Path:
    """The archive's file; unpacked beside it, without the ending, when it is first run."""
    return DIRECTORY / f"node-{digest}{_SUFFIX}"


def write(path: Path, text: str) -> None:
    """Put a file in the place of the one before, whole or not at all."""
    fresh = path.with_name(f"{path.name}.new")
    fresh.write_text(text, encoding="utf-8")
    fresh.rename(path)


def tidy() -> None:
    """On the computer: take older archives away, and write the way in for people."""
    unpacked = Path(__file__).parents[3]
    packed = unpacked.with_suffix(_SUFFIX)
    for path in DIRECTORY.glob("node-*"):
        if path in {unpacked, packed}:
            continue
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    command = shlex.join([sys.executable, "-I", "-S", str(packed), "attach"])
    ENTER.write_text(f'#!/bin/sh\nexec {command} "$@"\n', encoding="utf-8")
    ENTER.chmod(0o755)
