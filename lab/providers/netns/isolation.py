"""A world of one's own: user, mount, network and process namespaces, and what is mounted there.

Used by the holder (for a lab) and by the ability probe (for a moment). Standard library only.
"""

from __future__ import annotations

import os

from lab.providers.netns import syscalls

NETNS_DIRECTORY = "/run/netns"
RESOLV_DIRECTORY = "/run/resolv"
RESOLVER_FILE = "/etc/resolv.conf"
MACHINES_DIRECTORY = "/run/machines"
"""Has a directory for each machine with daemons, which is /run for all that runs there."""

_CAP_NET_ADMIN = 12
_CAP_SYS_ADMIN = 21


def privileged() -> bool:
    """Whether this process may make namespaces without a user namespace of its own."""
    wanted = (1 << _CAP_SYS_ADMIN) | (1 << _CAP_NET_ADMIN)
    with open("/proc/self/status", encoding="ascii") as status:  # noqa: PTH123  pathlib is slow to import in the holder
        for line in status:
            if line.startswith("CapEff:"):
                return int(line.split()[1], 16) & wanted == wanted
    return False


def isolate(*, network: bool = True) -> None:
    """Put this process into new namespaces; the next child is process 1 of the new pid namespace.

    Without ``network`` it stays in the network namespace that it is in.

    Raises
    ------
    OSError
        With the call that was refused as its file name.

    """
    flags = syscalls.CLONE_NEWNS | syscalls.CLONE_NEWPID
    flags |= syscalls.CLONE_NEWNET if network else 0
    if privileged():
        syscalls.unshare(flags)
        return
    user, group = os.geteuid(), os.getegid()
    syscalls.unshare(flags | syscalls.CLONE_NEWUSER)
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"0 {user} 1")
    _write("/proc/self/gid_map", f"0 {group} 1")


def furnish(kept: str = "") -> None:
    """Mount what the new world needs, as process 1 of it: private mounts, /proc and /run.

    ``kept`` is a directory below /run that stays to be seen.

    Raises
    ------
    OSError
        With the mount that was refused as its file name.

    """
    resolver = os.path.realpath(RESOLVER_FILE)
    syscalls.mount("none", "/", "", syscalls.MS_REC | syscalls.MS_PRIVATE)
    guarded = syscalls.MS_NOSUID | syscalls.MS_NODEV
    syscalls.mount("proc", "/proc", "proc", guarded | syscalls.MS_NOEXEC)
    keeping = os.open(kept, os.O_PATH | os.O_CLOEXEC) if kept else -1
    syscalls.mount("tmpfs", "/run", "tmpfs", guarded, "mode=755")
    if kept:
        os.mkdir(kept)  # noqa: PTH102  pathlib is slow to import in the holder
        syscalls.mount(f"/proc/self/fd/{keeping}", kept, "", syscalls.MS_BIND)
        os.close(keeping)
    os.mkdir(NETNS_DIRECTORY)  # noqa: PTH102  pathlib is slow to import in the holder
    os.mkdir(RESOLV_DIRECTORY)  # noqa: PTH102  pathlib is slow to import in the holder
    if resolver.startswith("/run/"):
        # The file that /etc/resolv.conf points at is hidden now; pods bind theirs over it.
        os.makedirs(os.path.dirname(resolver), exist_ok=True)  # noqa: PTH103, PTH120  as above
        _write(resolver, "")


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:  # noqa: PTH123  as above
        file.write(text)
