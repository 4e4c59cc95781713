"""Connections to hypervisors, and explanations of libvirt's errors."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from lab._errors import BrokenError, PreflightError
from lab.inventory.inventory import Hypervisor
from lab.machines.libvirt.ownership import Owner, read_owner
from lab.machines.libvirt.presence import is_installed
from lab.machines.ssh.transport import ssh_path

if TYPE_CHECKING:
    import libvirt

T = TypeVar("T")
S = TypeVar("S")
MISSING = (
    "'make setup PROVIDER=libvirt' in a checkout, else pip install 'hybridlab[libvirt]' "
    "(needs libvirt-dev, pkg-config and a C compiler)"
)
SSH = Path(__file__).with_name("programs") / "ssh"
"""The program that libvirt runs as ssh; it gives up on hypervisors that do not answer."""
_OPEN_SECONDS = 60.0
"""For opening any connection; the first qemu+ssh connection took 10.8 s under TCG."""
ROOM = "free some space there: 'lab gc', 'lab image gc --yes'; or another 'storage' path"

_ADMIT = "sudo usermod --append --groups libvirt $USER, and log in again"
_ADMIT_THERE = "allow this user to use libvirt there: group 'libvirt', polkit"
_TURN_ON = "check that the host is running and reachable"
_CERTIFICATES = "see 'TLS certificates' in libvirt's docs: the CA must have signed both"
_SYSTEM_HINTS = {
    errno.ENOENT: "start libvirtd: 'tools/hypervisor start', or systemctl",
    errno.ECONNREFUSED: "start its libvirtd, and check that it listens there",
    errno.EHOSTUNREACH: _TURN_ON,
    errno.ENETUNREACH: _TURN_ON,
    errno.ETIMEDOUT: "check that the host is running and no firewall drops the connection",
}
"""By the system's error of an attempt to connect to a socket."""


class ForbiddenError(PreflightError):
    """The libvirt of this machine does not admit this user."""


def load() -> Any:
    """The libvirt module.

    Raises PreflightError when it is not installed.
    """
    try:
        import libvirt  # noqa: PLC0415  an optional extra
    except ImportError as error:
        raise PreflightError("loading libvirt's Python binding", f"{error}", MISSING) from error
    libvirt.registerErrorHandler(_keep_quiet, None)
    return libvirt


def _keep_quiet(_context: object, _error: object) -> None:
    """Suppress libvirt's own printing of errors, which are raised anyway."""


def is_here(hypervisor: Hypervisor) -> bool:
    """True if the hypervisor is this machine and libvirt is installed; does not connect."""
    return hypervisor.uri == "qemu:///system" and is_installed()


def connect(hypervisor: Hypervisor) -> libvirt.virConnect:
    """Open a connection that notices when the other end is gone.

    Raises PreflightError with the hypervisor, the reason and a hint; ForbiddenError if this
    machine's libvirt does not admit this user.
    """
    library = load()
    remote = hypervisor.uri.split(":")[0].endswith(("+ssh", "+tls"))
    if remote:
        hear_events()
    try:
        connection = _open_connection(library, hypervisor)
    except library.libvirtError as error:
        refusal = ForbiddenError if is_forbidden(error, hypervisor) else PreflightError
        raise refusal(
            f"connecting to hypervisor '{hypervisor.name}' ({hypervisor.uri})",
            reason(error),
            _connection_hint(error, hypervisor),
        ) from error
    if remote:
        connection.setKeepAlive(5, 6)
    return connection


def _open_connection(library: Any, hypervisor: Hypervisor) -> libvirt.virConnect:
    """Open a connection in a thread: libvirt waits forever for a daemon that does not respond."""
    ended: SimpleQueue[tuple[Any, Exception | None]] = SimpleQueue()

    def work() -> None:
        try:
            ended.put((library.open(quiet_uri(hypervisor.uri)), None))
        except library.libvirtError as error:
            ended.put((None, error))

    Thread(target=work, name=f"opening {hypervisor.name}", daemon=True).start()
    try:
        connection, error = ended.get(timeout=_OPEN_SECONDS)
    except Empty:
        raise PreflightError(
            f"connecting to hypervisor '{hypervisor.name}' ({hypervisor.uri})",
            f"its libvirtd accepted the connection but did not respond within {_OPEN_SECONDS:g} s",
            "restart libvirtd there: 'systemctl restart libvirtd'",
        ) from None
    if error is not None:
        raise error
    return connection


@cache
def hear_events() -> None:
    """Run libvirt's event loop in a daemon thread.

    Without it there is no keepalive, and a non-blocking stream receives nothing unless something
    is sent. It must run before the first connection that needs it is opened.
    """
    library = load()
    library.virEventRegisterDefaultImpl()
    Thread(target=_run_events, args=(library,), name="libvirt events", daemon=True).start()


def _run_events(library: Any) -> None:
    while not library.virEventRunDefaultImpl():
        pass


def quiet_uri(uri: str) -> str:
    """The URI for libvirt, changed so that SSH never prompts on a terminal nor waits forever.

    ``~`` in a key file is expanded as ssh does; libvirt does not expand it.
    """
    parts = urlsplit(uri)
    if not parts.scheme.endswith("+ssh"):
        return uri
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    query.setdefault("no_tty", "1")
    if query.get("keyfile"):
        query["keyfile"] = str(ssh_path(query["keyfile"]))
    if os.access(SSH, os.X_OK):
        query.setdefault("command", str(SSH))
    return urlunsplit(parts._replace(query=urlencode(query, safe="/:")))


def reason(error: Exception) -> str:
    """The error message of libvirt on one line, without redundant prefixes."""
    text = " ".join(str(error).split())
    return text.removeprefix("internal error: ").removeprefix("operation failed: ")


_BUSY = ("has asynchronous jobs running", "is still in use", "is still being allocated")
_TAKEN = ("already in use",)
_FULL = ("No space left on device",)
_SSH_HINTS = (
    (("Permission denied",), "check that the URI's key may log in there: 'keyfile=' in the URI"),
    (
        ("Host key verification failed",),
        "'ssh-keyscan' the host into the known hosts of the URI",
    ),
    (("No route to host",), _TURN_ON),
    (("Connection refused",), "start its sshd"),
    (("Connection timed out",), _SYSTEM_HINTS[errno.ETIMEDOUT]),
    (
        ("Could not resolve hostname",),
        "use an address, or a name that DNS resolves, in the URI",
    ),
    (("No such file or directory",), _SYSTEM_HINTS[errno.ENOENT]),
)
"""What libvirt tells apart only by words: its codes are those of other errors, too, which are no
reason to wait or to try another range, and want other advice (src/storage/storage_driver.c,
src/conf/virnetworkobj.c and src/network/bridge_driver_linux.c of libvirt 9: "pool '%s' has
asynchronous jobs running.", "volume '%s' is still in use.", "bridge name '%s' already in use.",
"Network is already in use by interface %s"). Of a program that it runs, such as ssh or qemu-img, it
has only the output: src/rpc/virnetsocket.c adds that of ssh to "Cannot recv data"."""


def is_busy(error: libvirt.libvirtError) -> bool:
    """Whether another command works on the same pool or volume."""
    return _has_words(error, _BUSY)


def is_taken(error: libvirt.libvirtError) -> bool:
    """Whether the bridge or the range of a network is in use."""
    return _has_words(error, _TAKEN)


def _has_words(error: libvirt.libvirtError, words: Iterable[str]) -> bool:
    library = load()
    codes = {library.VIR_ERR_INTERNAL_ERROR, library.VIR_ERR_OPERATION_INVALID}
    program_ended = _system_error(error) in {errno.ECONNRESET, errno.EPIPE}
    known = error.get_error_code() in codes or program_ended
    return known and any(word in str(error) for word in words)


def _system_error(error: libvirt.libvirtError) -> int | None:
    """The number of the system call's error, as in ``errno``; None if no system call failed.

    virReportSystemError of libvirt (src/util/virerror.c) keeps it in the first number, which is -1
    in the errors of GnuTLS that have the same code.
    """
    if error.get_error_code() != load().VIR_ERR_SYSTEM_ERROR:
        return None
    return number if (number := int(error.get_int1())) > 0 else None


def denies_access(error: libvirt.libvirtError) -> bool:
    """Whether a daemon does not admit this user.

    polkit has its own domain; without D-Bus, which is another one, polkit cannot be asked
    (src/util/virpolkit.c and src/util/virgdbus.c of libvirt 9).
    """
    library = load()
    codes = {
        library.VIR_ERR_AUTH_FAILED,
        library.VIR_ERR_AUTH_CANCELLED,
        library.VIR_ERR_AUTH_UNAVAILABLE,
        library.VIR_ERR_ACCESS_DENIED,
    }
    return (
        error.get_error_code() in codes
        or error.get_error_domain() in {library.VIR_FROM_POLKIT, library.VIR_FROM_DBUS}
        or _system_error(error) in {errno.EACCES, errno.EPERM}
    )


def is_forbidden(error: libvirt.libvirtError, hypervisor: Hypervisor) -> bool:
    """True if the error means that the user has no access to this machine's libvirt."""
    local = hypervisor.uri.partition(":")[0] in {"qemu", "qemu+unix"}
    return local and denies_access(error)


def _connection_hint(error: libvirt.libvirtError, hypervisor: Hypervisor) -> str:
    scheme, number = hypervisor.uri.partition(":")[0], _system_error(error)
    if scheme.endswith("+tls") and number in {None, errno.ENOENT}:  # no socket file is opened
        return _CERTIFICATES
    if denies_access(error):
        return _ADMIT if is_forbidden(error, hypervisor) else _ADMIT_THERE
    if scheme.endswith("+ssh"):
        for words, hint in _SSH_HINTS:
            if _has_words(error, words):
                return hint
    elif number in _SYSTEM_HINTS:
        return _SYSTEM_HINTS[number]
    return f"try 'virsh -c \"{hypervisor.uri}\" version', or 'lab doctor'"


@contextmanager
def explain_errors(action: str, hypervisor: str, hint: str = "") -> Iterator[None]:
    """Convert libvirt's errors.

    Raises BrokenError with what was being done and on which hypervisor.
    """
    library = load()
    try:
        yield
    except library.libvirtError as error:
        lost = (
            error.get_error_code()
            in {
                library.VIR_ERR_RPC,
                library.VIR_ERR_NO_CONNECT,
                library.VIR_ERR_INVALID_CONN,
            }
            or error.get_error_domain() == library.VIR_FROM_RPC
        )
        raise BrokenError(
            f"{action} on hypervisor '{hypervisor}'",
            reason(error),
            hint or _error_hint(error, lost=lost),
        ) from error


def each(objects: Iterable[T], look: Callable[[T], S]) -> Iterator[tuple[T, S]]:
    """Yield every object with the result of ``look``, skipping objects removed meanwhile."""
    library = load()
    gone = {
        library.VIR_ERR_NO_DOMAIN,
        library.VIR_ERR_NO_NETWORK,
        library.VIR_ERR_NO_STORAGE_POOL,
        library.VIR_ERR_NO_STORAGE_VOL,
    }
    for item in objects:
        try:
            result = look(item)
        except library.libvirtError as error:
            if error.get_error_code() in gone:
                continue
            raise
        yield item, result


def owned(objects: Iterable[Any]) -> Iterator[tuple[Any, Owner]]:
    """Those of some domains or networks that have a lab's ownership mark, of any owner."""
    for item, owner in each(objects, lambda item: read_owner(item.XMLDesc())):
        if owner is not None:
            yield item, owner


def find(lookup: Callable[[str], T], name: str, absent: str) -> T | None:
    """The object of that name; None if libvirt raises the error code ``absent``.

    ``absent``: ``"VIR_ERR_NO_DOMAIN"``. Raises libvirt.libvirtError with any other code.
    """
    with ignore(absent):
        return lookup(name)
    return None


@contextmanager
def streamed(connected: libvirt.virConnect) -> Iterator[libvirt.virStream]:
    """A stream that is finished after the block, or aborted if the block fails."""
    stream = connected.newStream()
    try:
        yield stream
        stream.finish()
    except BaseException:
        with suppress(load().libvirtError):  # it has already ended
            stream.abort()
        raise


@contextmanager
def ignore(*codes: str) -> Iterator[None]:
    """Ignore libvirt's errors with these codes: ``"VIR_ERR_NO_DOMAIN"``."""
    library = load()
    try:
        yield
    except library.libvirtError as error:
        if error.get_error_code() not in {getattr(library, code) for code in codes}:
            raise


def _error_hint(error: libvirt.libvirtError, *, lost: bool) -> str:
    if _system_error(error) == errno.ENOSPC or _has_words(error, _FULL):
        return ROOM
    return "check that its libvirtd runs, then repeat" if lost else ""


def controller_id(machine_id: str | None = None) -> str:
    """The id of this controller on shared hypervisors: 16 hex digits, constant over time.

    It includes the host name: machines cloned from one template may share their machine id, and
    would take each other's labs for their own orphans.
    """
    from hashlib import sha256  # noqa: PLC0415  only real machines need it

    identity = machine_id or _machine_id()
    known = f"hybridlab {identity} {os.uname().nodename} {os.getuid()}"
    return sha256(known.encode()).hexdigest()[:16]


def _machine_id() -> str:
    for path in ("/etc/machine-id", "/var/lib/dbus/machine-id"):
        try:
            with open(path, encoding="ascii") as file:  # noqa: PTH123  no Path needed
                if text := file.read().strip():
                    return text
        except OSError:
            continue
    return os.uname().nodename
