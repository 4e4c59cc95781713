"""What is left of work that is killed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from lab._deadline import Deadline


def left_after_kill(script: str, place: Path, started: Callable[[], object]) -> list[str]:
    """What is in the directory for temporary files when that script is killed at its work."""
    place.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-c", script], env={**os.environ, "TMPDIR": str(place)}
    )
    try:
        Deadline(60).wait("waiting for the script to work", started, every=0.02)
    finally:
        process.kill()
        process.wait(60)
    return [path.name for path in place.iterdir()]
