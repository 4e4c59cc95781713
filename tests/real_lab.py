"""The ``lab`` command on real machines, and what a hypervisor may hold afterwards: nothing."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from processes import run_program

SMALL = Path(__file__).with_name("small.yaml")
ENOUGH_SECONDS = 2400
"""For one command; an emulated cluster is up in eight minutes on two cores that do nothing else."""

FLAKY_ALONE = re.compile(r"cells: (?:[\d,]+ (?:pass|known limits?), )+[\d,]+ flaky; ")
"""The last line of 'lab test' where no cell was worse than that."""

AGAIN_SECONDS = 15.0


@dataclass(frozen=True)
class RealLab:
    """Runs the command line on one state directory and one inventory."""

    state: Path
    inventory: Path | None = None
    extra: dict[str, str] = field(default_factory=dict)
    provider: str = "libvirt"

    def environment(self) -> dict[str, str]:
        found = {**os.environ, "HYBRIDLAB_STATE": str(self.state), "COLUMNS": "100", **self.extra}
        if self.inventory is not None:
            found["HYBRIDLAB_INVENTORY"] = str(self.inventory)
        return found

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "lab", *words]

    def run(self, *words: str, code: int | None = 0) -> subprocess.CompletedProcess[str]:
        done = run_program(
            self.command(*words),
            env=self.environment(),
            timeout=ENOUGH_SECONDS,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        text = f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert code in {None, done.returncode}, text
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def green(self, *words: str) -> str:
        """What 'lab test' says, all as expected; ``words``: the lab, and what else it is told.

        A datagram may be lost while the machine is busy, but not in two runs.
        """
        done = self.run("test", *words, code=None)
        if done.returncode == 1 and FLAKY_ALONE.search(done.stdout):
            done = self.run("test", *words)
        assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def up(
        self, scenario: Path = SMALL, *words: str, pods: str = "namespaces", code: int = 0
    ) -> Any:
        asked = ("up", str(scenario), "--provider", self.provider, "--pods", pods)
        return self.run(*asked, *words, code=code)

    def ssh(self, scratch: Path, lab: str, machine: str, command: str) -> str:
        """What a command says on a machine, reached by ssh as 'lab ssh-config' has it."""
        file = scratch / "config"
        file.write_text(self.run("ssh-config", lab).stdout)
        words = ["ssh", "-F", str(file), "-o", "BatchMode=yes", f"{lab}-{machine}", command]
        return run_program(words, timeout=ENOUGH_SECONDS).stdout

    def on_terminal(self, words: tuple[str, ...], keys: bytes, until: bytes, leave: bytes) -> bytes:
        """Run a command on a terminal, type, wait for an answer, and leave; all it has shown."""
        child, terminal = pty.fork()
        if child == 0:
            command = self.command(*words)
            os.execve(command[0], command, self.environment())
        shown = b""
        ends = time.monotonic() + ENOUGH_SECONDS
        try:
            shown = _shown(terminal, b"leaves it", ends)
            shown += _shown(terminal, until, ends, keys)
        finally:
            os.write(terminal, leave)
            assert os.waitpid(child, 0)[1] == 0, shown
            os.close(terminal)
        return shown

    def killed_after(self, words: tuple[str, ...], line: str) -> list[str]:
        """Run a command and kill -9 it as soon as its story has that line; the story so far."""
        with self.started(*words) as process:
            return story_until(process, line)

    @contextmanager
    def started(self, *words: str) -> Iterator[subprocess.Popen[str]]:
        """A command that runs, with its story to be read; killed if it still runs at the end."""
        with subprocess.Popen(
            self.command(*words),
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                yield process
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)


def story_until(process: subprocess.Popen[str], line: str) -> list[str]:
    """What a command tells, up to a line that begins so, or its end."""
    assert process.stderr is not None
    story: list[str] = []
    ends = time.monotonic() + ENOUGH_SECONDS
    for said in process.stderr:
        story.append(said.rstrip())
        assert time.monotonic() < ends, story
        if said.startswith(line):
            break
    return story


def _shown(terminal: int, until: bytes, ends: float, keys: bytes = b"") -> bytes:
    """All that is shown; keys are typed again and again: a guest that still starts hears none."""
    shown = b""
    type_at = time.monotonic()
    while until not in shown:
        assert time.monotonic() < ends, shown
        if keys and time.monotonic() >= type_at:
            os.write(terminal, keys)
            type_at += AGAIN_SECONDS
        if select.select([terminal], [], [], 1.0)[0]:
            shown += os.read(terminal, 4096)
    return shown


def objects(connected: Any, *beginnings: str) -> set[str]:
    """Every object of a hypervisor whose name begins like that; images are shared and stay."""
    found = {
        *(f"domain {listalldomain.name()}" for listalldomain in connected.listAllDomains()),
        *(f"network {network.name()}" for network in connected.listAllNetworks()),
        *(f"pool {pool.name()}" for pool in connected.listAllStoragePools()),
    }
    return {one for one in found if one.partition(" ")[2].startswith(beginnings)}
