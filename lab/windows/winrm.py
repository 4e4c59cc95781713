"""WinRM with pywinrm: HTTPS connections that accept only the pinned certificate, and commands.

A command's shell on the service is always deleted.
"""

from __future__ import annotations

import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from typing import TYPE_CHECKING, Any, TypeVar
from xml.etree.ElementTree import ParseError

from lab._deadline import Deadline
from lab._errors import BrokenError, DeadlineError, LabError, PreflightError, UsageError
from lab.machines.ssh.connection import JUMPS, Relay
from lab.machines.ssh.transport import (
    CONNECT_SECONDS,
    SESSIONS,
    SSHServer,
    abort_after,
    connect_tcp,
    timeout_of,
)
from lab.shells.shell import (
    ConnectionLostError,
    FatalError,
    UnreachableError,
    WindowsReach,
    timeout_error,
)

if TYPE_CHECKING:
    from requests import Session


OPERATION_SECONDS = 20
"""How long the service may hold a request before it answers that there is no output yet."""
ANSWER_SECONDS = 10.0
"""Additional time for that answer to arrive."""
UNKNOWN_SHELL = frozenset({2150858843, 995})
"""Fault codes for a shell or command that the service does not know, no longer knows, or has
ended. From other WinRM clients; not yet seen on a real Windows."""
_LEAST_SECONDS = 1
"""WinRM timeouts are whole seconds."""
_TOO_LARGE = 413
_SHOWN = 300
_FOREIGN = (ParseError, StopIteration, LookupError, ValueError, PermissionError, AssertionError)
"""Raised by the libraries for answers that are not WinRM's."""
_DIGEST = re.compile(r"[0-9a-f]{64}")

T = TypeVar("T")
Client = Any
"""pywinrm's Protocol, which has no type annotations."""


class CertificateError(FatalError):
    """The machine's certificate is not the pinned one."""


class PasswordError(BrokenError):
    """The password was refused. Retrying may lock the account."""


class SoapFaultError(BrokenError):
    """The service understood the request and refused it; ``code`` is WS-Management's."""

    def __init__(self, action: str, happened: str, hint: str, code: int) -> None:
        super().__init__(action, happened, hint)
        self.code = code


class StaleError(UnreachableError):
    """The connection had ended before the request was sent."""


class ReplyLostError(ConnectionLostError):
    """A request was sent; whether it was executed is unknown."""

    clean = False
    """True if the peer closed the connection in order, so that none of its output is lost."""


class OperationTimeoutError(Exception):
    """The service answered that there is no output yet."""


def pinned_digest(reach: WindowsReach) -> str:
    """The SHA-256 of the pinned certificate, 64 lower-case hex digits.

    Raises UsageError when it is malformed.
    """
    digest = reach.certificate.replace(":", "").lower()
    if not _DIGEST.fullmatch(digest):
        raise UsageError(
            f"reaching '{reach.ssh.name}' by WinRM",
            f"'{reach.certificate}' is not a SHA-256 digest of 64 hex digits",
        )
    return digest


def service_url(reach: WindowsReach) -> str:
    """The URL of the machine's WinRM service."""
    host = reach.ssh.address
    return f"https://{f'[{host}]' if ':' in host else host}:{reach.port}/wsman"


class WinrmConnection:
    """One TLS connection, logged in once. One request at a time; only ``abort`` is thread-safe."""

    def __init__(self, reach: WindowsReach, jump: SSHServer | None) -> None:
        self._reach, self._jump = reach, jump
        self._digest = pinned_digest(reach)
        self._doing, self._deadline = "", Deadline(0)
        """Those of the current request."""
        self._client: Client = None
        self._socket: socket.socket | None = None
        self._relay: Relay | None = None
        self._connected = False
        self.broken = False
        """True if it can no longer be used."""

    @property
    def address(self) -> str:
        """Host and port, for messages."""
        return f"{self._reach.ssh.address} port {self._reach.port}"

    def request(
        self,
        action: str,
        deadline: Deadline,
        call: Callable[[Client], T],
    ) -> T:
        """Make one request, which the service may hold for ``OPERATION_SECONDS``.

        Raises OperationTimeoutError when it held it that long. Raises SoapFaultError when it
        refused. Raises StaleError or UnreachableError when nothing was sent. Raises ReplyLostError
        when something was sent and no answer came. Raises CertificateError, PasswordError or
        HostKeyError when retrying does not help. Raises DeadlineError or BrokenError otherwise.
        """
        self._doing, self._deadline = action, deadline
        if self.broken:
            raise StaleError(action, "the connection has ended")
        try:
            if self._client is None:
                self._client = self._new_client()
            left = timeout_of(deadline)
            hold = max(_LEAST_SECONDS, int(min(OPERATION_SECONDS, left - 0.5)))
            self._client.operation_timeout_sec = hold
            self._client.transport.read_timeout_sec = min(hold + ANSWER_SECONDS, left)
            return call(self._client)
        except LabError:
            self.broken = True
            raise
        except Exception as error:
            translated = self._translate(error)
            if isinstance(translated, ReplyLostError) and self._jump:
                translated.clean = False  # the SSH host may have lost output
            self.broken = not isinstance(translated, (OperationTimeoutError, SoapFaultError))
            raise translated from error

    def abort(self) -> None:
        """Make the current request fail; may be called from any thread."""
        if self._socket is not None:
            with suppress(OSError):
                # The plain socket's shutdown: TLS's would first wait for the peer.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection. Safe to repeat."""
        self.broken = True
        if self._client is not None:
            with suppress(Exception):  # the connection may be dead
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
            words = "pywinrm, the WinRM library, is not installed"
            raise PreflightError(self._doing, words, "pip install 'hybridlab[windows]'") from error
        reach = self._reach
        url = service_url(reach)
        client = Protocol(
            url,
            transport="ntlm",
            username=reach.ssh.user,
            password=reach.password,
            server_cert_validation="ignore",  # connect() checks the pinned digest
            message_encryption="never",  # TLS already encrypts
            proxy=None,
        )
        _mount(client.transport.build_session(), url, self)
        return client

    def connect(self) -> ssl.SSLSocket:
        """Connect with TLS, once: NTLM authenticates only this TCP connection.

        Raises StaleError when it was connected before. Raises UnreachableError, HostKeyError or
        DeadlineError with the point of failure; CertificateError when the certificate is not the
        pinned one. Nothing was sent then.
        """
        if self._connected:
            raise StaleError(self._doing, "the connection has ended")
        self._connected = True
        self._socket = self._connect_tcp()
        self._socket.settimeout(min(timeout_of(self._deadline), CONNECT_SECONDS))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE  # no CA: the pinned digest is checked instead
        # Python 3.11.2 (Debian 12, gh-95494) sets this, which hides an end without close_notify.
        context.options &= ~ssl.OP_IGNORE_UNEXPECTED_EOF
        try:
            # By default Python treats a reset connection as ended: here only TLS's close_notify
            # means that the peer has sent everything.
            secured = context.wrap_socket(self._socket, suppress_ragged_eofs=False)
        except OSError as error:
            late = isinstance(error, TimeoutError)
            words = "no answer" if late else str(error) or "connection closed"
            raise UnreachableError(
                self._doing,
                f"connected, but the TLS handshake failed ({words})",
                f"see what listens at {self.address}, and whether its certificate is installed",
            ) from error
        self._socket = secured
        shown = sha256(secured.getpeercert(binary_form=True) or b"").hexdigest()
        if shown != self._digest:
            raise CertificateError(
                self._doing,
                f"it shows the certificate {shown}, but the lab's record has {self._digest}: this "
                "is another machine, or a machine in the middle",
                "find out which machine has that address; no password was sent to it",
            )
        return secured

    def _connect_tcp(self) -> socket.socket:
        host, port = self._reach.ssh.address, self._reach.port
        if self._jump is None:
            hint = f"check that the machine is running and that WinRM listens: nc -v {host} {port}"
            return connect_tcp(self._doing, host, port, self._deadline, hint)
        jump = JUMPS.borrow(self._jump, self._deadline)
        try:
            channel = jump.channel(self._doing, "direct-tcpip", (host, port), self._deadline)
        except BaseException:
            JUMPS.give_back(self._jump)
            raise
        near, far = socket.socketpair()  # avoids a local port
        self._relay = Relay(far, channel)
        return near

    def _translate(self, error: Exception) -> Exception:  # noqa: PLR0911  a table of errors
        """Convert an error of pywinrm, requests or pyspnego; a bug's exception is unchanged."""
        from http.client import RemoteDisconnected  # noqa: PLC0415  only used here

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
                    "check that this is the machine it was made for, and that the account is "
                    "neither locked nor disabled; do not retry often: Windows locks Administrator "
                    "after 10 refusals",
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
                    "give it more time, or check that the machine is running",
                )
            case http.RequestException():
                chain = list(_chain(error))
                lost = self._lost(str(chain[-1]) or type(error).__name__)
                lost.clean = any(isinstance(translated, RemoteDisconnected) for translated in chain)
                return lost
        if isinstance(error, (*_FOREIGN, SpnegoError, winrm.WinRMError)):
            words = f"the service at {self.address} does not speak WinRM as Windows does"
            return BrokenError(self._doing, f"{words} ({error!r})", "check what listens there")
        return error

    def _fault(self, reason: str, code: int) -> SoapFaultError:
        hint = "check 'winrm get winrm/config' there"
        if "quota" in reason.lower() or "maximum number" in reason.lower():
            hint = "end other WinRM sessions there, or raise the quota (MaxShellsPerUser)"
        text = " ".join(reason.split())[:_SHOWN]
        words = f"'{self._reach.ssh.name}' refused: {text} (fault {code})"
        return SoapFaultError(self._doing, words, hint, code)

    def _status(self, status: int) -> SoapFaultError:
        name = self._reach.ssh.name
        if status == _TOO_LARGE:
            words = f"413: '{name}' does not accept messages of that size (MaxEnvelopeSizekb)"
            return SoapFaultError(self._doing, words, "send long values in a file", status)
        words = f"'{name}' answered only with HTTP status {status}"
        hint = "check that the WinRM service runs there, and its event log"
        return SoapFaultError(self._doing, words, hint, status)

    def _lost(self, words: str) -> ReplyLostError:
        return ReplyLostError(
            self._doing,
            f"the connection to '{self._reach.ssh.name}' ({self.address}) was lost ({words})",
            "check that the machine is running, then repeat",
        )


class WinrmPool:
    """The connections to one service, one per concurrent request; one idle connection is kept.

    ``reach``: the machine. ``jump``: the SSH jump host; None to connect directly.
    """

    def __init__(self, reach: WindowsReach, jump: SSHServer | None) -> None:
        self._reach, self._jump = reach, jump
        pinned_digest(reach)
        self._lock = threading.Lock()
        self._idle: list[WinrmConnection] = []
        self._commands = threading.BoundedSemaphore(SESSIONS)

    @contextmanager
    def slot(self, action: str, deadline: Deadline) -> Iterator[None]:
        """One of ``SESSIONS`` slots for commands, for the block.

        Raises DeadlineError when none becomes free in time.
        """
        if not self._commands.acquire(timeout=timeout_of(deadline)):
            words = f"{SESSIONS} other commands ran there for {deadline.seconds:g} s"
            raise DeadlineError(action, words)
        try:
            yield
        finally:
            self._commands.release()

    def take(self) -> WinrmConnection:
        """The idle connection, which may have died, or a new one."""
        with self._lock:
            return self._idle.pop() if self._idle else self.new()

    def new(self) -> WinrmConnection:
        """A new connection, opened by its first request."""
        return WinrmConnection(self._reach, self._jump)

    def give(self, connection: WinrmConnection) -> None:
        """Keep a connection for the next command; close it if it is broken or not needed."""
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
    """Make the session use only this connection."""
    from requests.adapters import HTTPAdapter  # noqa: PLC0415  slow to import
    from urllib3 import HTTPSConnectionPool  # noqa: PLC0415  the same
    from urllib3.connection import HTTPSConnection  # noqa: PLC0415  the same

    class PinnedConnection(HTTPSConnection):
        def connect(self) -> None:
            self.sock, self.is_verified = own.connect(), True

    class ConnectionPool(HTTPSConnectionPool):
        ConnectionCls = PinnedConnection

    class Adapter(HTTPAdapter):
        def init_poolmanager(self, *settings: Any, **more: Any) -> None:
            super().init_poolmanager(*settings, **more)
            self.poolmanager.pool_classes_by_scheme = {"https": ConnectionPool}

    session.trust_env = False  # no proxy, no credentials from the environment
    session.mount(url, Adapter(pool_connections=1, pool_maxsize=1, max_retries=0))


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The exception and the causes it wraps; urllib3 stores the cause among the arguments."""
    yield error
    for cause in (*error.args, getattr(error, "reason", None)):
        if isinstance(cause, BaseException):
            yield from _chain(cause)
            return


UTF8 = 65001
"""Code page of the command's output."""
IDLE = "PT300S"
"""The service deletes a lost shell after this long without requests."""
AWAY_SECONDS = 60.0
"""How long to retry while the service does not answer and a command runs."""
AGAIN_SECONDS = 0.25
CLEAN_SECONDS = 5.0
"""For ending the command and its shell, even after the deadline."""
_STUCK_SECONDS = 10.0
"""How long after its deadline a call may stay inside pywinrm before it is aborted."""


class WinrmCommand:
    """A command on a Windows machine; run it once.

    ``pool``: the connections to the machine. ``action``: for messages. ``deadline``: for everything
    except the final clean-up. ``out``: gets standard output in pieces.
    """

    def __init__(
        self,
        pool: WinrmPool,
        action: str,
        deadline: Deadline,
        out: Callable[[bytes], object],
    ) -> None:
        self._pool, self._doing, self._deadline, self._out = pool, action, deadline, out
        self.err = bytearray()
        """Its standard error so far."""
        self._connection = pool.take()
        self._shell = self._command = ""
        self._last = b""
        self._gap = False

    def run(self, program: str, arguments: str) -> int:
        """Run the command; returns its exit code. It is never started twice.

        Raises DeadlineError when it does not finish in time; it is killed, unless the message says
        otherwise. Raises ConnectionLostError when the connection was lost before it was known to
        have started, or for too long while it ran, or with part of its output. Raises BrokenError
        as :meth:`~lab.windows.winrm.WinrmConnection.request`.
        """
        late = Deadline(self._deadline.left() + _STUCK_SECONDS)
        try:
            with abort_after(late, lambda: self._connection.abort()):  # noqa: PLW0108  it is replaced
                self._begin(program, arguments)
                code = self._receive_all()
        except DeadlineError as error:
            ended = self._clean()
            if not self._command:
                raise
            raise timeout_error(self._doing, self._deadline, self._last, ended=ended) from error
        except BaseException:
            self._clean()
            raise
        self._clean()
        return code

    def _begin(self, program: str, arguments: str) -> None:
        self._shell = self._ask(
            lambda connection: connection.open_shell(codepage=UTF8, idle_timeout=IDLE), repeat=True
        )
        try:
            self._command = self._ask(
                lambda connection: connection.run_command(
                    self._shell,
                    program,
                    (arguments,) if arguments else (),
                    console_mode_stdin=False,
                    skip_cmd_shell=True,
                ),
                repeat=False,
            )
        except ReplyLostError as error:
            words = f"{error.happened}; the command may have started"
            raise ConnectionLostError(self._doing, words, error.hint) from error
        with suppress(SoapFaultError, ReplyLostError):  # it may already have exited
            self._ask(
                lambda connection: connection.send_command_input(
                    self._shell, self._command, b"", end=True
                ),
                repeat=True,
            )

    def _ask(self, call: Callable[[Client], T], *, repeat: bool) -> T:
        """Make a request; once more if nothing was sent or repeating is harmless."""
        for again in (True, False):
            try:
                return self._connection.request(self._doing, self._deadline, call)
            except OperationTimeoutError as error:
                raise BrokenError(self._doing, "the service timed out") from error
            except (StaleError, ReplyLostError) as error:
                self._reconnect()
                if not again or not (repeat or isinstance(error, StaleError)):
                    raise
        raise AssertionError

    def _reconnect(self) -> None:
        self._connection.close()
        self._connection = self._pool.new()

    def _receive_all(self) -> int:
        away: Deadline | None = None
        code = None
        while code is None:
            if self._deadline.left() == 0.0:
                seconds = self._deadline.seconds
                raise DeadlineError(self._doing, f"not done within {seconds:g} s")
            try:
                code = self._receive()
                away = None
            except OperationTimeoutError:
                away = None
            except (UnreachableError, ReplyLostError) as error:
                self._gap |= isinstance(error, ReplyLostError) and not error.clean
                away = self._retry_within(away, error)
        if self._gap:
            raise ConnectionLostError(
                self._doing,
                f"it has ended with exit code {code}, but the connection broke in the meantime "
                "and part of its output may be lost",
                "check what it has done, then repeat",
            )
        return code

    def _receive(self) -> int | None:
        """One Receive: pass on its output; returns the exit code if the command has ended."""
        try:
            out, err, code, done = self._connection.request(
                self._doing,
                self._deadline,
                lambda connection: connection.get_command_output_raw(self._shell, self._command),
            )
        except SoapFaultError as error:
            if error.code not in UNKNOWN_SHELL:
                raise
            words = "the service no longer knows the command: it, or the machine, was restarted"
            raise ConnectionLostError(
                self._doing, words, "check what it has done, then repeat"
            ) from error
        if out or err:
            self._last = (out or err)[-200:]
            self._out(out)
            self.err += err
        return int(code) if done else None

    def _retry_within(
        self, away: Deadline | None, error: ConnectionLostError | UnreachableError
    ) -> Deadline:
        """Reconnect after a short pause, unless it has already taken too long."""
        away = away or Deadline(AWAY_SECONDS)
        if away.left() == 0.0:
            words = f"{error.happened}, and not back within {AWAY_SECONDS:g} s"
            raise ConnectionLostError(self._doing, words, error.hint) from error
        self._reconnect()
        if not isinstance(error, StaleError):
            time.sleep(min(AGAIN_SECONDS, self._deadline.left()))
        return away

    def _clean(self) -> bool:
        """End the command and delete its shell; returns True if the service confirmed it."""
        deadline = Deadline(CLEAN_SECONDS)
        if self._connection.broken:
            self._reconnect()
        try:
            signalled = not self._command or self._tidy(
                deadline, lambda connection: connection.cleanup_command(self._shell, self._command)
            )
            deleted = not self._shell or self._tidy(
                deadline,
                lambda connection: connection.close_shell(self._shell, close_session=False),
            )
        finally:
            self._pool.give(self._connection)
        return signalled or deleted

    def _tidy(self, deadline: Deadline, call: Callable[[Client], object]) -> bool:
        for _ in range(2):
            try:
                self._connection.request(self._doing, deadline, call)
            except SoapFaultError as error:
                return error.code in UNKNOWN_SHELL
            except (OperationTimeoutError, BrokenError):  # the earlier error counts more
                self._reconnect()
            else:
                return True
        return False
