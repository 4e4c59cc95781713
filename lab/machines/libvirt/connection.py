"""Connections to hypervisors, and explanations of libvirt's errors."""

from __future__ import annotations

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

_FORBIDDEN = ("permission denied", "authentication", "system bus", "polkit")
"""libvirt's errors for a user without access to it on this machine; polkit may be missing."""
_ADMIT = "sudo usermod --append --groups libvirt $USER, and log in again"
_HINTS = (
    ("authentication failed", "allow this user to use libvirt there: group 'libvirt', polkit"),
    ("Permission denied", "check that the URI's key may log in there: 'keyfile=' in the URI"),
    ("Host key verification failed", "'ssh-keyscan' the host into the known hosts of the URI"),
    ("No route to host", "check that the host is running and reachable"),
    ("Connection refused", "start its libvirtd or sshd"),
    ("Connection timed out", "check that the host is running and no firewall drops the connection"),
    ("Could not resolve hostname", "use an address, or a name that DNS resolves, in the URI"),
    ("No such file or directory", "start libvirtd: 'tools/hypervisor start', or systemctl"),
    ("unable to connect to server", "start its libvirtd, and check that it listens for TLS"),
    ("certificate", "see 'TLS certificates' in libvirt's docs: the CA must have signed both"),
)


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

    Raises PreflightError with the hypervisor, the reason and a hint.
    """
    library = load()
    remote = hypervisor.uri.split(":")[0].endswith(("+ssh", "+tls"))
    if remote:
        hear_events()
    try:
        connection = _open_connection(library, hypervisor)
    except library.libvirtError as error:
        raise PreflightError(
            f"connecting to hypervisor '{hypervisor.name}' ({hypervisor.uri})",
            reason(error),
            _connection_hint(reason(error), hypervisor),
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
"""What libvirt tells apart only by words: its codes are those of other errors, too, which are no
reason to wait or to try another range (src/storage/storage_driver.c, src/conf/virnetworkobj.c and
src/network/bridge_driver_linux.c of libvirt 9: "pool '%s' has asynchronous jobs running.",
"volume '%s' is still in use.", "bridge name '%s' already in use.", "Network is already in use by
interface %s")."""


def is_busy(error: libvirt.libvirtError) -> bool:
    """Whether another command works on the same pool or volume."""
    return _has_words(error, _BUSY)


def is_taken(error: libvirt.libvirtError) -> bool:
    """Whether the bridge or the range of a network is in use."""
    return _has_words(error, _TAKEN)


def _has_words(error: libvirt.libvirtError, words: Iterable[str]) -> bool:
    library = load()
    codes = {library.VIR_ERR_INTERNAL_ERROR, library.VIR_ERR_OPERATION_INVALID}
    return error.get_error_code() in codes and any(word in str(error) for word in words)


def _connection_hint(message: str, hypervisor: Hypervisor) -> str:
    if is_forbidden(message, hypervisor):
        return _ADMIT
    for sign, hint in _HINTS:
        if sign.lower() in message.lower():
            return hint
    return f"try 'virsh -c \"{hypervisor.uri}\" version', or 'lab doctor'"


def is_forbidden(message: str, hypervisor: Hypervisor) -> bool:
    """True if the error means that the user has no access to this machine's libvirt."""
    local = hypervisor.uri.partition(":")[0] in {"qemu", "qemu+unix"}
    return local and any(sign in message.lower() for sign in _FORBIDDEN)


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
            hint or _error_hint(reason(error), lost=lost),
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


def _error_hint(message: str, *, lost: bool) -> str:
    if "No space left on device" in message:
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
