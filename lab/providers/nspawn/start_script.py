"""The shell script that powers a machine on, and again after each reboot. Pure.

It runs in the lab's holder: it creates the machine's network namespace with its cards, enters the
machine's control groups, and boots the root file system with systemd-nspawn.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab.providers.nspawn.cgroups import INSIDE, OUTSIDE

_STOP_SECONDS = 10
REBOOT = 133
"""systemd-nspawn's exit code when the machine reboots (``--keep-unit``)."""
ENDED = "systemd-nspawn ended with"
"""Start of the last log line of a machine that is off."""
FIRST = "/usr/local/lib/hybridlab/first-process"
"""In the machine: the program that runs before systemd."""
KERNEL_SETTINGS: Mapping[str, str] = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}
"""Values that the kubelet requires of settings that are global to the kernel. A node reads them
from files mounted over the host's, which do not change (kubernetes/pkg/kubelet/cm,
setupKernelTunables)."""
DROPPED = (
    "CAP_SYS_MODULE",
    "CAP_SYS_RAWIO",
    "CAP_SYS_TIME",
    "CAP_MAC_ADMIN",
    "CAP_MAC_OVERRIDE",
    "CAP_WAKE_ALARM",
    "CAP_BLOCK_SUSPEND",
    "CAP_AUDIT_CONTROL",
    "CAP_SYS_PACCT",
    "CAP_PERFMON",
    "CAP_DAC_READ_SEARCH",  # can open any file of a file system by inode
)
"""Capabilities that act on the host and that neither systemd nor Kubernetes needs."""
_ONLINE = "/sys/devices/system/cpu/online"
_READ_ONLY = "/proc/mtrr"
"""Lets root change the host's memory types; systemd-nspawn does not protect it."""
_HIDDEN = ("/sys/kernel/debug", "/sys/kernel/tracing", "/sys/kernel/security", "/sys/firmware")
_ENVIRONMENT = {"SYSTEMD_SECCOMP": "0", "SYSTEMD_NSPAWN_API_VFS_WRITABLE": "network"}
"""No seccomp filter, which Kubernetes containers would inherit; writable ``/proc/sys/net``."""


@dataclass(frozen=True, slots=True)
class NetworkCard:
    """One network card of a machine, and the bridge it is connected to."""

    port: str
    """The other end's name, in the lab's holder."""
    bridge: str
    name: str
    mac: str
    mtu: int
    address: str | None = None
    """With prefix length; None for a card that the machine itself configures."""


@dataclass(frozen=True, slots=True)
class Start:
    """The input of one machine's start script."""

    machine: str
    root: Path
    """Where its root file system is mounted, in the holder."""
    ports: tuple[NetworkCard, ...]
    groups: tuple[Path, ...]
    binds: Mapping[Path, str]
    """Directories of the host, with their mount points in the machine."""
    read_only: Mapping[Path, str]


def script(start: Start) -> str:
    """The script, for ``sh``."""
    name = start.machine
    batch = "\n".join(_links(name, start.ports))
    addresses = "\n".join(_addresses(start.ports))
    gone = "\n".join(f"    ip link delete {one.port} 2>/dev/null" for one in start.ports)
    groups = shlex.join(str(one) for one in start.groups)
    settings = " ".join(f"{key}={value}" for key, value in _ENVIRONMENT.items())
    return f"""#!/bin/sh
# Powers {name} on, and again after each reboot.
for group in {groups}; do
    echo $$ >"$group/{OUTSIDE}/cgroup.procs" || exit 1
done
while :; do
{gone}
    ip netns delete {name} 2>/dev/null
    ip netns add {name} || exit 1
    ip -batch - <<'LINKS' || exit 1
{batch}
LINKS
    ip -n {name} -batch - <<'ADDRESSES' || exit 1
{addresses}
ADDRESSES
    for group in {groups}; do
        find "$group/{INSIDE}" -depth -type d -exec rmdir {{}} \\;
        mkdir "$group/{INSIDE}"
    done
    (
        for group in {groups}; do
            echo 0 >"$group/{INSIDE}/cgroup.procs" || exit 1
        done
        exec env {settings} {shlex.join(_nspawn(start))}
    )
    code=$?
    [ "$code" = {REBOOT} ] || break
done
echo "{ENDED} $code"
"""


def _links(machine: str, ports: Iterable[NetworkCard]) -> Iterable[str]:
    for one in ports:
        yield (
            f"link add {one.port} mtu {one.mtu} type veth peer name {one.name} "
            f"address {one.mac} mtu {one.mtu} netns {machine}"
        )
        yield f"link set {one.port} master {one.bridge} up"


def _addresses(ports: Iterable[NetworkCard]) -> Iterable[str]:
    for one in ports:
        if one.address:
            yield f"address add {one.address} dev {one.name}"
            yield f"link set {one.name} up"


def _nspawn(start: Start) -> Sequence[str]:
    return (
        "systemd-nspawn",
        "--quiet",
        f"--directory={start.root}",
        f"--machine={start.machine}",
        "--register=no",
        "--keep-unit",
        f"--network-namespace-path=/run/netns/{start.machine}",
        "--console=pipe",
        "--capability=all",
        f"--drop-capability={','.join(DROPPED)}",
        "--kill-signal=SIGRTMIN+3",
        "--resolv-conf=off",
        "--timezone=off",
        "--link-journal=no",
        "--bind=/dev/kmsg",
        *(f"--bind={path}:{place}" for path, place in start.binds.items()),
        *(f"--bind-ro={path}:{place}" for path, place in start.read_only.items()),
        FIRST,
    )


def first_process(memory_mib: int, cpus: int) -> Mapping[str, str]:
    """Files for a machine's root file system, by path; they set up ``/proc`` and ``/sys``.

    ``/proc/meminfo`` shows the machine's own memory size to its programs; the free memory in it is
    not measured. ``cpus``: the number of processors that the kubelet sees.
    """
    folder = FIRST.rpartition("/")[0]
    files = {f"{folder}/kernel/{key}": f"{value}\n" for key, value in KERNEL_SETTINGS.items()}
    files[f"{folder}/online"] = f"0-{cpus - 1}\n" if cpus > 1 else "0\n"
    kib = memory_mib << 10
    files[f"{folder}/meminfo"] = "".join(
        f"{key + ':':<16}{value:>8} kB\n"
        for key, value in (
            ("MemTotal", kib),
            ("MemFree", kib // 2),
            ("MemAvailable", kib // 2),
            ("Buffers", 0),
            ("Cached", kib // 4),
            ("SwapCached", 0),
            ("SwapTotal", 0),
            ("SwapFree", 0),
        )
    )
    lines = [
        "#!/bin/sh",
        "# Runs as the machine's process 1, and becomes systemd.",
        "for each in /sys/fs/cgroup /sys/fs/cgroup/*; do",
        '    mountpoint -q "$each" && mount -o remount,bind,rw "$each" 2>/dev/null',
        "done",
        *(
            f"mount --bind {folder}/kernel/{key} /proc/sys/{key} && "
            f"mount -o remount,bind,ro /proc/sys/{key}"
            for key in KERNEL_SETTINGS
        ),
        *(
            f"mount --bind {folder}/{name} {place} && mount -o remount,bind,ro {place}"
            for name, place in (("meminfo", "/proc/meminfo"), ("online", _ONLINE))
        ),
        f"[ ! -e {_READ_ONLY} ] || mount -o bind,ro {_READ_ONLY} {_READ_ONLY}",
        *(f"[ ! -d {path} ] || mount -t tmpfs -o ro none {path}" for path in _HIDDEN),
        "exec /usr/lib/systemd/systemd",
    ]
    # a container that ignores SIGTERM would delay a reboot by systemd's default 90 s
    files["/etc/systemd/system.conf.d/hybridlab.conf"] = (
        f"[Manager]\nDefaultTimeoutStopSec={_STOP_SECONDS}s\n"
    )
    files[FIRST] = "\n".join(lines) + "\n"
    return files
