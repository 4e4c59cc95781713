"""Where a command or a daemon of one machine or pod finds itself: network, /run, /sys, name."""

from __future__ import annotations

import os
import socket
from contextlib import suppress

from lab._errors import BrokenError
from lab.providers.netns import namespaces, syscalls
from lab.providers.netns.isolation import MACHINES_DIRECTORY, RESOLV_DIRECTORY, RESOLVER_FILE


def run_directory(machine: str) -> str:
    """The machine's own /run, as the holder sees it; it is there once daemons are started."""
    return f"{MACHINES_DIRECTORY}/{machine}"


def settle(name: str, *, pod: bool) -> None:
    """Be on that machine or in that pod, from now on.

    The caller is in mount and UTS namespaces of its own, inside the holder.

    Raises
    ------
    BrokenError
        If there is no such namespace, or its resolver file cannot be laid over the system's.

    """
    namespaces.enter(name)
    if pod or os.path.isfile(f"{RESOLV_DIRECTORY}/{name}"):  # noqa: PTH113  no Path needed
        _bind_resolver(name)
    if os.path.isdir(run_directory(name)):  # noqa: PTH112  no Path needed
        syscalls.mount(run_directory(name), "/run", "", syscalls.MS_BIND)
    with suppress(OSError):  # where it may not be mounted, /sys shows the host's devices
        syscalls.mount("sysfs", "/sys", "sysfs", syscalls.MS_NOSUID | syscalls.MS_NODEV)
    with suppress(OSError):  # the name is a courtesy of prompts and logs
        socket.sethostname(name)


def _bind_resolver(name: str) -> None:
    try:
        syscalls.mount(f"{RESOLV_DIRECTORY}/{name}", RESOLVER_FILE, "", syscalls.MS_BIND)
    except OSError as error:
        raise BrokenError(
            f"giving '{name}' its resolver file",
            f"{error.filename}: {error.strerror}",
            f"see that '{RESOLVER_FILE}' is a file on this machine",
        ) from error
