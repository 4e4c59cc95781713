"""Check whether this machine can run a lab of system containers.

Each check returns a :class:`~lab.providers.provider.Diagnosis`, used by both ``lab doctor`` and
``lab up``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from lab._deadline import Deadline
from lab._errors import LabError, PreflightError
from lab.machines.cluster.cluster import HostTraits
from lab.machines.nspawn import cgroups, layout
from lab.machines.nspawn.holder import KIND
from lab.machines.nspawn.system import container_systems
from lab.providers.netns import child_calls, isolation
from lab.providers.netns.holders import list_holders
from lab.providers.provider import Diagnosis, LabHandle
from lab.state.capacity import available
from lab.state.permissions import writer
from lab.topology.intent import Intent

SUBJECT = "this machine, for system containers"
PROGRAMS = {
    "systemd-nspawn": "systemd-container",
    "nsenter": "util-linux",
    "unshare": "util-linux",
    "ip": "iproute2",
}
"""Debian package by program."""
_PACKAGES = ("kubernetes", "paramiko")
"""Of the extra ``nspawn``; the keys of nodes need what paramiko depends on."""
INOTIFY_CONTROL_PLANE, INOTIFY_NODE, INOTIFY_MACHINE = 27, 13, 3
"""Measured inotify instances of a machine: with API server and kubelet, with one of the two (the
control planes of the hard way run no kubelet), with neither."""
MEMORY_MIB = {"control-plane": 560, "worker": 165, "machine": 20}
"""Measured memory use; machines rarely use all the memory of the scenario."""
_MIB = 1 << 20
_SECONDS = 20.0
_CAP_SYS_RESOURCE = 24
_KERNEL_MODULES = {
    "overlay": "/sys/module/overlay",
    "br_netfilter": "/proc/sys/net/bridge",
    "nf_conntrack": "/proc/sys/net/netfilter",
}
"""Modules, each with a directory that exists if the module is loaded or built in."""


@dataclass(frozen=True, slots=True)
class NspawnNeed:
    """Resources that a lab needs."""

    inotify: int
    memory_mib: int


@dataclass(frozen=True, slots=True)
class NspawnRoom:
    """Resources that the machine has."""

    inotify_limit: int
    inotify_used: int
    memory_mib: int
    inotify_pending: int = 0
    """What labs that are coming up do not have yet."""


def need(intent: Intent) -> NspawnNeed:
    """The resources that a lab needs; without a cluster every machine counts as plain. Pure."""
    inotify = memory = 0
    others = {system.name: system for system in container_systems()}
    for machine in intent.machines:
        kubelet = machine.kubelet if intent.kubernetes else None
        other = others.get(machine.os)
        memory += other.memory_mib if other else MEMORY_MIB[kubelet.role if kubelet else "machine"]
        if kubelet is None:
            inotify += INOTIFY_MACHINE
        elif other:
            inotify += other.inotify
        elif kubelet.role == "control-plane" and kubelet.pod_cidr:
            inotify += INOTIFY_CONTROL_PLANE
        else:
            inotify += INOTIFY_NODE
    return NspawnNeed(inotify, memory)


def room() -> NspawnRoom:
    """Read this machine's limits and current use."""
    limit = int(Path("/proc/sys/fs/inotify/max_user_instances").read_text(encoding="ascii"))
    used = inotify_instances(os.geteuid())
    labs = (
        (holder.token, layout.load(LabHandle(holder.lab, holder.directory, holder.token)))
        for holder in list_holders(KIND)
    )
    wanted = {token: recorded.inotify for token, recorded in labs if recorded}
    return NspawnRoom(limit, used.total(), available() // _MIB, pending(wanted, used))


def pending(wanted: Mapping[str, int], used: Mapping[str, int]) -> int:
    """How many instances labs will still take, by what each takes and has, by token. Pure."""
    return sum(max(0, count - used.get(token, 0)) for token, count in wanted.items())


def inotify_instances(user: int) -> Counter[str]:
    """The inotify instances of a user's processes, by the token of their lab, "" for none.

    Shared ones count per process.
    """
    counts = Counter[str]()
    for name in os.listdir("/proc"):  # noqa: PTH208  names are wanted, not paths
        if not name.isdigit():
            continue
        with suppress(OSError):
            if os.stat(f"/proc/{name}").st_uid != user:  # noqa: PTH116  no Path needed
                continue
            own = 0
            for descriptor in os.listdir(f"/proc/{name}/fd"):  # noqa: PTH208  the same
                with suppress(OSError):
                    own += os.readlink(f"/proc/{name}/fd/{descriptor}") == "anon_inode:inotify"  # noqa: PTH115
            if own:
                counts[cgroups.lab_of(name)] += own
    return counts


def check_exhausted(capacity: NspawnRoom) -> Diagnosis | None:
    """The failed check if a new machine would get no inotify instances; else None. Pure."""
    if capacity.inotify_limit - capacity.inotify_used >= INOTIFY_MACHINE:
        return None
    return _fail(
        "inotify instances",
        f"{capacity.inotify_used} of {capacity.inotify_limit} inotify instances are in use: "
        "programs of the lab get none",
        f"sudo sysctl -w fs.inotify.max_user_instances={max(1024, 2 * capacity.inotify_limit)}",
    )


def judge(needed: NspawnNeed, capacity: NspawnRoom) -> Iterator[Diagnosis]:
    """Yield a diagnosis for each resource that is too small. Pure."""
    wanted = needed.inotify + capacity.inotify_used + capacity.inotify_pending
    if wanted > capacity.inotify_limit:
        coming = capacity.inotify_pending
        others = f"{coming} more will be by labs that are coming up, " if coming else ""
        yield _fail(
            "inotify instances",
            f"the lab needs about {needed.inotify} inotify instances, "
            f"{capacity.inotify_used} are in use, {others}and a user may have "
            f"{capacity.inotify_limit}",
            f"sudo sysctl -w fs.inotify.max_user_instances={max(1024, 2 * wanted)}",
        )
    if needed.memory_mib > capacity.memory_mib:
        yield _fail(
            "memory",
            f"the lab needs about {needed.memory_mib:,} MiB, and "
            f"{capacity.memory_mib:,} MiB are free",
            "take unneeded labs down, or use a scenario with fewer nodes",
        )


def require_room(intent: Intent) -> None:
    """Raise PreflightError if a lab does not fit beside what is up and coming up now."""
    refuse(intent, tuple(judge(need(intent), room())))


def refuse(intent: Intent, diagnoses: Sequence[Diagnosis]) -> None:
    """Raise PreflightError with failed checks, if there are any."""
    if diagnoses:
        raise PreflightError(
            f"checking this machine for scenario '{intent.scenario}'",
            "; ".join(diagnosis.seen for diagnosis in diagnoses),
            "\n       ".join(dict.fromkeys(diagnosis.hint for diagnosis in diagnoses)),
        )


def labs_at_once(needs: Sequence[NspawnNeed], capacity: NspawnRoom) -> int:
    """How many more labs of the largest size fit; at least one. Pure."""
    inotify = max((demand.inotify for demand in needs), default=1)
    memory = max((demand.memory_mib for demand in needs), default=1)
    free = capacity.inotify_limit - capacity.inotify_used - capacity.inotify_pending
    return max(1, min(free // inotify, capacity.memory_mib // memory))


def examine(directory: Path) -> tuple[Diagnosis, ...]:
    """The checks of this machine that do not depend on the lab.

    ``directory``: where machines' disks would be; tries its nearest existing ancestor.
    """
    root = lacking_root()
    if root:
        return (root,)
    checks = (
        _programs,
        _packages,
        _kernel,
        partial(_overlay, directory),
        _control_groups,
        _kmsg,
        _oom_scores,
    )
    return tuple(check() for check in (*checks, _inotify))


def lacking_root() -> Diagnosis | None:
    """The failed check for an unprivileged user; None for root."""
    if os.geteuid() == 0:
        return None
    hint = "sudo, or '--provider netns', which needs none"
    return _fail("root", "system containers need root", hint)


def _programs() -> Diagnosis:
    missing = {name: package for name, package in PROGRAMS.items() if shutil.which(name) is None}
    if not missing:
        return _ok("programs", ", ".join(PROGRAMS))
    packages = " ".join(sorted(set(missing.values())))
    listed = ", ".join(f"'{name}'" for name in missing)
    return _fail("programs", f"{listed} not found", f"sudo apt-get install {packages}")


def _packages() -> Diagnosis:
    missing = [name for name in _PACKAGES if find_spec(name) is None]
    if not missing:
        return _ok("Python packages", ", ".join(_PACKAGES))
    listed = ", ".join(f"'{name}'" for name in missing)
    return _fail("Python packages", f"{listed} not installed", "pip install 'hybridlab[nspawn]'")


def _kernel() -> Diagnosis:
    missing = [name for name, path in _KERNEL_MODULES.items() if not Path(path).is_dir()]
    if not missing:
        return _ok("kernel modules", ", ".join(_KERNEL_MODULES))
    listed = ", ".join(f"'{name}'" for name in missing)
    return _fail("kernel modules", f"{listed} not loaded", f"sudo modprobe -a {' '.join(missing)}")


def _overlay(directory: Path) -> Diagnosis:
    """Mount an overlay where machines would have theirs, in scratch namespaces."""
    place = next(path for path in (directory, *directory.parents) if path.is_dir())

    def mount() -> None:
        with tempfile.TemporaryDirectory(dir=place, prefix=".hybridlab-") as scratch:
            parts = {name: f"{scratch}/{name}" for name in ("lower", "upper", "work", "merged")}
            for path in parts.values():
                Path(path).mkdir()
            options = "lowerdir={lower},upperdir={upper},workdir={work}".format(**parts)
            isolation.mount("overlay", parts["merged"], "overlay", 0, options)
            isolation.unmount(parts["merged"])

    try:
        child_calls.call_isolated("trying an overlay", mount, Deadline(_SECONDS))
    except (OSError, LabError) as error:
        why = error.strerror if isinstance(error, OSError) else error.happened
        return _fail(
            "overlay",
            f"no overlay can be mounted in '{place}': {why}",
            "keep labs on ext4, xfs or btrfs: HYBRIDLAB_STATE=/var/lib/hybridlab",
        )
    return _ok("overlay", f"tried in '{place}'")


def _control_groups() -> Diagnosis:
    kind = "version 2" if cgroups.unified() else "version 1"
    try:
        parents = cgroups.hierarchies().parents
    except OSError as error:
        return _fail("control groups", f"{cgroups.ROOT}: {error.strerror}", "mount them there")
    if parents and all(os.access(parent, os.W_OK) for parent in parents):
        return _ok("control groups", kind)
    return _fail(
        "control groups",
        f"{kind}; cannot create any below '{cgroups.ROOT}'",
        "run on the host itself, or in a container that may write its control groups",
    )


def _kmsg() -> Diagnosis:
    if Path("/dev/kmsg").exists():
        return _ok("/dev/kmsg", "exists, for the kubelet")
    return _fail("/dev/kmsg", "the kubelet needs it and it is missing", "mknod /dev/kmsg c 1 11")


def _oom_scores() -> Diagnosis:
    if can_lower_oom_score():
        return _ok("OOM scores", "can be lowered")
    finding = "without CAP_SYS_RESOURCE no process is protected from the OOM killer"
    hint = "run as root on the host itself, or give the container CAP_SYS_RESOURCE"
    return Diagnosis(SUBJECT, "OOM scores", "warn", finding, hint)


def _inotify() -> Diagnosis:
    capacity = room()
    finding = f"{capacity.inotify_used} of {capacity.inotify_limit} instances in use"
    wanted = INOTIFY_CONTROL_PLANE + 4 * INOTIFY_NODE + 2 * INOTIFY_MACHINE
    if capacity.inotify_used + wanted <= capacity.inotify_limit:
        return _ok("inotify instances", finding)
    return Diagnosis(
        SUBJECT,
        "inotify instances",
        "warn",
        f"{finding}; one control plane with four workers needs {wanted}",
        "sudo sysctl -w fs.inotify.max_user_instances=1024",
    )


def strangers_cache(cache: Path) -> Diagnosis | None:
    """The failed check if another user can write to the cache: root runs files from it.

    None if only root can write to it, or it does not exist yet.
    """
    for path in (cache, cache / "roots", cache / "containers", cache / "bundles"):
        try:
            status = path.stat()
        except FileNotFoundError:
            continue
        if status.st_uid != 0 or status.st_mode & 0o022 or writer(path):
            return _fail(
                "cache",
                f"root would run files in '{path}', which another user owns, may write to "
                "or may move away",
                f"sudo chown -R root '{cache}' && sudo chmod -R go-w '{cache}', or another "
                "XDG_CACHE_HOME",
            )
    return None


def can_lower_oom_score() -> bool:
    """True if this process, and hence the machines, may lower OOM scores."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("CapBnd:"):
            return bool(int(line.split()[1], 16) >> _CAP_SYS_RESOURCE & 1)
    return False


def is_emulated() -> bool:
    """True if this is a virtual machine with processors emulated by QEMU, without KVM."""
    try:
        done = subprocess.run(
            ("systemd-detect-virt", "--vm"),  # noqa: S607  its path differs between distributions
            capture_output=True,
            check=False,
        )
    except OSError:
        return False
    return done.stdout.strip() == b"qemu"


def traits() -> HostTraits:
    """How nodes on this machine differ from real computers."""
    return HostTraits(
        shared_kernel=True,
        cgroup_v1=not cgroups.unified(),
        can_lower_oom_score=can_lower_oom_score(),
    )


def _ok(check: str, finding: str) -> Diagnosis:
    return Diagnosis(SUBJECT, check, "ok", finding)


def _fail(check: str, finding: str, hint: str) -> Diagnosis:
    return Diagnosis(SUBJECT, check, "fail", finding, hint)
