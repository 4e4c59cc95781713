"""The ``lab`` command as a user runs it, and what it may leave: nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ENOUGH_SECONDS = 120


@dataclass(frozen=True)
class Lab:
    """Runs the command line on one state directory."""

    state: Path

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "lab", *words]

    def environment(self) -> dict[str, str]:
        return {**os.environ, "HYBRIDLAB_STATE": str(self.state), "COLUMNS": "100"}

    def run(self, *words: str, code: int | None = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            self.command(*words),
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=ENOUGH_SECONDS,
            check=False,
        )
        said = f"{done.stderr[-4000:]}\n{done.stdout[-4000:]}"
        assert code in {None, done.returncode}, f"{words}: {done.returncode}\n{said}"
        assert "Traceback" not in done.stderr
        return done

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command(*words),
            env=self.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


def processes_with(text: str) -> list[str]:
    """Command lines of this machine's processes that hold the text."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if text in line:
            found.append(line)
    return found


def mounts_with(text: str) -> list[str]:
    return [line for line in Path("/proc/self/mounts").read_text().splitlines() if text in line]


def assert_nothing_is_left(state: Path) -> None:
    """No process, mount or file of the labs of a state directory is left, but runs' reports."""
    assert processes_with(str(state)) == []
    assert mounts_with(str(state)) == []
    labs = state / "labs"
    left = [
        path
        for path in labs.rglob("*")
        if path.is_file() and "runs" not in path.relative_to(labs).parts and path.name != "lock"
    ]
    assert left == []
