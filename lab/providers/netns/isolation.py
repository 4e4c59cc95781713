"""Linux system calls that Python lacks, new namespaces made with them, and what allows those.

Used by the holder and by the preflight's ability probe. Standard library only.
"""

from __future__ import annotations

import ctypes
import errno
import os

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_NOSUID = 2
MS_NODEV = 4
MS_NOEXEC = 8
MS_BIND = 4096
MS_REC = 16384
MS_SLAVE = 1 << 19
MNT_DETACH = 2

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

_libc = ctypes.CDLL(None, use_errno=True)


def _check_result(result: int, subject: str) -> None:
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), subject)


def unshare(flags: int) -> None:
    """Give the calling thread new namespaces of the kinds in ``flags``."""
    _check_result(_libc.unshare(ctypes.c_int(flags)), "unshare")


def setns(descriptor: int, flags: int) -> None:
    """Move the calling thread into the namespaces of a pidfd, or into one namespace file."""
    _check_result(_libc.setns(ctypes.c_int(descriptor), ctypes.c_int(flags)), "setns")


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    """Mount; the error names the target."""
    result = _libc.mount(
        source.encode(),
        target.encode(),
        kind.encode() or None,
        ctypes.c_ulong(flags),
        options.encode() or None,
    )
    _check_result(result, f"mount on {target}")


def unmount(target: str) -> None:
    """Detach the mount at ``target``; it disappears with its last user."""
    _check_result(_libc.umount2(target.encode(), ctypes.c_int(MNT_DETACH)), f"unmount {target}")


def die_with_parent(signal_number: int) -> None:
    """Have the kernel send this process the signal when its parent thread exits.

    Call it after any change of user namespace, which may clear it.
    """
    _check_result(_libc.prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal_number), 0, 0, 0), "prctl")


def adopt_orphans() -> None:
    """Become the parent of descendants of this process whose own parent exits."""
    _check_result(_libc.prctl(_PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1), 0, 0, 0), "prctl")


NETNS_DIRECTORY = "/run/netns"
RESOLV_DIRECTORY = "/run/resolv"
PULSE_SOCKET = "/run/pulse.socket"
"""The responder returns its datagrams, so that a prober sees whether it keeps up."""
RESOLVER_FILE = "/etc/resolv.conf"
MACHINES_DIRECTORY = "/run/machines"
"""Contains a directory for each machine with daemons: /run for everything on that machine."""

_OF_ROOT = ("/usr/local/sbin", "/usr/sbin", "/sbin")
"""Directories with daemons that a plain user's PATH may lack."""

_CAP_NET_ADMIN = 12
_CAP_SYS_ADMIN = 21


def is_privileged() -> bool:
    """True if this process may create namespaces without a new user namespace."""
    wanted = (1 << _CAP_SYS_ADMIN) | (1 << _CAP_NET_ADMIN)
    with open("/proc/self/status", encoding="ascii") as status:  # noqa: PTH123  pathlib is slow to import in the holder
        for line in status:
            if line.startswith("CapEff:"):
                return int(line.split()[1], 16) & wanted == wanted
    return False


def isolate(*, network: bool = True) -> None:
    """Put this process into new namespaces; the next child is process 1 of the new pid namespace.

    Without ``network`` it stays in its network namespace.

    Raises OSError when a call is refused; the file name is the call.
    """
    flags = CLONE_NEWNS | CLONE_NEWPID
    flags |= CLONE_NEWNET if network else 0
    if is_privileged():
        unshare(flags)
        return
    user, group = os.geteuid(), os.getegid()
    unshare(flags | CLONE_NEWUSER)
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"0 {user} 1")
    _write("/proc/self/gid_map", f"0 {group} 1")


def furnish(kept: str = "") -> None:
    """As process 1, set up the new mount namespace: mounts that stay inside, /proc and /run.

    What the host unmounts disappears here too, so that a lab keeps no disk of the host busy.
    ``kept`` is a directory below /run that stays visible.

    Raises OSError when a mount is refused; the file name is the mount.
    """
    resolver = os.path.realpath(RESOLVER_FILE)
    mount("none", "/", "", MS_REC | MS_SLAVE)
    guarded = MS_NOSUID | MS_NODEV
    mount("proc", "/proc", "proc", guarded | MS_NOEXEC)
    keeping = os.open(kept, os.O_PATH | os.O_CLOEXEC) if kept else -1
    mount("tmpfs", "/run", "tmpfs", guarded, "mode=755")
    if kept:
        os.mkdir(kept)  # noqa: PTH102  pathlib is slow to import in the holder
        mount(f"/proc/self/fd/{keeping}", kept, "", MS_BIND)
        os.close(keeping)
    os.mkdir(NETNS_DIRECTORY)  # noqa: PTH102  pathlib is slow to import in the holder
    os.mkdir(RESOLV_DIRECTORY)  # noqa: PTH102  pathlib is slow to import in the holder
    if resolver.startswith("/run/"):
        # The new /run hides the target of /etc/resolv.conf; pods bind their own file over this one.
        os.makedirs(os.path.dirname(resolver), exist_ok=True)  # noqa: PTH103, PTH120  as above
        _write(resolver, "")


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:  # noqa: PTH123  as above
        file.write(text)


def search_path() -> str:
    """PATH, with the sbin directories appended if missing."""
    own = os.environ.get("PATH", os.defpath)
    return os.pathsep.join((own, *(place for place in _OF_ROOT if place not in own.split(":"))))


def raise_descriptors(wanted: int = 0) -> None:
    """Raise the open file limit to ``wanted``, or as far as allowed; 0 means the hard limit."""
    import resource  # noqa: PLC0415  not needed by the holder

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= (wanted or hard):
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted or hard, max(hard, wanted)))
    except (ValueError, OSError):  # only root may go beyond the hard limit
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard), hard))


_USED_UP = {
    errno.ENOSPC: "sudo sysctl -w user.max_user_namespaces=15000 user.max_net_namespaces=15000",
    errno.EAGAIN: "end some processes, or allow more: ulimit -u 4096",
}
"""Commands that raise an exhausted limit of namespaces or processes, by errno."""


def namespaces_hint(call: str, number: int) -> str:
    """The hint for refused namespaces: a command or a sentence.

    ``call`` is the refused call and ``number`` its errno.
    """
    if number in _USED_UP:
        return _USED_UP[number]
    if call.startswith("mount on /proc"):
        return "run on the host itself, or in a container whose /proc is not masked"
    if is_privileged():
        return "run on the host itself, or in a container that may unshare and mount"
    if _read_number("/proc/sys/kernel/unprivileged_userns_clone") == 0:
        return "sudo sysctl -w kernel.unprivileged_userns_clone=1"
    if _read_number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == 1:
        return "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"
    return f"run as root, or allow user namespaces ({os.strerror(number)})"


def _read_number(path: str) -> int | None:
    try:
        with open(path, encoding="ascii") as file:  # noqa: PTH123  as above
            return int(file.read())
    except (OSError, ValueError):
        return None
