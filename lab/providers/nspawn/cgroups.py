"""The control groups of a lab's machines, on cgroup v1 and v2.

.. code-block:: text

    hybridlab-TOKEN/            on v1 only the devices that machines may open
        master/                 the machine's limits, out of its own reach
            outside/            what starts it, and commands that are sent to it
            inside/             systemd-nspawn and all that the machine runs

A process must be in ``inside`` of every hierarchy before systemd-nspawn starts, so that the root of
the container's cgroup namespace is there. Groups outlive their processes: they are removed with
the lab.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
_PREFIX = "hybridlab-"
_GROUP = re.compile(rf"{_PREFIX}[0-9a-z]+")
"""A lab's group, and not a scope of systemd's."""
_OF_CPUSET = ("cpuset.cpus", "cpuset.mems")
_CONTROLLERS = "cgroup.controllers"
_CPU_PERIOD = 100_000
"""Microseconds; the kernel's own default."""
OUTSIDE, INSIDE = "outside", "inside"
HOLDER = "holder"
"""With cgroup v2 the holder's own group, beside the lab's: processes are in leaves alone."""
DEVICES = (
    *("c *:* m", "b *:* m"),
    *("c 1:3 rwm", "c 1:5 rwm", "c 1:7 rwm", "c 1:8 rwm", "c 1:9 rwm"),
    *("c 5:0 rwm", "c 5:1 rwm", "c 5:2 rwm", "c 136:* rwm"),
    *("c 10:200 rwm", "c 1:11 r"),
)
"""What a machine may do with devices: make any node; open null, zero, full, random, urandom,
terminals and tun, as containers of Kubernetes do; and read ``/dev/kmsg``, as the kubelet does."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one machine may use at most."""

    memory_mib: int
    vcpus: int


@dataclass(frozen=True, slots=True)
class Hierarchies:
    """The host's cgroup file systems.

    ``unified``: whether there is only cgroup v2. ``parents``: in each hierarchy, the directory
    below which the lab's groups are made.
    """

    unified: bool
    parents: tuple[Path, ...]

    def groups(self, token: str) -> tuple[Path, ...]:
        """The lab's group in each hierarchy."""
        return tuple(parent / f"{_PREFIX}{token}" for parent in self.parents)


def unified() -> bool:
    """Whether the host has cgroup v2 alone."""
    return (ROOT / _CONTROLLERS).exists()


def hierarchies() -> Hierarchies:
    """Those of this host; v1 controllers and the v2 hierarchy beside them, or v2 alone.

    With v2 alone a lab's group is below the group that its holder was started in, anywhere in the
    tree: systemd delegates one to it.
    """
    if unified():
        return Hierarchies(True, (ROOT,))
    found = sorted(path for path in ROOT.iterdir() if (path / "cgroup.procs").exists())
    return Hierarchies(False, tuple(one for one in found if not one.is_symlink()))


def make(there: Hierarchies, token: str, machine: str, limits: Limits) -> tuple[Path, ...]:
    """Make a machine's group with its limits in each hierarchy, and those below; the machine's.

    Raises OSError when the kernel refuses one.
    """
    made = []
    for parent, group in zip(there.parents, there.groups(token), strict=True):
        own = group / machine
        group.mkdir(exist_ok=True)
        if not there.unified:
            _limit_devices(group)
        for below in (own / OUTSIDE, own / INSIDE):
            below.mkdir(parents=True, exist_ok=True)
        if there.unified:
            _hand_controllers_down(parent, group, own)
        else:
            _inherit_cpuset(parent, group, own, own / OUTSIDE, own / INSIDE)
        _limit(own, limits)
        made.append(own)
    return tuple(made)


def _limit_devices(group: Path) -> None:
    """Allow the lab's machines the devices they need; the kernel lets no group below have more."""
    listed = group / "devices.list"
    if listed.exists() and listed.read_text(encoding="ascii").startswith("a"):
        _write(group / "devices.deny", "a")
        for one in DEVICES:
            _write(group / "devices.allow", one)


def _hand_controllers_down(*groups: Path) -> None:
    for one in groups:
        names = (one / _CONTROLLERS).read_text(encoding="ascii").split()
        _write(one / "cgroup.subtree_control", " ".join(f"+{name}" for name in names))


def _inherit_cpuset(parent: Path, *below: Path) -> None:
    for one in below:
        for name in _OF_CPUSET:
            if (one / name).exists():
                _write(one / name, (parent / name).read_text(encoding="ascii"))
        if (one / "cgroup.clone_children").exists() and (one / _OF_CPUSET[0]).exists():
            _write(one / "cgroup.clone_children", "1")


def _limit(own: Path, limits: Limits) -> None:
    memory = str(limits.memory_mib << 20)
    quota = str(limits.vcpus * _CPU_PERIOD)
    for name, value in (
        ("memory.limit_in_bytes", memory),
        ("memory.max", memory),
        ("cpu.cfs_quota_us", quota),
        ("cpu.max", f"{quota} {_CPU_PERIOD}"),
    ):
        if (own / name).exists():
            _write(own / name, value)


def freeze(there: Hierarchies, token: str, machine: str, *, frozen: bool) -> None:
    """Stop every process of a machine where it is, or let them go on."""
    for group in there.groups(token):
        v1, v2 = group / machine / "freezer.state", group / machine / "cgroup.freeze"
        if v1.exists():
            _write(v1, "FROZEN" if frozen else "THAWED")
            return
        if there.unified and v2.exists():
            _write(v2, str(int(frozen)))


def is_frozen(there: Hierarchies, token: str, machine: str) -> bool:
    """Whether a machine's processes are stopped, or are being stopped."""
    for group in there.groups(token):
        own = group / machine
        with suppress(OSError):
            if (own / "freezer.state").exists():
                return (own / "freezer.state").read_text(encoding="ascii").strip() != "THAWED"
            if there.unified:
                return (own / "cgroup.freeze").read_text(encoding="ascii").strip() == "1"
    return False


def thaw(token: str) -> None:
    """Let all machines of a lab go on: with cgroup v1 nothing ends a frozen process."""
    for group in _groups():
        if group.name == f"{_PREFIX}{token}":
            for state in group.glob("*/freezer.state"):
                _write(state, "THAWED")


def end(there: Hierarchies, token: str, machine: str) -> bool:
    """Kill every process of a machine, frozen or not; whether there was none."""
    groups = (group / machine for group in there.groups(token))
    found = {process for group in groups for process in members(group)}
    for process in found:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    if found:
        freeze(there, token, machine, frozen=False)
    return not found


def members(group: Path) -> Iterator[int]:
    """Process ids in a group and below it."""
    for directory, _, _ in os.walk(group):
        with suppress(OSError):
            for line in (Path(directory) / "cgroup.procs").read_text(encoding="ascii").split():
                yield int(line)


def remove(token: str) -> bool:
    """Remove the lab's groups, deepest first; whether all of them have gone.

    A group that still has a process stays until that has ended. The lab's holder need not run.
    """
    found = [group for group in _groups() if group.name == f"{_PREFIX}{token}"]
    for group in found:
        for directory, _, _ in os.walk(group, topdown=False):
            _remove_empty(Path(directory))
        if unified():
            _remove_empty(group.with_name(HOLDER))
    return not any(group.exists() for group in found)


def _remove_empty(group: Path) -> None:
    with suppress(OSError):
        group.rmdir()


def tokens() -> frozenset[str]:
    """The tokens of all labs that have a group, whether their holders run or not."""
    return frozenset(group.name.removeprefix(_PREFIX) for group in _groups())


def _groups() -> Iterator[Path]:
    """Each of the caller's labs' groups in each hierarchy; what is in one is its machines' own.

    With v2 alone, systemd lets other users make groups, of any name, below those of their own.
    """
    there = hierarchies()
    for parent in there.parents:
        for directory, below, _ in os.walk(parent):
            found = (Path(directory, name) for name in below if _GROUP.fullmatch(name))
            yield from (group for group in found if _is_own(group))
            deeper = [name for name in below if not _GROUP.fullmatch(name)]
            below[:] = deeper if there.unified else []


def _is_own(group: Path) -> bool:
    try:
        return group.stat().st_uid == os.geteuid()
    except FileNotFoundError:  # it has just gone
        return False


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="ascii")
