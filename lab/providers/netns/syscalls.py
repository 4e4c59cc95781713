"""The few Linux calls that Python 3.11 has no function for; errno is always checked."""

from __future__ import annotations

import ctypes
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
MS_PRIVATE = 1 << 18
MNT_DETACH = 2

_PR_SET_PDEATHSIG = 1

_libc = ctypes.CDLL(None, use_errno=True)


def _checked(result: int, what: str) -> None:
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)


def unshare(flags: int) -> None:
    """Give the calling thread new namespaces of the kinds in ``flags``."""
    _checked(_libc.unshare(ctypes.c_int(flags)), "unshare")


def setns(descriptor: int, flags: int) -> None:
    """Move the calling thread into namespaces: of a process (pidfd) or of one namespace file."""
    _checked(_libc.setns(ctypes.c_int(descriptor), ctypes.c_int(flags)), "setns")


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    """Mount; the error names the target."""
    result = _libc.mount(
        source.encode(),
        target.encode(),
        kind.encode() or None,
        ctypes.c_ulong(flags),
        options.encode() or None,
    )
    _checked(result, f"mount on {target}")


def unmount(target: str) -> None:
    """Detach the mount at ``target``; it ends when its last user does."""
    _checked(_libc.umount2(target.encode(), ctypes.c_int(MNT_DETACH)), f"unmount {target}")


def die_with_parent(signal_number: int) -> None:
    """Have the kernel send this process the signal when its parent thread ends.

    To be called after any change of user namespace, which may clear it.
    """
    _checked(_libc.prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal_number), 0, 0, 0), "prctl")
