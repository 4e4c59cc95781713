"""Run as root of a node: try operations that would affect the host, and print their results."""

import ctypes
import errno
import json
import os
import stat
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

LIBC = ctypes.CDLL(None, use_errno=True)
INIT_MODULE, OPEN_BY_HANDLE = 175, 304
"""System call numbers on x86_64."""
KERNEL_FILES = (
    *("/sys/kernel/debug", "/sys/kernel/tracing", "/sys/kernel/security"),
    *("/sys/firmware", "/sys/power"),
)
HOST_DEVICES = {"mem": (1, 1), "port": (1, 4), "kvm": (10, 232), "loop-control": (10, 237)}
NEEDED = {"null": (1, 3), "zero": (1, 5), "random": (1, 8), "ptmx": (5, 2)}


def outcome(attempt: Callable[[], object]) -> int:
    """The error number of a system call; 0 if it succeeded."""
    try:
        attempt()
    except OSError as error:
        return error.errno or errno.EIO
    return 0


def call(*words: Any) -> int:
    done = LIBC.syscall(*words)
    return ctypes.get_errno() if done < 0 else 0


def settings() -> list[str]:
    """Every setting that can be written, except those of a network namespace."""
    root = Path("/proc/sys")
    found = []
    for directory, below, names in os.walk(root):
        if Path(directory) == root:
            below.remove("net")
        for name in names:
            path = Path(directory) / name
            if path.stat().st_mode & 0o200 and not outcome(lambda p=path: rewrite(p)):
                found.append(str(path.relative_to(root)))
    return found


def opened_for_writing() -> list[str]:
    """Kernel files that can be opened for writing, except processes, control groups, settings.

    Nothing is written. ``/proc/pressure`` only allows registering for notifications.
    """
    found = []
    for root in ("/proc", "/sys"):
        for directory, below, names in os.walk(root):
            if directory == "/proc":
                own = {"self", "thread-self", "sys", "pressure"}
                below[:] = [one for one in below if not one.isdigit() and one not in own]
            if directory == "/sys/fs":
                below.remove("cgroup")
            for path in (Path(directory, name) for name in names):
                mode = path.lstat().st_mode
                if not stat.S_ISREG(mode) or not mode & 0o222:
                    continue
                if not outcome(lambda p=path: os.close(os.open(p, os.O_WRONLY | os.O_NONBLOCK))):
                    found.append(str(path))
    return found


def rewrite(path: Path) -> None:
    descriptor = os.open(path, os.O_RDWR)
    try:
        os.write(descriptor, os.read(descriptor, 4096))
    finally:
        os.close(descriptor)


def device(kind: int, major: int, minor: int) -> int:
    """Create a device node in a file system that allows devices, and open it."""
    path = Path(f"/dev/attempt-{os.getpid()}")
    os.mknod(path, kind | 0o600, os.makedev(major, minor))
    try:
        return outcome(lambda: os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK)))
    finally:
        path.unlink()


def handle() -> int:
    """Open inode 2, the root of most file systems, by a handle of /var/lib's file system."""

    class Handle(ctypes.Structure):
        _fields_ = (("size", ctypes.c_uint), ("kind", ctypes.c_int), ("bytes", ctypes.c_ubyte * 8))

    handle = Handle(8, 1, (ctypes.c_ubyte * 8)(2, 0, 0, 0, 0, 0, 0, 0))
    descriptor = os.open("/var/lib", os.O_RDONLY)
    return call(OPEN_BY_HANDLE, descriptor, ctypes.byref(handle), os.O_RDONLY)


def allow_all() -> int | None:
    """Allow all devices in the device list of cgroup v1."""
    path = Path("/sys/fs/cgroup/devices/devices.allow")
    return outcome(lambda: path.write_text("a")) if path.exists() else None


def main() -> None:
    document = json.loads(sys.argv[1])
    disks = {disk: device(0o060000, *map(int, disk.split(":"))) for disk in document["disks"]}
    others = {name: device(0o020000, *numbers) for name, numbers in HOST_DEVICES.items()}
    needed = {name: device(0o020000, *numbers) for name, numbers in NEEDED.items()}
    processes = [path for path in Path("/proc").iterdir() if path.name.isdigit()]
    memory = next(
        line.split()[1]
        for line in Path("/proc/meminfo").read_text().splitlines()
        if line.startswith("MemTotal:")
    )
    said = {
        "settings": settings(),
        "opened for writing": opened_for_writing(),
        "module": call(INIT_MODULE, b"", 0, b""),
        "clock": outcome(lambda: time.clock_settime(time.CLOCK_REALTIME, time.time())),
        "files of the kernel": {
            file: found for file in KERNEL_FILES if (found := names(Path(file)))
        },
        "disks": disks,
        "devices": {name: code for name, code in others.items() if code != errno.ENXIO},
        "needed": {name: code for name, code in needed.items() if code},
        "devices allowed": allow_all(),
        "processes": len(processes),
        "sees a test": any(b"pytest" in read(process / "cmdline") for process in processes),
        "host file": outcome(Path(document["host_file"]).stat),
        "handle": handle(),
        "kernel log": {
            "read": outcome(lambda: os.close(os.open("/dev/kmsg", os.O_RDONLY))),
            "write": outcome(lambda: os.close(os.open("/dev/kmsg", os.O_WRONLY))),
        },
        "memory": int(memory),
        "processors": os.cpu_count(),
    }
    print(json.dumps(said))


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()] if folder.is_dir() else []


def read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


main()
