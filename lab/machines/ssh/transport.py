"""TCP, TLS and SSH connections; every step has a deadline, and host keys are checked."""

from __future__ import annotations

import logging
import math
import os
import pwd
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Self

from lab._deadline import Deadline
from lab._errors import DeadlineError, PreflightError, os_words
from lab.machines.ssh.keys import SSH_PORT, bare_key, fingerprint, host_keys
from lab.shells import programs
from lab.shells.shell import (
    ConnectionLostError,
    HostKeyError,
    Jump,
    KeyFileError,
    Reach,
    UnreachableError,
)

if TYPE_CHECKING:
    import paramiko


_AT_ONCE = struct.pack("ii", 1, 0)
"""``SO_LINGER`` with timeout 0: closing the socket resets the connection."""
CONNECT_SECONDS = 10.0
"""For the TCP connection alone, so that a lost SYN does not use up a long deadline."""
_LONGEST_ANSWER = 65_536
"""Bytes of a proxy's answer."""
DEAD_SECONDS = 45
"""How long sent data may stay unacknowledged before the connection is dropped."""


def connect_tcp(action: str, host: str, port: int, deadline: Deadline, hint: str) -> socket.socket:
    """Connect to a TCP port.

    Raises UnreachableError with the outcome: ``"connection refused"``, ``"no answer to the
    connection"``.
    """
    try:
        sock = socket.create_connection(
            (host, port), timeout=min(timeout_of(deadline), CONNECT_SECONDS)
        )
    except OSError as error:
        raise UnreachableError(action, _words(error), hint) from error
    # Unacknowledged data means a dead peer, long before the kernel's own limit.
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, DEAD_SECONDS * 1000)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def _words(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return "no answer to the connection"
    if isinstance(error, socket.gaierror):
        return "unknown host name"
    return os_words(error)


def timeout_of(deadline: Deadline) -> float:
    """Seconds left, for locks and sockets: never infinite, never zero."""
    left = deadline.left()
    return threading.TIMEOUT_MAX if math.isinf(left) else max(left, 0.001)


@dataclass(frozen=True, slots=True)
class HttpProxy:
    """A proxy that makes tunnels to servers (HTTP ``CONNECT``)."""

    host: str
    port: int
    headers: Mapping[str, str] = field(default_factory=dict)
    """Of the request for a tunnel: the user's credentials."""


class TimedConnection:
    """A TCP or TLS connection to a server; a slow server does not extend the deadline.

    Sending and receiving raise TimeoutError after the deadline, and OSError like sockets. As a
    context manager, it resets the connection if the block raises.

    ``tls``: the context with the certificates; None for plain TCP. ``name``: the name that the
    server's certificate must have; None for ``host``. ``proxy``: makes a tunnel to the server.
    """

    def __init__(  # noqa: PLR0913, PLR0917  all of them define a connection
        self,
        action: str,
        host: str,
        port: int,
        deadline: Deadline,
        tls: ssl.SSLContext | None = None,
        name: str | None = None,
        proxy: HttpProxy | None = None,
    ) -> None:
        self._deadline = deadline
        first = (proxy.host, proxy.port) if proxy else (host, port)
        self._socket = connect_tcp(action, *first, deadline, "")
        try:
            if proxy:
                self._open_tunnel(action, proxy, f"{host}:{port}")
            if tls is not None:
                self._take_time()
                self._socket = tls.wrap_socket(self._socket, server_hostname=name or host)
        except BaseException:
            self.break_off()
            raise

    def _open_tunnel(self, action: str, proxy: HttpProxy, server: str) -> None:
        headers = {"Host": server, **proxy.headers}
        lines = (f"CONNECT {server} HTTP/1.1", *(f"{key}: {headers[key]}" for key in headers))
        self._take_time()
        self._socket.sendall("".join(f"{line}\r\n" for line in (*lines, "")).encode())
        answer = b""
        while not answer.endswith(b"\r\n\r\n") and len(answer) < _LONGEST_ANSWER:
            if not (byte := self.recv(1)):  # what follows the answer is the server's
                break
            answer += byte
        _, _, words = answer.partition(b"\r\n")[0].decode(errors="replace").partition(" ")
        if not words.startswith("2"):
            at = f"the proxy {proxy.host}:{proxy.port}"
            raise UnreachableError(action, f"{at} answers '{words}'" if words else f"{at} hung up")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self._socket.close()
        else:
            self.break_off()

    def recv(self, size: int) -> bytes:
        """Receive at most ``size`` bytes; empty once the server has closed the connection."""
        self._take_time()
        return self._socket.recv(size)

    def send(self, data: bytes) -> int:
        """Send part of ``data``; returns the number of bytes sent."""
        self._take_time()
        return self._socket.send(data)

    def gettimeout(self) -> float | None:
        """The timeout of the last operation in seconds."""
        return self._socket.gettimeout()

    def close(self) -> None:
        """Close the connection; sent data is still delivered."""
        self._socket.close()

    def break_off(self) -> None:
        """Reset the connection at both ends, now.

        An orderly close would not be reliable: a server whose window is full when this end shuts
        down waits for a window that never opens, together with whatever runs behind it (seen for
        107 s on Linux 6, although everything received had been read before the close).
        """
        if self._socket.fileno() >= 0:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
            self._socket.close()

    def _take_time(self) -> None:
        left = self._deadline.left()
        if not left:
            raise TimeoutError("no answer in time")
        self._socket.settimeout(left)


SESSIONS = 8
"""Concurrent sessions per transport; OpenSSH allows 10 (MaxSessions)."""
_REAPING_SECONDS = 5.0
"""How long to retry a refused session: on a busy machine sshd reaps late."""
KEEPALIVE_SECONDS = 10
OWN_KEYS = ("id_ed25519", "id_ecdsa", "id_rsa")
"""Key files in ``~/.ssh``, in the order in which they are offered."""
_CLOSE_SECONDS = 5.0
_ENDING_SECONDS = 1.0
"""How long a breaking connection stays active after its channels have closed."""
_NO_BANNER = "connected, but no SSH banner was received"
_ALGORITHMS = {"ssh-rsa": ("rsa-sha2-512", "rsa-sha2-256")}
SYSTEM_KNOWN_HOSTS = Path("/etc/ssh/ssh_known_hosts")


@dataclass(frozen=True, slots=True)
class SSHServer:
    """One SSH server."""

    name: str
    """For messages: the machine's name in the lab, or the host name."""
    host: str
    port: int
    user: str
    keyfile: Path | None
    """None to use the user's agent and keys."""
    host_keys: tuple[str, ...] | None
    """The accepted keys, ``"ssh-ed25519 AAAA..."``; empty for an unknown host; None for no
    check."""
    source: str
    """The source of those keys, for messages: ``"the lab's own record"``."""

    @property
    def address(self) -> str:
        """Host, and port if not 22, for messages."""
        return self.host if self.port == SSH_PORT else f"{self.host} port {self.port}"


def servers_to(reach: Reach) -> tuple[SSHServer, ...]:
    """The servers on the path to a machine; its own is last."""
    own = SSHServer(
        reach.name,
        reach.address,
        reach.port,
        reach.user,
        reach.keyfile,
        (bare_key(reach.host_key),),
        "the lab's own record",
    )
    return (jump_server(reach.jump), own) if reach.jump else (own,)


def jump_server(jump: Jump) -> SSHServer:
    """The server of a jump host, with its keys from the known hosts files."""
    files = (jump.known_hosts,) if jump.known_hosts else own_known_hosts()
    keys = None if jump.no_verify else _list_known_hosts(files, jump)
    source = " and ".join(f"'{file}'" for file in files)
    return SSHServer(jump.host, jump.host, jump.port, jump.user, jump.keyfile, keys, source)


def own_known_hosts() -> tuple[Path, ...]:
    """The known hosts files that ``ssh`` reads."""
    return (ssh_path("~/.ssh/known_hosts"), SYSTEM_KNOWN_HOSTS)


def ssh_path(written: str) -> Path:
    """Expand a path as ``ssh`` does: ``~`` is the account's home, regardless of ``HOME``."""
    if written.startswith("~/"):
        with suppress(KeyError):  # a uid without an account; ssh itself would not run
            return Path(pwd.getpwuid(os.getuid()).pw_dir, written[2:])
    return Path(os.path.expanduser(written))  # noqa: PTH111  without a home, the text is unchanged


def _list_known_hosts(files: Iterable[Path], jump: Jump) -> tuple[str, ...]:
    programs.need(f"looking for the host key of '{jump.host}'", "ssh-keygen")
    keys = (key for file in files for key in host_keys(file, jump.host, jump.port))
    return tuple(dict.fromkeys(keys))


@dataclass
class SSHTransport:
    """An authenticated transport with a limited number of sessions."""

    server: SSHServer
    transport: paramiko.Transport
    _room: threading.BoundedSemaphore = field(
        default_factory=lambda: threading.BoundedSemaphore(SESSIONS)
    )

    def alive(self) -> bool:
        """True if the connection is active, as far as is known."""
        return self.transport.is_active()

    def ends(self) -> bool:
        """True if the connection has ended or is ending: its channels close first."""
        self.transport.join(_ENDING_SECONDS)
        return not self.alive()

    def open(self, action: str, deadline: Deadline) -> paramiko.Channel:
        """A session channel; pass it to :meth:`done` afterwards. Waits if too many are open.

        Raises ConnectionLostError when the connection turns out to be dead. Nothing has been run.
        Raises DeadlineError when no session was available in time.
        """
        if not self._room.acquire(timeout=timeout_of(deadline)):
            raise DeadlineError(
                action, f"{SESSIONS} other commands used the connection for {deadline.seconds:g} s"
            )
        try:
            return self._open_session(action, deadline)
        except BaseException:
            self._room.release()
            raise

    def _open_session(self, action: str, deadline: Deadline) -> paramiko.Channel:
        """Retry for a while: sshd counts a session until it has reaped its command."""
        patience = Deadline(min(_REAPING_SECONDS, deadline.left()))
        for _ in patience.tries(every=0.05):
            try:
                return self.channel(action, "session", None, deadline)
            except UnreachableError as error:
                refused = error
        raise refused

    def done(self, channel: paramiko.Channel) -> None:
        """Close a session channel; the process group of its command is killed."""
        try:
            channel.close()
        finally:
            self._room.release()

    def channel(
        self, action: str, kind: str, address: tuple[str, int] | None, deadline: Deadline
    ) -> paramiko.Channel:
        """A new channel: ``"session"``, or ``"direct-tcpip"`` to an address behind the server.

        Closing it never raises, even if the connection has just broken.

        Raises ConnectionLostError or DeadlineError as :meth:`open`. Raises UnreachableError when
        the server refuses it.
        """
        from paramiko import ChannelException, SSHException  # noqa: PLC0415  slow to import

        source = ("127.0.0.1", 0) if address else None
        try:
            channel = self.transport.open_channel(
                kind, address, source, timeout=min(timeout_of(deadline), 3600.0)
            )
        except ChannelException as error:
            where = f"to {address[0]} port {address[1]} " if address else ""
            raise UnreachableError(
                action,
                f"'{self.server.name}' refused a channel {where}({error.text.lower()})",
                "check that the machine is running, and what its sshd allows (MaxSessions, "
                "AllowTcpForwarding)",
            ) from error
        except (SSHException, EOFError, OSError) as error:
            if not self.ends() and deadline.left() <= 0.0:
                raise DeadlineError(
                    action, f"'{self.server.name}' opened no channel within {deadline.seconds:g} s"
                ) from error
            raise self.lost(action) from error
        close = channel.close

        def quietly() -> None:  # a transport over this channel closes it in paramiko's thread
            with suppress(SSHException, EOFError, OSError):
                close()

        channel.close = quietly  # type: ignore[method-assign]
        return channel

    def lost(self, action: str) -> ConnectionLostError:
        """The error for an operation during which the connection broke."""
        error = self.transport.get_exception()
        words = f" ({error})" if error and str(error) else ""
        return ConnectionLostError(
            action,
            f"the connection to '{self.server.name}' ({self.server.address}) was lost{words}",
            "check that the machine is running, then repeat",
        )

    def close(self) -> None:
        """Close the transport and end its thread. Safe to repeat."""
        close_transport(self.transport)


def close_transport(transport: paramiko.Transport) -> None:
    """Close a transport, and wait for its thread."""
    transport.close()
    transport.sock.close()
    transport.packetizer.complete_handshake()  # otherwise its timer outlives a failed handshake
    if transport.is_alive():
        transport.join(_CLOSE_SECONDS)


@contextmanager
def abort_after(deadline: Deadline, abort: Callable[[], None]) -> Iterator[None]:
    """Call ``abort`` at the deadline if the block has not finished by then."""
    if math.isinf(deadline.left()):
        yield
        return
    timer = threading.Timer(deadline.left(), lambda: _abort_quietly(abort))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join(_CLOSE_SECONDS)


def _abort_quietly(abort: Callable[[], None]) -> None:
    with suppress(Exception):  # the call inside the block raises
        abort()


def connect(server: SSHServer, through: SSHTransport | None, deadline: Deadline) -> SSHTransport:
    """Connect to a server, check its key and log in; one attempt.

    ``server``: the server. ``through``: the transport to its jump host; None to connect directly.
    ``deadline``: for the whole connection.

    Raises UnreachableError with the point of failure: ``"connection refused"``, ``"authentication
    failed: key ..."``. Raises HostKeyError when the server's key is not one of ``host_keys``.
    Raises DeadlineError when it takes too long. Raises PreflightError when paramiko is not
    installed.
    """
    action = f"connecting to '{server.name}' ({server.user}@{server.address})"
    try:
        import paramiko  # noqa: PLC0415  slow to import
    except ImportError as error:
        words = "paramiko, the SSH library, is not installed"
        raise PreflightError(action, words, "pip install 'hybridlab[libvirt]'") from error
    log = logging.getLogger("paramiko")
    if not log.handlers:
        log.addHandler(logging.NullHandler())  # its errors are raised here, not printed
    hint = (
        f"check that the machine is running and that its sshd listens: nc -v {server.host} "
        f"{server.port}"
    )
    address = (server.host, server.port)
    sock = (
        through.channel(action, "direct-tcpip", address, deadline)
        if through
        else connect_tcp(action, *address, deadline, hint)
    )
    transport = paramiko.Transport(sock)
    transport.banner_timeout = transport.handshake_timeout = timeout_of(deadline)
    transport.auth_timeout = timeout_of(deadline)
    login = _Login(action, server, transport, deadline, hint)
    try:
        login.negotiate()
        login.check_host_key()
        login.authenticate()
    except BaseException:
        close_transport(transport)
        raise
    transport.set_keepalive(KEEPALIVE_SECONDS)
    return SSHTransport(server, transport)


@dataclass(frozen=True)
class _Login:
    action: str
    server: SSHServer
    transport: paramiko.Transport
    deadline: Deadline
    hint: str

    def negotiate(self) -> None:
        """Negotiate the session, preferring host keys of the known types."""
        from paramiko import SSHException  # noqa: PLC0415  slow to import
        from paramiko.ssh_exception import IncompatiblePeer  # noqa: PLC0415  the same

        pinned = [key.split()[0] for key in self.server.host_keys or ()]
        wanted = [algorithm for kind in pinned for algorithm in _ALGORITHMS.get(kind, (kind,))]
        options = self.transport.get_security_options()
        if usable := [algorithm for algorithm in wanted if algorithm in options.key_types]:
            options.key_types = list(dict.fromkeys(usable))
        try:
            self.transport.start_client(timeout=timeout_of(self.deadline))
        except IncompatiblePeer as error:
            # paramiko agrees on the key exchange first, and on the kind of host key next
            if pinned and self.transport.kex_engine and not self.transport.host_key_type:
                raise self._wrong_key(f"it has no host key of type {', '.join(pinned)}") from error
            raise self._unreachable(f"no common algorithm: {error}") from error
        except (SSHException, EOFError, OSError) as error:
            if not self.transport.remote_version:
                raise self._unreachable(self._no_banner(error)) from error
            words = f"the key exchange failed ({error or 'connection closed'})"
            raise self._unreachable(words) from error
        if not self.transport.initial_kex_done:
            version = self.transport.remote_version
            last = "connected, but the key exchange did not finish" if version else _NO_BANNER
            raise self._unreachable(f"{last} within {self.deadline.seconds:g} s")

    def check_host_key(self) -> None:
        """Check that the server's key is a known one."""
        server, shown = self.server, self.transport.get_remote_server_key()
        key = f"{shown.get_name()} {shown.get_base64()}"
        if server.host_keys is None or key in server.host_keys:
            return
        if server.host_keys:
            raise self._wrong_key(f"it shows the host key {fingerprint(key)}")
        raise HostKeyError(
            self.action,
            f"its host key, {fingerprint(key)}, is unknown: it is not in {server.source}",
            f"compare that fingerprint with the host's own, then 'ssh -p {server.port} "
            f"{server.user}@{server.host}' once and accept it",
        )

    def authenticate(self) -> None:
        """Offer the keys one after another."""
        from paramiko import AuthenticationException, SSHException  # noqa: PLC0415  slow to import

        tried: list[str] = []
        with own_keys(self.action, self.server) as offered:
            for name, key in offered:
                tried.append(name)
                try:
                    self.transport.auth_publickey(self.server.user, key)
                except AuthenticationException as error:
                    if self.transport.is_active() and self.deadline.left() > 0.0:
                        continue
                    raise self._refused(tried, f" ({error})") from error
                except (SSHException, EOFError, OSError) as error:
                    why = error or "no reason"
                    words = f"it closed the connection during login ({why})"
                    raise self._unreachable(words) from error
                if self.transport.is_authenticated():
                    return
        raise self._refused(tried, "")

    def _no_banner(self, error: Exception) -> str:
        from paramiko import SSHException  # noqa: PLC0415  slow to import

        if self.deadline.left() < 0.1:  # noqa: PLR2004  paramiko's timeout granularity
            return f"{_NO_BANNER} within {self.deadline.seconds:g} s"
        if isinstance(error, SSHException) and error.__context__ is None:  # a line was read
            return f"connected, but no SSH server answers there ({error})"
        reason = str(error.__context__ or error).strip()
        words = "connected, but closed before the SSH banner"
        return f"{words} ({reason})" if reason else words

    def _unreachable(self, words: str) -> UnreachableError:
        return UnreachableError(self.action, words, self.hint)

    def _refused(self, tried: list[str], why: str) -> UnreachableError:
        keys = ", ".join(tried) or "there is no key to offer"
        return UnreachableError(
            self.action,
            f"authentication failed: key {keys} of user '{self.server.user}'{why}",
            "check that the public key is in the user's authorized_keys there",
        )

    def _wrong_key(self, shown: str) -> HostKeyError:
        expected = ", ".join(fingerprint(key) for key in self.server.host_keys or ())
        return HostKeyError(
            self.action,
            f"{shown}, but {self.server.source} has {expected}: this is another machine, or a "
            "machine in the middle",
            "find out which machine has that address; nothing was sent to it",
        )


@contextmanager
def own_keys(action: str, server: SSHServer) -> Iterator[Iterator[tuple[str, paramiko.PKey]]]:
    """The keys to offer a server, each with its name for messages.

    Raises KeyFileError when the server's key file cannot be used.
    """
    if server.keyfile is not None:
        yield iter((_read_key(action, server.keyfile),))
        return
    from paramiko import Agent, SSHException  # noqa: PLC0415  slow to import

    with ExitStack() as stack:
        agent = None
        with suppress(SSHException):  # SSH_AUTH_SOCK may not lead to an agent
            agent = Agent()
            stack.callback(agent.close)
        yield _agent_and_files(agent)


def _agent_and_files(agent: paramiko.Agent | None) -> Iterator[tuple[str, paramiko.PKey]]:
    for key in agent.get_keys() if agent else ():
        yield f"'{key.comment or key.get_name()}' of the agent", key
    for name in OWN_KEYS:
        with suppress(KeyFileError):  # missing, or has a passphrase
            yield _read_key("", ssh_path(f"~/.ssh/{name}"))


def _read_key(action: str, path: Path) -> tuple[str, paramiko.PKey]:
    from paramiko import PKey, SSHException  # noqa: PLC0415  slow to import
    from paramiko.pkey import UnknownKeyType  # noqa: PLC0415  the same

    try:
        return f"'{path}'", PKey.from_path(path)
    except OSError as error:
        words = f"the key file '{path}' cannot be read: {os_words(error)}"
        raise KeyFileError(action, words) from error
    except TypeError as error:  # raised by cryptography for a key with a passphrase
        hint = "load it into an agent with ssh-add, and give no key file"
        raise KeyFileError(action, f"the key file '{path}' has a passphrase", hint) from error
    except (ValueError, SSHException, UnknownKeyType) as error:
        raise KeyFileError(action, f"'{path}' is not a private key: {error}") from error
