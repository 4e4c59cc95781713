"""The control groups of a lab's machines, on cgroup v1 and v2.

.. code-block:: text

    hybridlab-TOKEN/            on v1: limits the devices that machines may open
        master/                 the machine's limits, which it cannot change
            outside/            the process that starts it, and commands sent to it
            inside/             systemd-nspawn and everything that the machine runs

systemd-nspawn must start in ``inside`` of every hierarchy, so that this becomes the root of the
container's cgroup namespace. Groups outlive their processes; they are removed with the lab.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # every command that lists labs imports this module
    from lab.topology.intent import Hardware

ROOT = Path("/sys/fs/cgroup")
_PREFIX = "hybridlab-"
_GROUP = re.compile(rf"{_PREFIX}[0-9a-z]+")
"""Matches a lab's group, but not systemd's scopes."""
_OF_CPUSET = ("cpuset.cpus", "cpuset.mems")
_CONTROLLERS = "cgroup.controllers"
_CPU_PERIOD = 100_000
"""Microseconds; the kernel's default."""
OUTSIDE, INSIDE = "outside", "inside"
HOLDER = "holder"
"""With cgroup v2 the holder's own group, beside the lab's: only leaves may have processes."""
DEVICES = (
    *("c *:* m", "b *:* m"),
    *("c 1:3 rwm", "c 1:5 rwm", "c 1:7 rwm", "c 1:8 rwm", "c 1:9 rwm"),
    *("c 5:0 rwm", "c 5:1 rwm", "c 5:2 rwm", "c 136:* rwm"),
    *("c 10:200 rwm", "c 1:11 r"),
)
"""A machine's device access: create any node; open null, zero, full, random, urandom, terminals
and tun, as Kubernetes containers do; and read ``/dev/kmsg``, as the kubelet does."""


@dataclass(frozen=True, slots=True)
class Hierarchies:
    """The host's cgroup file systems.

    ``unified``: True if there is only cgroup v2. ``parents``: in each hierarchy, the directory
    for the labs' groups.
    """

    unified: bool
    parents: tuple[Path, ...]

    def groups(self, token: str) -> tuple[Path, ...]:
        """The lab's group in each hierarchy."""
        return tuple(parent / f"{_PREFIX}{token}" for parent in self.parents)


def lab_of(pid: str) -> str:
    """The token of the lab in whose groups a process is; empty if it is in none, or has ended."""
    try:
        text = Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8")
    except OSError:
        return ""
    match = _GROUP.search(text)
    return match[0].removeprefix(_PREFIX) if match else ""


def unified() -> bool:
    """True if the host has only cgroup v2."""
    return (ROOT / _CONTROLLERS).exists()


def hierarchies() -> Hierarchies:
    """The host's hierarchies: v1 controllers with a v2 hierarchy beside them, or only v2.

    With only v2, systemd delegates a group to the lab's holder, anywhere in the tree; the lab's
    group is below it.
    """
    if unified():
        return Hierarchies(True, (ROOT,))
    paths = sorted(path for path in ROOT.iterdir() if (path / "cgroup.procs").exists())
    return Hierarchies(False, tuple(path for path in paths if not path.is_symlink()))


def make(trees: Hierarchies, token: str, machine: str, limits: Hardware) -> tuple[Path, ...]:
    """Create a machine's group in each hierarchy, with limits and subgroups; returns the groups.

    Raises OSError when the kernel refuses one.
    """
    made = []
    for parent, group in zip(trees.parents, trees.groups(token), strict=True):
        own = group / machine
        group.mkdir(exist_ok=True)
        if not trees.unified:
            _limit_devices(group)
        for below in (own / OUTSIDE, own / INSIDE):
            below.mkdir(parents=True, exist_ok=True)
        if trees.unified:
            _hand_controllers_down(parent, group, own)
        else:
            _inherit_cpuset(parent, group, own, own / OUTSIDE, own / INSIDE)
        _limit(own, limits)
        _weigh(group, own, limits)
        made.append(own)
    return tuple(made)


def _weigh(group: Path, own: Path, limits: Hardware) -> None:
    """Give a machine the CPU weight of one process per processor.

    By default a group has the weight of one process, whatever it contains, and so would a whole
    lab.
    """
    for name, one_process, most in (("cpu.shares", 1024, 1 << 18), ("cpu.weight", 100, 10_000)):
        if (own / name).exists():
            _write(own / name, str(min(one_process * limits.vcpus, most)))
            machines = (path for path in group.iterdir() if path.is_dir())
            total = sum(int((path / name).read_text(encoding="ascii")) for path in machines)
            _write(group / name, str(min(total, most)))


def _limit_devices(group: Path) -> None:
    """Allow only the devices that machines need; groups below cannot allow more."""
    listed = group / "devices.list"
    if listed.exists() and listed.read_text(encoding="ascii").startswith("a"):
        _write(group / "devices.deny", "a")
        for device in DEVICES:
            _write(group / "devices.allow", device)


def _hand_controllers_down(*groups: Path) -> None:
    for group in groups:
        names = (group / _CONTROLLERS).read_text(encoding="ascii").split()
        _write(group / "cgroup.subtree_control", " ".join(f"+{name}" for name in names))


def _inherit_cpuset(parent: Path, *below: Path) -> None:
    for group in below:
        for name in _OF_CPUSET:
            if (group / name).exists():
                _write(group / name, (parent / name).read_text(encoding="ascii"))
        if (group / "cgroup.clone_children").exists() and (group / _OF_CPUSET[0]).exists():
            _write(group / "cgroup.clone_children", "1")


def _limit(own: Path, limits: Hardware) -> None:
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


def freeze(trees: Hierarchies, token: str, machine: str, *, frozen: bool) -> None:
    """Freeze or thaw every process of a machine."""
    for group in trees.groups(token):
        v1, v2 = group / machine / "freezer.state", group / machine / "cgroup.freeze"
        if v1.exists():
            _write(v1, "FROZEN" if frozen else "THAWED")
            return
        if trees.unified and v2.exists():
            _write(v2, str(int(frozen)))


def is_frozen(trees: Hierarchies, token: str, machine: str) -> bool:
    """True if a machine's processes are frozen or being frozen."""
    for group in trees.groups(token):
        own = group / machine
        with suppress(OSError):
            if (own / "freezer.state").exists():
                return (own / "freezer.state").read_text(encoding="ascii").strip() != "THAWED"
            if trees.unified:
                return (own / "cgroup.freeze").read_text(encoding="ascii").strip() == "1"
    return False


def thaw(token: str) -> None:
    """Thaw all machines of a lab: with cgroup v1 a frozen process cannot be killed."""
    for group in _groups():
        if group.name == f"{_PREFIX}{token}":
            for state in group.glob("*/freezer.state"):
                _write(state, "THAWED")


def end(trees: Hierarchies, token: str, machine: str) -> bool:
    """Kill every process of a machine, frozen or not; returns True if there was none."""
    groups = (group / machine for group in trees.groups(token))
    processes = {process for group in groups for process in members(group)}
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    if processes:
        freeze(trees, token, machine, frozen=False)
    return not processes


def members(group: Path) -> Iterator[int]:
    """Process ids in a group and below it."""
    for directory, _, _ in os.walk(group):
        with suppress(OSError):
            for line in (Path(directory) / "cgroup.procs").read_text(encoding="ascii").split():
                yield int(line)


def remove(token: str) -> bool:
    """Remove the lab's groups, deepest first; returns True once all are gone.

    A group with a process stays until that has exited. The lab's holder need not run.
    """
    groups = [group for group in _groups() if group.name == f"{_PREFIX}{token}"]
    for group in groups:
        for directory, _, _ in os.walk(group, topdown=False):
            _remove_empty(Path(directory))
        if unified():
            _remove_empty(group.with_name(HOLDER))
    return not any(group.exists() for group in groups)


def _remove_empty(group: Path) -> None:
    with suppress(OSError):
        group.rmdir()


def tokens() -> frozenset[str]:
    """The tokens of all labs with a group, whether their holders run or not."""
    return frozenset(group.name.removeprefix(_PREFIX) for group in _groups())


def _groups() -> Iterator[Path]:
    """The groups of the caller's labs in every hierarchy, without their subgroups.

    With only v2, other users can create groups of any name below their own, so owners are checked.
    """
    trees = hierarchies()
    for parent in trees.parents:
        for directory, below, _ in os.walk(parent):
            paths = (Path(directory, name) for name in below if _GROUP.fullmatch(name))
            yield from (group for group in paths if _is_own(group))
            deeper = [name for name in below if not _GROUP.fullmatch(name)]
            below[:] = deeper if trees.unified else []


def _is_own(group: Path) -> bool:
    try:
        return group.stat().st_uid == os.geteuid()
    except FileNotFoundError:  # just removed
        return False


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="ascii")
