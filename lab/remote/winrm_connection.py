"""Connections to a machine's WinRM service: HTTPS by pywinrm, with the pinned certificate alone."""

from __future__ import annotations

import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar
from xml.etree.ElementTree import ParseError

from lab._deadline import Deadline
from lab._errors import BrokenError, DeadlineError, LabError, PreflightError, UsageError
from lab.remote.connection import JUMPS, Relay
from lab.remote.shell import ConnectionLostError, UnreachableError, WindowsReach
from lab.remote.tcp import CONNECT_SECONDS, connect_tcp, timeout_of
from lab.remote.transport import SESSIONS, SSHServer

if TYPE_CHECKING:
    from requests import Session
    from urllib3.exceptions import SSLError

OPERATION_SECONDS = 20
"""How long the service may hold a request before it answers that there is nothing yet."""
ANSWER_SECONDS = 10.0
"""How much later than that its answer may arrive."""
UNKNOWN_SHELL = frozenset({2150858843, 995})
"""Fault codes for a shell or command that the service does not know (any more), or that was
ended. From other WinRM clients; not yet seen from a real Windows."""
_LEAST_SECONDS = 1
"""WinRM counts in whole seconds."""
_TOO_LARGE = 413
_SHOWN = 300
_DIGEST = re.compile(r"[0-9a-f]{64}")

T = TypeVar("T")
Client = Any
"""pywinrm's Protocol; it has no annotations that mypy sees."""


class CertificateError(BrokenError):
    """The machine shows another certificate than the pinned one. Retrying does not help."""


class PasswordError(BrokenError):
    """The password was refused. Retrying may lock the account."""


class FaultError(BrokenError):
    """The service understood the request and refused it; ``code`` is WS-Management's."""

    def __init__(self, doing: str, happened: str, hint: str, code: int) -> None:
        super().__init__(doing, happened, hint)
        self.code = code


class StaleError(UnreachableError):
    """The connection had ended before anything was sent on it."""


class ReplyLostError(ConnectionLostError):
    """A request was sent; whether it was carried out is unknown."""

    clean = False
    """Whether the peer closed the connection in order, so that none of its output is lost."""


class OperationTimeoutError(Exception):
    """The service answered that there is nothing yet."""


def pinned_digest(reach: WindowsReach) -> str:
    """The SHA-256 of the certificate to expect, 64 lower-case hex digits.

    Raises
    ------
    UsageError
        When the machine has no valid one.

    """
    digest = reach.certificate.replace(":", "").lower()
    if not _DIGEST.fullmatch(digest):
        raise UsageError(
            f"reaching '{reach.ssh.name}' by WinRM",
            f"'{reach.certificate}' is not a SHA-256 digest of 64 hex digits",
        )
    return digest


def service_url(reach: WindowsReach) -> str:
    """Where the machine's WinRM service is."""
    host = reach.ssh.address
    return f"https://{f'[{host}]' if ':' in host else host}:{reach.port}/wsman"


class WinrmConnection:
    """One TLS connection, logged in once. One request at a time; only ``abort`` is thread-safe."""

    def __init__(self, reach: WindowsReach, jump: SSHServer | None) -> None:
        self._reach, self._jump = reach, jump
        self._digest = pinned_digest(reach)
        self._doing, self._deadline = "", Deadline(0)
        """Of the request under way."""
        self._client: Client = None
        self._socket: socket.socket | None = None
        self._relay: Relay | None = None
        self._connected = False
        self.broken = False
        """Whether it can no longer be used."""

    @property
    def address(self) -> str:
        """For messages."""
        return f"{self._reach.ssh.address} port {self._reach.port}"

    def request(
        self,
        doing: str,
        deadline: Deadline,
        call: Callable[[Client], T],
        wait: int = OPERATION_SECONDS,
    ) -> T:
        """Make one request, which the service may hold for ``wait`` seconds.

        Raises
        ------
        OperationTimeoutError
            When it held it so long.
        FaultError
            When it refused.
        StaleError, UnreachableError
            When nothing was sent.
        ReplyLostError
            When something was sent and no answer came.
        CertificateError, PasswordError, HostKeyError
            When retrying does not help.
        DeadlineError, BrokenError
            With what happened.

        """
        self._doing, self._deadline = doing, deadline
        if self.broken:
            raise StaleError(doing, "the connection has ended")
        try:
            if self._client is None:
                self._client = self._new_client()
            left = timeout_of(deadline)
            hold = max(_LEAST_SECONDS, int(min(wait, left - 0.5)))
            self._client.operation_timeout_sec = hold
            self._client.transport.read_timeout_sec = min(hold + ANSWER_SECONDS, left)
            return call(self._client)
        except LabError:
            self.broken = True
            raise
        except Exception as error:
            found = self._translate(error)
            if isinstance(found, ReplyLostError) and self._jump:
                found.clean = False  # the SSH host may have lost output
            self.broken = not isinstance(found, (OperationTimeoutError, FaultError))
            raise found from error

    def abort(self) -> None:
        """End a request under way with an error; from any thread."""
        if self._socket is not None:
            with suppress(OSError):
                # The plain socket's: TLS's shutdown would first wait for the peer.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection. Safe to repeat."""
        self.broken = True
        if self._client is not None:
            with suppress(Exception):  # the connection may be gone
                self._client.transport.close_session()
        if self._socket is not None:
            with suppress(OSError):
                self._socket.close()
            self._socket = None
        if self._relay and self._jump:
            self._relay.close()
            JUMPS.give_back(self._jump)
            self._relay = None

    def _new_client(self) -> Client:
        try:
            from winrm.protocol import Protocol  # noqa: PLC0415  slow to import
        except ImportError as error:
            words = "pywinrm, which speaks WinRM, is not installed"
            raise PreflightError(self._doing, words, "pip install 'hybridlab[windows]'") from error
        reach = self._reach
        url = service_url(reach)
        client = Protocol(
            url,
            transport="ntlm",
            username=reach.ssh.user,
            password=reach.password,
            server_cert_validation="ignore",  # no authorities: the pinned digest is checked
            message_encryption="never",  # TLS does that
            proxy=None,
        )
        _mount(client.transport.build_session(), url, self)
        return client

    def connect(self) -> socket.socket:
        """Connect, once: NTLM has logged in this TCP connection and no other.

        Raises
        ------
        StaleError
            When it was connected before; nothing was sent.
        UnreachableError, HostKeyError, DeadlineError
            With how far it got.

        """
        if self._connected:
            raise StaleError(self._doing, "the connection has ended")
        self._connected = True
        host, port = self._reach.ssh.address, self._reach.port
        if self._jump is None:
            hint = f"see that the machine runs and that WinRM listens: nc -v {host} {port}"
            self._socket = connect_tcp(self._doing, host, port, self._deadline, hint)
        else:
            jump = JUMPS.borrow(self._jump, self._deadline)
            try:
                channel = jump.channel(self._doing, "direct-tcpip", (host, port), self._deadline)
            except BaseException:
                JUMPS.give_back(self._jump)
                raise
            self._socket, far = socket.socketpair()  # no port of this machine leads there
            self._relay = Relay(far, channel)
        self._socket.settimeout(min(timeout_of(self._deadline), CONNECT_SECONDS))
        return self._socket

    def secure(self, connect: Callable[[], None], connection: Any) -> None:
        """Do the TLS handshake of one of urllib3's connections.

        Raises
        ------
        CertificateError
            When the certificate is not the pinned one; nothing was sent.
        UnreachableError
            When there was no handshake.

        """
        from urllib3.exceptions import SSLError  # noqa: PLC0415  slow to import

        try:
            connect()
        except SSLError as error:
            raise self._certificate_error(error) from error
        except (ssl.SSLError, OSError) as error:
            late = isinstance(error, TimeoutError)
            words = "no answer" if late else str(error) or "connection closed"
            raise UnreachableError(
                self._doing,
                f"connected, but the TLS handshake broke off ({words})",
                f"see what listens at {self.address}, and whether its certificate is there",
            ) from error
        # By default Python takes a reset connection for one that ended: here only TLS's own
        # close says that the peer had no more to send.
        connection.sock.suppress_ragged_eofs = False
        self._socket = connection.sock

    def tls(self) -> dict[str, Any]:
        """What urllib3 is to check."""
        from urllib3.util.ssl_ import create_urllib3_context  # noqa: PLC0415  slow to import

        context = create_urllib3_context(cert_reqs=ssl.CERT_NONE)  # the digest is checked instead
        # Set by Python 3.11.2 (Debian 12, gh-95494): an end without TLS's close would pass.
        context.options &= ~ssl.OP_IGNORE_UNEXPECTED_EOF
        return {"assert_fingerprint": self._digest, "ssl_context": context}

    def _certificate_error(self, error: SSLError) -> Exception:
        text = str(error)
        if "ingerprint" not in text:  # another complaint of urllib3's
            return error
        shown = text.rsplit('got "', maxsplit=1)[-1].rstrip('".')
        return CertificateError(
            self._doing,
            f"it shows the certificate {shown}, and by the lab's own record it is "
            f"{self._digest}: this is another machine, or somebody in between",
            "find out which machine has that address; no password was sent to it",
        )

    def _translate(self, error: Exception) -> Exception:  # noqa: PLR0911  a table of errors
        """The lab's error for one of pywinrm, requests or pyspnego; a defect stays as it is."""
        from http.client import RemoteDisconnected  # noqa: PLC0415  for this alone

        from requests import exceptions as http  # noqa: PLC0415  slow to import
        from spnego.exceptions import SpnegoError  # noqa: PLC0415  the same
        from winrm import exceptions as winrm  # noqa: PLC0415  the same

        match error:
            case winrm.WinRMOperationTimeoutError():
                return OperationTimeoutError()
            case winrm.AuthenticationError():
                return PasswordError(
                    self._doing,
                    f"401: the password of user '{self._reach.ssh.user}' is refused at "
                    f"{self.address}",
                    "see that this is the machine it was made for, and that the account is neither "
                    "locked nor disabled; do not retry often: Windows locks Administrator after "
                    "10 refusals",
                )
            case winrm.WSManFaultError():
                return self._fault(str(error.reason), int(error.wsman_fault_code or 0))
            case winrm.WinRMTransportError():
                return self._status(int(error.code))
            case http.Timeout():
                if self._deadline.left() > 0.0:
                    return self._lost("it does not answer")
                return DeadlineError(
                    self._doing,
                    f"no answer within {self._deadline.seconds:g} s from {self.address}",
                    "give it longer, or see whether the machine still runs",
                )
            case http.RequestException():
                chain = list(_chain(error))
                lost = self._lost(str(chain[-1]) or type(error).__name__)
                lost.clean = any(isinstance(one, RemoteDisconnected) for one in chain)
                return lost
            case (
                ParseError()
                | StopIteration()
                | SpnegoError()
                | winrm.WinRMError()
                | LookupError()
                | ValueError()
                | PermissionError()
                | AssertionError()
            ):
                return BrokenError(
                    self._doing,
                    f"what answers at {self.address} does not speak WinRM as Windows does "
                    f"({error!r})",
                    "see what listens there",
                )
        return error

    def _fault(self, reason: str, code: int) -> FaultError:
        hint = "see what 'winrm get winrm/config' says there"
        if "quota" in reason.lower() or "maximum number" in reason.lower():
            hint = "end what else uses WinRM there, or raise the quota (MaxShellsPerUser)"
        text = " ".join(reason.split())[:_SHOWN]
        words = f"'{self._reach.ssh.name}' refused: {text} (fault {code})"
        return FaultError(self._doing, words, hint, code)

    def _status(self, status: int) -> FaultError:
        name = self._reach.ssh.name
        if status == _TOO_LARGE:
            words = f"413: '{name}' takes no message of that size (MaxEnvelopeSizekb)"
            return FaultError(self._doing, words, "send what is long in a file", status)
        words = f"'{name}' answered with HTTP status {status} and nothing else"
        hint = "see that the service WinRM runs there, and its event log"
        return FaultError(self._doing, words, hint, status)

    def _lost(self, words: str) -> ReplyLostError:
        return ReplyLostError(
            self._doing,
            f"the connection to '{self._reach.ssh.name}' ({self.address}) was lost ({words})",
            "see whether the machine still runs, then repeat",
        )


class WinrmPool:
    """The connections to one service: as many as requests at once; an idle one is kept.

    Parameters
    ----------
    reach
        The machine.
    jump
        The SSH host to go through; None to connect directly.

    """

    def __init__(self, reach: WindowsReach, jump: SSHServer | None) -> None:
        self._reach, self._jump = reach, jump
        pinned_digest(reach)
        self._lock = threading.Lock()
        self._idle: list[WinrmConnection] = []
        self._commands = threading.BoundedSemaphore(SESSIONS)

    def enter(self, doing: str, deadline: Deadline) -> None:
        """Wait until fewer than ``SESSIONS`` commands run, and count one more until ``leave``.

        Raises
        ------
        DeadlineError
            When they did not end in time.

        """
        if not self._commands.acquire(timeout=timeout_of(deadline)):
            words = f"{SESSIONS} other commands ran there for {deadline.seconds:g} s"
            raise DeadlineError(doing, words)

    def leave(self) -> None:
        """Count one command less."""
        self._commands.release()

    def take(self) -> WinrmConnection:
        """An idle connection, which may have died since, or a new one."""
        with self._lock:
            return self._idle.pop() if self._idle else self.new()

    def new(self) -> WinrmConnection:
        """A connection that is made with its first request."""
        return WinrmConnection(self._reach, self._jump)

    def give(self, connection: WinrmConnection) -> None:
        """Keep a connection for the next command; close it if it is broken or one is kept."""
        if not connection.broken:
            with self._lock:
                if not self._idle:
                    self._idle.append(connection)
                    return
        connection.close()

    def close(self) -> None:
        """Close the idle connections."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()


def _mount(session: Session, url: str, own: WinrmConnection) -> None:
    """Have the session use that connection and no other."""
    from requests.adapters import HTTPAdapter  # noqa: PLC0415  slow to import
    from urllib3 import HTTPSConnectionPool, PoolManager  # noqa: PLC0415  the same
    from urllib3.connection import HTTPSConnection  # noqa: PLC0415  the same

    class HttpsConnection(HTTPSConnection):
        def _new_conn(self) -> socket.socket:
            return own.connect()

        def connect(self) -> None:
            own.secure(super().connect, self)

    class ConnectionPool(HTTPSConnectionPool):
        ConnectionCls = HttpsConnection

    class Adapter(HTTPAdapter):
        def init_poolmanager(
            self, connections: int, maxsize: int, block: bool = False, **more: Any
        ) -> None:
            more |= own.tls()
            self.poolmanager = PoolManager(connections, maxsize=maxsize, block=block, **more)
            self.poolmanager.pool_classes_by_scheme = {"https": ConnectionPool}

    session.trust_env = False  # no proxy, and no other passwords
    session.mount(url, Adapter(pool_connections=1, pool_maxsize=1, max_retries=0))


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The exception and all that it wraps: urllib3 puts the cause among the arguments."""
    yield error
    for one in (*error.args, getattr(error, "reason", None)):
        if isinstance(one, BaseException):
            yield from _chain(one)
            return
