"""Create and enter the named network namespaces of a lab, inside its holder.

nftables scripts are loaded with libnftables, in process. A libnftables context belongs to the
network namespace in which it is created, and ctypes releases the GIL during a call, so several
threads can load several namespaces at once.
"""

from __future__ import annotations

import ctypes
import os
import socket
import threading
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from lab._errors import BrokenError, PreflightError, UsageError, os_failure
from lab.providers.netns import isolation
from lab.providers.netns.isolation import (
    MACHINES_DIRECTORY,
    NETNS_DIRECTORY,
    RESOLV_DIRECTORY,
    RESOLVER_FILE,
)
from lab.topology.intent import Intent, MachineIntent, Pod, Resolver

_OWN = "/proc/thread-self/ns/net"
FABRIC = "fabric"
"""The namespace with the lab's switches."""


def path_of(name: str) -> str:
    """The file, inside the holder, that pins the namespace of that name."""
    return f"{NETNS_DIRECTORY}/{name}"


def create(names: Sequence[str], current_name: str | None = None) -> None:
    """Create the namespaces, after removing all existing ones.

    ``current_name`` is the name for the thread's current namespace. Leaves the calling thread in
    the last namespace created. Raises ``OSError`` if the kernel refuses.
    """
    for entry in os.listdir(NETNS_DIRECTORY):  # noqa: PTH208  names are wanted, not paths
        with suppress(OSError):  # a file left by an interrupted create is not a mount
            isolation.unmount(path_of(entry))
        os.unlink(path_of(entry))  # noqa: PTH108  up to a thousand: avoid a Path each
    if current_name is not None:
        _name(current_name)
    for name in names:
        isolation.unshare(isolation.CLONE_NEWNET)
        _name(name)


def _name(name: str) -> None:
    os.close(os.open(path_of(name), os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o444))
    isolation.mount(_OWN, path_of(name), "", isolation.MS_BIND)


def namespace_names(intent: Intent) -> tuple[str, ...]:
    """Names of all namespaces, in order.

    Raises UsageError if two namespaces would have the same name.
    """
    names = [FABRIC]
    for machine in intent.everything():
        names += [machine.name, *(pod.name for pod in machine.pods)]
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise UsageError(
            f"compiling scenario '{intent.scenario}'",
            f"the name '{twice[0]}' is used for two namespaces",
            f"give machines and pods different names, and none of them '{FABRIC}'",
        )
    return tuple(names)


def list_names() -> tuple[str, ...]:
    """Names of the existing namespaces; call inside the holder."""
    return tuple(sorted(os.listdir(NETNS_DIRECTORY)))  # noqa: PTH208  names are wanted, not paths


def list_from_outside(holder: int) -> frozenset[str]:
    """Names of the existing namespaces; call outside the holder.

    ``holder`` is the holder's process id. Empty once it has exited.
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
def inside(name: str) -> Iterator[None]:
    """Run the block in the named namespace, on this thread only, then return to the old one.

    Raises BrokenError if the namespace does not exist.
    """
    back = os.open(_OWN, os.O_RDONLY | os.O_CLOEXEC)
    try:
        enter(name)
        try:
            yield
        finally:
            isolation.setns(back, isolation.CLONE_NEWNET)
    finally:
        os.close(back)


def enter(name: str) -> None:
    """Enter the named namespace, on this thread only, without returning.

    Raises BrokenError if the namespace does not exist.
    """
    try:
        namespace = os.open(path_of(name), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise BrokenError(
            f"entering namespace '{name}'", "it does not exist", "run 'lab up' again"
        ) from None
    try:
        isolation.setns(namespace, isolation.CLONE_NEWNET)
    finally:
        os.close(namespace)


LIBRARY = "libnftables.so.1"
INSTALL = "sudo apt-get install nftables   (or your distribution's package of libnftables 1)"
_THREADS = 2


@cache
def libnftables() -> ctypes.CDLL:
    """The library, with the signatures of the functions used.

    Raises PreflightError if it is not installed.
    """
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError as error:
        raise PreflightError(
            f"loading '{LIBRARY}'", f"it does not exist ({error})", INSTALL
        ) from error
    library.nft_ctx_new.restype = ctypes.c_void_p
    library.nft_ctx_new.argtypes = (ctypes.c_uint32,)
    library.nft_ctx_free.argtypes = (ctypes.c_void_p,)
    library.nft_ctx_buffer_error.argtypes = (ctypes.c_void_p,)
    library.nft_ctx_get_error_buffer.argtypes = (ctypes.c_void_p,)
    library.nft_ctx_get_error_buffer.restype = ctypes.c_char_p
    library.nft_run_cmd_from_filename.argtypes = (ctypes.c_void_p, ctypes.c_char_p)
    return library


def load_ruleset(text: str, namespace: str) -> None:
    """Run a script in the thread's network namespace, atomically.

    Raises BrokenError with the library's message: line, column and the line's text. Raises
    PreflightError if libnftables is not installed.
    """
    nft = libnftables()
    # From a file: only then do the library's messages give the line.
    file = os.memfd_create("rules", os.MFD_CLOEXEC)
    context = nft.nft_ctx_new(0)
    try:
        os.write(file, text.encode())
        nft.nft_ctx_buffer_error(context)
        path = f"/proc/self/fd/{file}"
        if nft.nft_run_cmd_from_filename(context, path.encode()):
            complaint = nft.nft_ctx_get_error_buffer(context).decode().strip().replace(path, "line")
            raise BrokenError(f"loading the nftables rules in namespace '{namespace}'", complaint)
    finally:
        nft.nft_ctx_free(context)
        os.close(file)


def load_rulesets(scripts: tuple[tuple[str, str], ...]) -> None:
    """Load ``(namespace, text)`` pairs, two at a time; the first error is raised at the end."""
    waiting = deque(scripts)
    errors: list[BaseException] = []

    def work() -> None:
        try:
            while not errors:
                namespace, text = waiting.popleft()
                enter(namespace)
                load_ruleset(text, namespace)
        except IndexError:
            return
        except Exception as error:  # noqa: BLE001  raised in the caller's thread
            errors.append(error)

    libnftables()
    threads = [threading.Thread(target=work) for _ in range(min(_THREADS, len(scripts)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


HasResolver = Pod | MachineIntent


def resolver_text(resolver: Resolver) -> str:
    """The contents of a resolv.conf. Pure."""
    lines = [f"nameserver {resolver.server}"]
    if resolver.search:
        lines.append(f"search {' '.join(resolver.search)}")
    lines.append(f"options ndots:{resolver.ndots}")
    return "".join(f"{line}\n" for line in lines)


def write_resolvers(asking: Iterable[HasResolver]) -> None:
    """Inside the holder: write a resolver file for each pod and machine that has a resolver."""
    for place in asking:
        if place.resolver:
            path = Path(RESOLV_DIRECTORY, place.name)
            path.write_text(resolver_text(place.resolver), encoding="ascii")


def run_directory(machine: str) -> str:
    """The machine's /run, as the holder sees it; exists once its daemons are started."""
    return f"{MACHINES_DIRECTORY}/{machine}"


def enter_machine(name: str, *, pod: bool) -> None:
    """Enter a machine or pod, without returning.

    The caller must be inside the holder, in its own mount and UTS namespaces.

    Raises BrokenError if the namespace does not exist, or its resolver file cannot be mounted over
    the system's.
    """
    enter(name)
    if pod or os.path.isfile(f"{RESOLV_DIRECTORY}/{name}"):  # noqa: PTH113  no Path needed
        _bind_resolver(name)
    if os.path.isdir(run_directory(name)):  # noqa: PTH112  no Path needed
        isolation.mount(run_directory(name), "/run", "", isolation.MS_BIND)
    with suppress(OSError):  # if it cannot be mounted, /sys shows the host's devices
        isolation.mount("sysfs", "/sys", "sysfs", isolation.MS_NOSUID | isolation.MS_NODEV)
    with suppress(OSError):  # the name only serves prompts and logs
        socket.sethostname(name)


def _bind_resolver(name: str) -> None:
    try:
        isolation.mount(f"{RESOLV_DIRECTORY}/{name}", RESOLVER_FILE, "", isolation.MS_BIND)
    except OSError as error:
        raise BrokenError(
            f"giving '{name}' its resolver file",
            os_failure(error),
            f"check that '{RESOLVER_FILE}' is a file on this machine",
        ) from error
