"""Create, start, find and stop the system containers of a lab.

All of them run in the lab's holder and end with it. Operations there run in a child of this
process that enters the holder's namespaces.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from lab._deadline import Deadline
from lab._errors import BrokenError
from lab.machines.images.seed import light_tree
from lab.machines.nspawn import cgroups, container, prepared
from lab.machines.nspawn.cgroups import Hierarchies
from lab.machines.nspawn.container import RUN, Container
from lab.machines.nspawn.layout import MACHINES, disk
from lab.machines.nspawn.system import ContainerSystem
from lab.machines.system import system_of
from lab.providers.netns import isolation
from lab.providers.netns.holders import HolderEntry, start_time
from lab.providers.provider import LabHandle
from lab.state.files import read_private

_MADE_FROM = "made-from"
SWITCHED_ON = "switched on\n"
"""Begins what a machine's log says of each time that it was switched on."""
_BOOT_SECONDS = 60.0
_OFF_SECONDS = 20.0
_NSPAWN = "systemd-nspawn"


def require_own_disks(lab: LabHandle) -> None:
    """Refuse a symbolic link in place of the directory with the machines' disks.

    Raises BrokenError if it is one: its target does not belong to the lab.
    """
    place = lab.directory / MACHINES
    if place.is_symlink():
        raise BrokenError(
            f"looking at the disks of lab '{lab.name}'",
            f"'{place}' is a link",
            f"'lab down {lab.name}' removes only the link",
        )


def write_disk(instance: Container) -> None:
    """Write the machine's disk; an earlier one must have been removed.

    Raises OSError when the disk is full.
    """
    own = disk(instance.lab, instance.name)
    upper = own / "upper"
    for path in (upper, own / "work"):
        path.mkdir(parents=True)
        path.chmod(0o755)
    with tarfile.open(fileobj=io.BytesIO(light_tree(instance.identity()))) as tree:
        # not the argument 'filter', which Debian 12's Python 3.11.2 lacks
        tree.extraction_filter = lambda member, _: member
        tree.extractall(upper)  # noqa: S202  written here, owned by root
    limits = instance.machine.hardware
    files = container.first_process(
        limits.memory_mib, min(limits.vcpus, os.cpu_count() or limits.vcpus)
    )
    _write(upper, {name: content.encode() for name, content in files.items()}, 0o444)
    if instance.machine.os != "linux":
        system = system_of(instance.machine.os, ContainerSystem, f"making '{instance.name}'")
        _write(upper, system.files(instance.machine), 0o644)
    if not instance.is_node or instance.machine.os != "linux":
        # nothing there uses D-Bus, which takes one of the few inotify instances
        masked = upper / "etc/systemd/system/dbus.service"
        masked.parent.mkdir(parents=True, exist_ok=True)
        masked.symlink_to("/dev/null")
    if instance.is_node:
        for at in container.BOUND:
            if at != "containerd":
                (own / at).mkdir()
        prepared.link_store(instance.prepared, own / "containerd")
    (own / _MADE_FROM).write_text(instance.digest(), encoding="ascii")


def _write(root: Path, files: Mapping[str, bytes], mode: int) -> None:
    """Write files below a root; those that begin with ``#!`` are executable."""
    for name, content in files.items():
        path = root / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        path.chmod(0o755 if content.startswith(b"#!") else mode)


def made_from(instance: Container) -> bool:
    """True if the machine's disk exists and is up to date."""
    try:
        digest = read_private(disk(instance.lab, instance.name) / _MADE_FROM).decode(
            errors="replace"
        )
    except OSError:
        return False
    return digest == instance.digest()


def switch_on(
    entry: HolderEntry, instance: Container, hierarchies: Hierarchies, bridges: Mapping[str, str]
) -> None:
    """Start a machine whose disk exists; does not wait until it has booted.

    Its old processes may have outlived systemd-nspawn and, if frozen, the holder; they are killed
    first.

    Raises BrokenError when it cannot be started. Raises DeadlineError when an old process does not
    exit.
    """
    switch_off(hierarchies, instance.lab, instance.name)
    groups = cgroups.make(hierarchies, instance.lab.token, instance.name, instance.machine.hardware)
    own = disk(instance.lab, instance.name)
    text = instance.script(groups, bridges)

    def inside() -> None:
        instance.root.mkdir(parents=True, exist_ok=True)
        if not os.path.ismount(instance.root):
            options = f"lowerdir={instance.lower},upperdir={own / 'upper'},workdir={own / 'work'}"
            isolation.mount("overlay", str(instance.root), "overlay", 0, options)
        path = RUN / f"{instance.name}.sh"
        path.write_text(text, encoding="utf-8")
        with (RUN / f"{instance.name}.log").open("ab") as log:
            log.write(SWITCHED_ON.encode())
            log.flush()
            subprocess.Popen(  # noqa: S603  the script just written
                ("/bin/sh", str(path)),
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    entry.call(f"switching '{instance.name}' on", lambda _: inside(), Deadline(_BOOT_SECONDS))


@dataclass(frozen=True, slots=True)
class Leader:
    """A machine's systemd process, as the host sees it."""

    pid: int
    started: int
    """In clock ticks since boot."""

    def runs(self) -> bool:
        """True if that process still runs."""
        return start_time(self.pid) == self.started


def leaders(holder: int) -> dict[str, Leader]:
    """The systemd process of each running machine in a holder, by machine name."""
    try:
        space = os.stat(f"/proc/{holder}/ns/pid").st_ino  # noqa: PTH116  no Path needed
    except OSError:
        return {}
    leaders_by_machine: dict[str, Leader] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208  names are wanted, not paths
        if not name.isdigit():
            continue
        with suppress(OSError):
            words = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")
            if os.path.basename(words[0]).decode(errors="replace") != _NSPAWN:  # noqa: PTH119
                continue
            if os.stat(f"/proc/{name}/ns/pid").st_ino != space:  # noqa: PTH116
                continue
            for machine in _parse_names(words):
                for leader in _find_leaders(int(name)):
                    leaders_by_machine[machine] = leader
    return leaders_by_machine


def _parse_names(words: list[bytes]) -> Iterator[str]:
    for word in words:
        if word.startswith(b"--machine="):
            yield os.fsdecode(word.removeprefix(b"--machine="))


def _find_leaders(nspawn: int) -> Iterator[Leader]:
    """The child that is process 1 of its own pid namespace."""
    children = Path(f"/proc/{nspawn}/task/{nspawn}/children").read_text(encoding="ascii").split()
    depth = len(_pids(nspawn))
    for child in children:
        inside, since = _pids(int(child)), start_time(int(child))
        if len(inside) == depth + 1 and inside[-1] == "1" and since is not None:
            yield Leader(int(child), since)


def _pids(process: int) -> list[str]:
    """A process's id in each pid namespace that it is in, outermost first."""
    status = Path(f"/proc/{process}/status").read_text(encoding="utf-8", errors="replace")
    return next(line.split()[1:] for line in status.splitlines() if line.startswith("NSpid:"))


def switch_off(hierarchies: Hierarchies, lab: LabHandle, machine: str) -> None:
    """Power a machine off: kill all its processes.

    Raises DeadlineError when they do not exit in time.
    """
    end = partial(cgroups.end, hierarchies, lab.token, machine)
    Deadline(_OFF_SECONDS).wait(f"switching '{machine}' off", end)


def remove(entry: HolderEntry, hierarchies: Hierarchies, lab: LabHandle, machine: str) -> None:
    """Power a machine off and delete its disk.

    Raises DeadlineError when it does not stop in time.
    """
    switch_off(hierarchies, lab, machine)
    root = RUN / "roots" / machine

    def inside() -> None:
        if root.is_mount():
            isolation.unmount(str(root))

    entry.call(f"unmounting the disk of '{machine}'", lambda _: inside(), Deadline(_OFF_SECONDS))
    own = disk(lab, machine)
    if own.exists():
        shutil.rmtree(own)


def log(entry: HolderEntry, machine: str) -> str:
    """The output of a machine's systemd-nspawn and start script."""

    def inside() -> str:
        try:
            return (RUN / f"{machine}.log").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""

    action = f"reading the log of '{machine}'"
    return entry.call(action, lambda _: inside(), Deadline(10.0), answer=str)


def has_ended(log_text: str) -> bool:
    """True if a machine's log ends with its systemd-nspawn's exit: it is off and stays off."""
    return log_text.rstrip().rpartition("\n")[2].startswith(container.ENDED)


def failure(machine: str, log_text: str) -> BrokenError:
    """The error for a machine that did not start."""
    last = log_text.rpartition(SWITCHED_ON)[2]
    tail = " / ".join(line.strip() for line in last.strip().splitlines()[-4:])
    return BrokenError(
        f"booting machine '{machine}'", tail or "systemd-nspawn ended without output", "lab doctor"
    )
