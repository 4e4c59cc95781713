"""The named network namespaces of a lab, seen from inside its holder."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from lab._errors import BrokenError
from lab.providers.netns import requests, syscalls
from lab.providers.netns.isolation import NETNS_DIRECTORY
from lab.providers.netns.messages import Names
from lab.providers.netns.netlink import Socket
from lab.providers.netns.operations import (
    ChecksumOff,
    Message,
    NamespaceOperations,
    RulesetLoad,
    SysctlSet,
    TapAdd,
)

_OWN = "/proc/thread-self/ns/net"


def _path(name: str) -> str:
    return f"{NETNS_DIRECTORY}/{name}"


def create(names: Sequence[str], here: str | None = None) -> None:
    """Make each namespace anew; those that are there already are taken away first.

    With ``here`` the namespace that the thread is in is given that name too. Leaves the
    calling thread in the last one made. ``OSError`` if the kernel refuses.
    """
    for entry in os.listdir(NETNS_DIRECTORY):  # noqa: PTH208  names are wanted, not paths
        with suppress(OSError):  # a file left by a create that was interrupted is no mount
            syscalls.unmount(_path(entry))
        os.unlink(_path(entry))  # noqa: PTH108  a thousand of them: no Path each
    if here is not None:
        _name(here)
    for name in names:
        syscalls.unshare(syscalls.CLONE_NEWNET)
        _name(name)


def _name(name: str) -> None:
    os.close(os.open(_path(name), os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o444))
    syscalls.mount(_OWN, _path(name), "", syscalls.MS_BIND)


def named() -> tuple[str, ...]:
    """Names of the namespaces, seen from inside the holder."""
    return tuple(sorted(os.listdir(NETNS_DIRECTORY)))  # noqa: PTH208  names are wanted, not paths


def present(holder: int) -> frozenset[str]:
    """Names of the namespaces that are there, seen from outside.

    ``holder`` is the id of the holder's process. None are there once it has ended.
    """
    try:
        mounts = Path(f"/proc/{holder}/mounts").read_text(encoding="utf-8").splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return frozenset()
    places = (line.split(" ", 2)[1] for line in mounts)
    return frozenset(
        place.rpartition("/")[2] for place in places if place.startswith(f"{NETNS_DIRECTORY}/")
    )


@contextmanager
def within(name: str) -> Iterator[None]:
    """Be in the namespace of that name, on this thread alone, and then back where one was.

    Raises
    ------
    BrokenError
        If there is no such namespace.

    """
    back = os.open(_OWN, os.O_RDONLY | os.O_CLOEXEC)
    try:
        enter(name)
        try:
            yield
        finally:
            syscalls.setns(back, syscalls.CLONE_NEWNET)
    finally:
        os.close(back)


def enter(name: str) -> None:
    """Go into the namespace of that name, on this thread alone, for good.

    Raises
    ------
    BrokenError
        If there is no such namespace.

    """
    try:
        there = os.open(_path(name), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise BrokenError(
            f"entering namespace '{name}'", "it is not there", "run 'lab up' again"
        ) from None
    try:
        syscalls.setns(there, syscalls.CLONE_NEWNET)
    finally:
        os.close(there)


def apply(namespaces: Sequence[NamespaceOperations]) -> None:
    """Do every operation but the nftables scripts, namespace by namespace.

    Leaves the calling thread in the last namespace.

    Raises
    ------
    BrokenError
        Naming the operation that was refused, its namespace and the reason.

    """
    for one in namespaces:
        enter(one.namespace)
        with Socket(one.namespace) as channel, _Descriptors() as descriptors:
            _apply_here(one, channel, Names(dict(one.indexes), descriptors.of))


class _Descriptors:
    """Open descriptors of namespaces by name, all closed at the end."""

    def __init__(self) -> None:
        self._open: dict[str, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for descriptor in self._open.values():
            os.close(descriptor)

    def of(self, name: str) -> int:
        """The namespace's descriptor."""
        if name not in self._open:
            self._open[name] = os.open(_path(name), os.O_RDONLY | os.O_CLOEXEC)
        return self._open[name]


def _apply_here(one: NamespaceOperations, channel: Socket, names: Names) -> None:
    waiting: list[Message] = []
    for operation in one.operations:
        if isinstance(operation, SysctlSet):
            channel.apply(waiting, names)
            waiting = []
            set_sysctl(operation, one.namespace)
        elif isinstance(operation, TapAdd | ChecksumOff):
            channel.apply(waiting, names)
            waiting = []
            requests.do(operation, one.namespace)
        elif not isinstance(operation, RulesetLoad):
            waiting.append(operation)
    channel.apply(waiting, names)


def set_sysctl(setting: SysctlSet, namespace: str) -> None:
    """Write one kernel setting of the namespace that the thread is in.

    Raises
    ------
    BrokenError
        If the kernel has no such setting (and it is not optional) or refuses the value.

    """
    doing = f"{setting.describe()} in namespace '{namespace}'"
    try:
        descriptor = os.open(f"/proc/sys/{setting.key}", os.O_WRONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        if setting.optional:
            return
        raise BrokenError(doing, "this kernel has no such setting") from None
    except OSError as error:
        raise BrokenError(doing, f"{error.strerror}") from error
    try:
        os.write(descriptor, setting.value.encode())
    except OSError as error:
        raise BrokenError(doing, f"{error.strerror}") from error
    finally:
        os.close(descriptor)
