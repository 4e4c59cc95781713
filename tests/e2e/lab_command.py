"""The ``lab`` command as a user runs it, and checks that it leaves nothing behind."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import closing, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

from lab.cli.main import main

ENOUGH_SECONDS = 600
AS_PLAIN_USER = ("unshare", "--user", "--map-user=1000", "--map-group=1000", "--")


HERE = frozenset(
    {"up", "down", "status", "list", "plan", "show", "report", "validate", "fault", "heal"}
    | {"gather", "explain", "diff", "new", "graph", "logs", "events"}
)
"""Commands that can run in this process; "test" is pytest, and "exec" passes its streams on."""


def _goes_here(words: tuple[str, ...]) -> bool:
    return words[0] in HERE and threading.current_thread() is threading.main_thread()


@dataclass(frozen=True)
class Lab:
    """Runs the command line on one state directory."""

    state: Path

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "lab", *words]

    def environment(self) -> dict[str, str]:
        return {**os.environ, "HYBRIDLAB_STATE": str(self.state), "COLUMNS": "100"}

    def run(self, *words: str, code: int | None = 0) -> subprocess.CompletedProcess[str]:
        done = self._run_here(words) if _goes_here(words) else self.call(self.command(*words))
        text = f"{done.stderr[-4000:]}\n{done.stdout[-4000:]}"
        assert code in {None, done.returncode}, f"{words}: {done.returncode}\n{text}"
        assert "Traceback" not in done.stderr
        return done

    def call(
        self, command: Sequence[str], cwd: Path | None = None, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Run any command in a process of its own, on this state directory."""
        return subprocess.run(
            command,
            cwd=cwd,
            env={**self.environment(), **environment},
            capture_output=True,
            text=True,
            timeout=ENOUGH_SECONDS,
            check=False,
        )

    def _run_here(self, words: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
        """Run the command in this process, which has imported it already."""
        before = dict(os.environ)
        out, err = StringIO(), StringIO()
        os.environ.update(self.environment())
        try:
            with redirect_stdout(out), redirect_stderr(err):
                main(words)
        except SystemExit as end:
            return subprocess.CompletedProcess(words, end.code, out.getvalue(), err.getvalue())
        finally:
            os.environ.clear()
            os.environ.update(before)
        raise AssertionError("main() ends with an exit code")

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command(*words),
            env=self.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def kill_after(self, seconds: float, *words: str) -> None:
        """Start the command, and kill it if it still runs after that time."""
        process = self.start(*words)
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
        process.communicate(timeout=30)

    def token(self) -> str:
        """The token of the only lab, which its holder has in its environment."""
        with closing(sqlite3.connect(self.state / "state.db")) as journal:
            return str(journal.execute("SELECT token FROM labs").fetchone()[0])

    def kill_holder(self) -> None:
        """End the holder of the only lab by SIGKILL."""
        token, holders = self.token().encode(), []
        for path in Path("/proc").glob("[0-9]*/environ"):
            try:
                if token in path.read_bytes():
                    holders.append(int(path.parent.name))
            except OSError:
                continue
        (holder,) = holders
        os.kill(holder, signal.SIGKILL)


def processes_with(text: str) -> list[str]:
    """Command lines of this machine's processes that contain the text."""
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
    """Check that no process, mount or file of a state directory's labs is left, except reports."""
    assert processes_with(str(state)) == []
    assert mounts_with(str(state)) == []
    labs = state / "labs"
    left = [
        path
        for path in labs.rglob("*")
        if path.is_file() and "runs" not in path.relative_to(labs).parts and path.name != "lock"
    ]
    assert left == []
