"""Labs of system containers, and checks that they leave nothing behind."""

import fcntl
import os
import shutil
import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from bundle.made_bundle import missing_bundle
from real_lab import SMALL, RealLab
from whole_cluster import SCENARIO

from lab._deadline import Deadline
from lab.lifecycle.compilation import compile_scenario
from lab.machines.nspawn import cgroups, preflight
from lab.machines.nspawn.holder import KIND as CONTAINERS
from lab.providers.netns.holders import list_holders
from lab.providers.provider import Pods
from lab.scenario.terms import Os
from lab.state.store import FILE

SPARE = 8
"""Inotify instances that tests leave to other programs of the host."""
ROOM_SECONDS = 1200
LINKS = Path("/sys/class/net")
UP = ("up", str(SMALL), "--provider", "nspawn", "--pods", "namespaces")
CLUSTER_UP = ("up", str(SCENARIO), "--provider", "nspawn", "--pods", "kubernetes")


@dataclass(frozen=True)
class ContainerLabs(RealLab):
    """Labs of system containers of one state directory."""

    provider: str = "nspawn"

    def holders(self) -> list[int]:
        """The process ids of the holders of these labs."""
        holders = list_holders(CONTAINERS)
        return [holder.pid for holder in holders if self.state in holder.directory.parents]

    def holder(self) -> int:
        """The process id of the only one."""
        (own,) = self.holders()
        return own

    @contextmanager
    def started(self, *words: str) -> Iterator[subprocess.Popen[str]]:
        """A command whose messages can be read; it is killed if it still runs after the block."""
        process = subprocess.Popen(
            self.command(*words),
            env=self.environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            if process.stderr:
                process.stderr.close()

    def forget(self) -> None:
        """Delete the journal."""
        for path in self.state.glob(f"{FILE}*"):
            path.unlink()

    def left(self) -> set[str]:
        """Everything of these labs on the machine, regardless of the journal."""
        lines = {f"process {pid}" for pid in self._processes()}
        lines |= {f"disk {path}" for path in self.state.glob("labs/*/machines/*")}
        tokens = self._tokens()
        lines |= {f"control group {token}" for token in tokens & cgroups.tokens()}
        lines |= {f"mount {mount}" for mount in self._mounts()}
        cables = {path.name for path in LINKS.iterdir()}
        return lines | {f"cable hl{token[:8]}" for token in tokens if f"hl{token[:8]}" in cables}

    def _processes(self) -> Iterator[int]:
        """Processes whose command line has the state directory, or that have a mount of it."""
        wanted = os.fsencode(str(self.state))
        for name in (path.name for path in Path("/proc").iterdir()):
            if not name.isdigit() or int(name) == os.getpid():
                continue
            try:
                words = Path(f"/proc/{name}/cmdline").read_bytes()
                mounts = Path(f"/proc/{name}/mounts").read_bytes()
            except OSError:
                continue
            if (b"hybridlab-containers" in words and wanted in words) or wanted in mounts:
                yield int(name)

    def _mounts(self) -> Iterator[str]:
        """Mounts and loop devices of this machine that are of the state directory."""
        for line in Path("/proc/self/mountinfo").read_text().splitlines():
            if str(self.state) in line:
                yield line
        for backing in Path("/sys/block").glob("loop*/loop/backing_file"):
            with suppress(OSError):  # it has just been taken away
                if str(self.state) in backing.read_text():
                    yield backing.parts[3]

    def _tokens(self) -> set[str]:
        """Tokens of every lab that ever was in this state directory."""
        journal = self.state / FILE
        if not journal.exists():
            return set()
        with closing(sqlite3.connect(f"file:{journal}?mode=ro", uri=True)) as opened:
            return {token for (token,) in opened.execute("SELECT token FROM labs")}


def why_not() -> str:
    """Why system containers are impossible here; empty if they are possible."""
    diagnoses = [
        diagnosis for diagnosis in preflight.examine(Path("/var/tmp")) if diagnosis.level == "fail"
    ]
    if not diagnoses and shutil.which("mmdebstrap") is None:
        return "no 'mmdebstrap' to make root file systems with"
    return "; ".join(diagnosis.seen for diagnosis in diagnoses)


@contextmanager
def room_for(
    scenario: Path | str, pods: Pods = "kubernetes", only: Os | None = "linux"
) -> Iterator[None]:
    """Wait until the host has the inotify instances of a lab, and hold them; else skip the test.

    Tests of several processes share the host's limit. Each instance is a byte of a file that is
    locked: the first ones or the last ones, so two labs fit if their sum does. Who waits keeps
    others from taking what it waits for.
    """
    wanted = compile_scenario(scenario, only, None, pods, real=True)
    needed, room = preflight.need(wanted.intent), preflight.room()
    most = room.inotify_limit - SPARE
    lacking = list(preflight.judge(needed, replace(room, inotify_used=SPARE)))
    if lacking:
        pytest.skip("; ".join(diagnosis.seen for diagnosis in lacking))
    base = Path("/run/hybridlab-tests-inotify")
    with base.open("w") as ours, base.with_suffix(".queue").open("w") as queue:

        def take() -> bool:
            for start in (0, most - needed.inotify):
                with suppress(BlockingIOError):
                    fcntl.lockf(ours, fcntl.LOCK_EX | fcntl.LOCK_NB, needed.inotify, start)
                    return True
            return False

        fcntl.flock(queue, fcntl.LOCK_EX)
        Deadline(ROOM_SECONDS).wait(
            f"waiting for {needed.inotify} inotify instances", take, until=bool, every=0.5
        )
        fcntl.flock(queue, fcntl.LOCK_UN)
        yield


def need_bundle() -> None:
    """Skip the test if no bundle for a cluster was made."""
    if why := missing_bundle():
        pytest.skip(why)
