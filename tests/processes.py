"""Programs that tests run to their end or kill, and ``lab`` in this process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from lab._deadline import Deadline
from lab.cli.main import main


def lab(capfd: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Run the command as a shell would; its exit code, standard output and standard error."""
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    told = capfd.readouterr()
    assert isinstance(ended.value.code, int)
    return ended.value.code, told.out, told.err


def run_program(command: Sequence[str | Path], **changes: Any) -> subprocess.CompletedProcess[Any]:
    """Run a program whose output is text that is captured, and which has to succeed in 300 s.

    ``changes`` are other arguments of :func:`subprocess.run`.
    """
    usual = {"capture_output": True, "text": True, "check": True, "timeout": 300}
    return subprocess.run(command, **usual | changes)  # noqa: PLW1510  it is in the usual ones


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
