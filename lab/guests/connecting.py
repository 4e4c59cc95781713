"""Getting in at a door: connection, host key, login, each step telling what it met."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from lab._deadline import Deadline
from lab._errors import PreflightError
from lab.guests.door import Door
from lab.guests.identity import identities
from lab.guests.keys import fingerprint
from lab.guests.link import HostKeyError, Link, UnreachableError, end, patience
from lab.guests.sockets import reached

if TYPE_CHECKING:
    import paramiko

KEEPALIVE_SECONDS = 10
_NO_BANNER = "connected, but the banner of an SSH server was not sent"
_ALGORITHMS = {"ssh-rsa": ("rsa-sha2-512", "rsa-sha2-256")}


def connect(door: Door, through: Link | None, deadline: Deadline) -> Link:
    """Knock at the door once: connect, check its key, and be let in.

    Parameters
    ----------
    door
        Where to.
    through
        The link that leads there; None for the network of this machine.
    deadline
        For all of it.

    Raises
    ------
    UnreachableError
        With how far it went: ``"connection refused"``, ``"authentication failed: key ..."``.
    HostKeyError
        When the key it shows is not the one it must show.
    DeadlineError
        When it was too slow.
    PreflightError
        When paramiko is not installed.

    """
    doing = f"connecting to '{door.name}' ({door.user}@{door.address})"
    try:
        import paramiko  # noqa: PLC0415  slow to import
    except ImportError as error:
        words = "paramiko, which speaks SSH, is not installed"
        raise PreflightError(doing, words, "pip install 'hybridlab[libvirt]'") from error
    log = logging.getLogger("paramiko")
    if not log.handlers:
        log.addHandler(logging.NullHandler())  # its errors are raised here, not printed
    sock = (
        _through(doing, door, through, deadline)
        if through
        else reached(doing, door.host, door.port, deadline, _cure(door))
    )
    transport = paramiko.Transport(sock)
    try:
        _offer(door, transport)
        transport.banner_timeout = transport.handshake_timeout = patience(deadline)
        transport.auth_timeout = patience(deadline)
        _negotiate(doing, door, transport, deadline)
        _check(doing, door, transport)
        _authenticate(doing, door, transport, deadline)
    except BaseException:
        end(transport)
        raise
    transport.set_keepalive(KEEPALIVE_SECONDS)
    return Link(door, transport)


def _cure(door: Door) -> str:
    return f"see that the machine runs and that its sshd listens: nc -v {door.host} {door.port}"


def _through(doing: str, door: Door, link: Link, deadline: Deadline) -> paramiko.Channel:
    return link.channel(doing, "direct-tcpip", (door.host, door.port), deadline)


def _offer(door: Door, transport: paramiko.Transport) -> None:
    """Ask for a host key of a type that is known, where the machine has several."""
    options = transport.get_security_options()
    wanted = [
        algorithm
        for key in door.host_keys or ()
        for algorithm in _ALGORITHMS.get(key.split()[0], (key.split()[0],))
    ]
    usable = [algorithm for algorithm in wanted if algorithm in options.key_types]
    if usable:
        options.key_types = list(dict.fromkeys(usable))


def _negotiate(doing: str, door: Door, transport: paramiko.Transport, deadline: Deadline) -> None:
    from paramiko import SSHException  # noqa: PLC0415  slow to import
    from paramiko.ssh_exception import IncompatiblePeer  # noqa: PLC0415  the same

    try:
        transport.start_client(timeout=patience(deadline))
    except IncompatiblePeer as error:
        if door.host_keys and "host key" in str(error):
            kinds = ", ".join(key.split()[0] for key in door.host_keys)
            raise _strange(doing, door, f"it has no host key of type {kinds}") from error
        raise UnreachableError(doing, f"no common algorithm: {error}", _cure(door)) from error
    except (SSHException, EOFError, OSError) as error:
        if not transport.remote_version:
            raise UnreachableError(doing, _banner_words(error, deadline), _cure(door)) from error
        words = f"the key exchange broke off ({error or 'connection closed'})"
        raise UnreachableError(doing, words, _cure(door)) from error
    if not transport.initial_kex_done:
        last = (
            "connected, but the key exchange was not done"
            if transport.remote_version
            else _NO_BANNER
        )
        raise UnreachableError(doing, f"{last} within {deadline.seconds:g} s", _cure(door))


def _banner_words(error: Exception, deadline: Deadline) -> str:
    if deadline.left() < 0.1:  # noqa: PLR2004  how often paramiko looks at its clock
        return f"{_NO_BANNER} within {deadline.seconds:g} s"
    if "Indecipherable" in str(error):
        return f"connected, but what answers there is no SSH server ({error})"
    said = str(error).removeprefix("Error reading SSH protocol banner").strip()
    return "connected, and closed before the banner of an SSH server" + (
        f" ({said})" if said else ""
    )


def _check(doing: str, door: Door, transport: paramiko.Transport) -> None:
    shown = transport.get_remote_server_key()
    key = f"{shown.get_name()} {shown.get_base64()}"
    if door.host_keys is None or key in door.host_keys:
        return
    if not door.host_keys:
        raise HostKeyError(
            doing,
            f"its host key, {fingerprint(key)}, is unknown: it is not in {door.source}",
            f"compare that fingerprint with the host's own, then 'ssh -p {door.port} "
            f"{door.user}@{door.host}' once and accept it",
        )
    raise _strange(doing, door, f"it shows the host key {fingerprint(key)}")


def _strange(doing: str, door: Door, shown: str) -> HostKeyError:
    expected = ", ".join(fingerprint(key) for key in door.host_keys or ())
    return HostKeyError(
        doing,
        f"{shown}, and by {door.source} it is {expected}: this is another machine, or somebody "
        "in between",
        "find out which machine has that address; nothing was sent to it",
    )


def _authenticate(
    doing: str, door: Door, transport: paramiko.Transport, deadline: Deadline
) -> None:
    from paramiko import AuthenticationException, SSHException  # noqa: PLC0415  slow to import

    tried: list[str] = []
    with identities(doing, door) as offered:
        for words, key in offered:
            tried.append(words)
            try:
                transport.auth_publickey(door.user, key)
            except AuthenticationException as error:
                if transport.is_active() and deadline.left() > 0.0:
                    continue
                raise _refused(doing, door, tried, f" ({error})") from error
            except (SSHException, EOFError, OSError) as error:
                said = f"it closed the connection while we logged in ({error or 'no reason'})"
                raise UnreachableError(doing, said, _cure(door)) from error
            if transport.is_authenticated():
                return
    raise _refused(doing, door, tried, "")


def _refused(doing: str, door: Door, tried: list[str], why: str) -> UnreachableError:
    keys = ", ".join(tried) or "there is no key to offer"
    return UnreachableError(
        doing,
        f"authentication failed: key {keys} of user '{door.user}'{why}",
        "see that the public key is in the user's authorized_keys there",
    )
