"""SSH connections, opened on first use: shared jump hosts, sessions and forwarded ports."""

from __future__ import annotations

import select
import socket
import socketserver
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TypeVar

from lab._deadline import Deadline
from lab._errors import BrokenError, DeadlineError
from lab.machines.ssh.transport import SSHServer, SSHTransport, abort_after, connect, timeout_of
from lab.shells.shell import ConnectionLostError

if TYPE_CHECKING:
    import paramiko


T = TypeVar("T")


class JumpHosts:
    """Connections to jump hosts: one per host, shared by all machines behind it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._shared: dict[SSHServer, Connection] = {}
        self._users: Counter[SSHServer] = Counter()

    def borrow(self, server: SSHServer, deadline: Deadline) -> SSHTransport:
        """An active transport to that host; call ``give_back`` afterwards.

        Raises BrokenError as :func:`~lab.machines.ssh.transport.connect`.
        """
        with self._lock:
            shared = self._shared.setdefault(server, Connection((server,)))
            self._users[server] += 1
        try:
            return shared.transport(f"connecting to '{server.name}'", deadline)
        except BaseException:
            self.give_back(server)
            raise

    def give_back(self, server: SSHServer) -> None:
        """Release one use; the last one closes the connection."""
        with self._lock:
            self._users[server] -= 1
            if self._users[server]:
                return
            shared = self._shared.pop(server)
        shared.close()


JUMPS = JumpHosts()
"""The jump hosts of this process."""
_STUCK_SECONDS = 5.0
"""How long after its deadline a call may stay inside paramiko before the transport is closed: by
then the peer is not reading."""


class Connection:
    """A connection that is opened on first use, and reopened if it has died.

    ``way``: the servers to go through; the machine's own is last.
    """

    def __init__(self, way: tuple[SSHServer, ...]) -> None:
        self._way = way
        self._lock = threading.Lock()
        self._link: SSHTransport | None = None

    @contextmanager
    def session(
        self, action: str, deadline: Deadline
    ) -> Iterator[tuple[SSHTransport, paramiko.Channel]]:
        """A new session for the block, which is aborted if it overruns its deadline."""
        link, channel = self.open_session(action, deadline)
        try:
            with abort_after(Deadline(deadline.left() + _STUCK_SECONDS), link.transport.close):
                yield link, channel
        finally:
            link.done(channel)

    def open_session(
        self, action: str, deadline: Deadline
    ) -> tuple[SSHTransport, paramiko.Channel]:
        """A new session channel; pass it to ``done`` of its transport afterwards.

        Raises BrokenError as :func:`~lab.machines.ssh.transport.connect`.
        """
        return self._with_link(action, deadline, lambda link: (link, link.open(action, deadline)))

    def dial(self, action: str, address: tuple[str, int], deadline: Deadline) -> paramiko.Channel:
        """A channel to an address that the machine can reach; the caller closes it.

        Raises BrokenError as :meth:`~lab.machines.ssh.transport.SSHTransport.channel`, and as for a
        session.
        """
        return self._with_link(
            action, deadline, lambda link: link.channel(action, "direct-tcpip", address, deadline)
        )

    def close(self) -> None:
        """Close the connection; current users get ConnectionLostError, the next use reconnects."""
        with self._lock:
            self._drop()

    def _with_link(self, action: str, deadline: Deadline, use: Callable[[SSHTransport], T]) -> T:
        """Call ``use`` with the transport; replace dead transports, also the jump host's."""
        for _ in self._way:
            with suppress(ConnectionLostError):
                return use(self.transport(action, deadline))
        return use(self.transport(action, deadline))

    def transport(self, action: str, deadline: Deadline) -> SSHTransport:
        """An active transport, opened if necessary.

        Raises BrokenError as :func:`~lab.machines.ssh.transport.connect`.
        """
        if not self._lock.acquire(timeout=timeout_of(deadline)):
            words = f"another thread was still connecting after {deadline.seconds:g} s"
            raise DeadlineError(action, words)
        try:
            if self._link is not None and not self._link.alive():
                self._drop()
            if self._link is None:
                self._link = self._connect(deadline)
            return self._link
        finally:
            self._lock.release()

    def _connect(self, deadline: Deadline) -> SSHTransport:
        if len(self._way) == 1:
            return connect(self._way[-1], None, deadline)
        jump = JUMPS.borrow(self._way[0], deadline)
        try:
            return connect(self._way[-1], jump, deadline)
        except BaseException:
            JUMPS.give_back(self._way[0])
            raise

    def _drop(self) -> None:
        if self._link is None:
            return
        self._link.close()
        self._link = None
        if len(self._way) > 1:
            JUMPS.give_back(self._way[0])


_PIECE = 1 << 16


class SessionStreams:
    """A command on a channel; see :class:`~lab.shells.shell.CommandStreams`."""

    def __init__(self, action: str, link: SSHTransport, channel: paramiko.Channel) -> None:
        self._doing, self._link, self._channel = action, link, channel
        channel.settimeout(0.0)
        self._poll = select.poll()
        self._poll.register(channel.fileno(), select.POLLIN)

    def give(self, data: memoryview) -> int:
        """Send as much as fits the channel's window."""
        if not self._channel.send_ready():
            return 0
        try:
            sent = self._channel.send(bytes(data[:_PIECE]))
        except TimeoutError:
            return 0
        except (OSError, EOFError):  # it no longer reads; its exit code tells how it ended
            sent = 0
        return sent or len(data)

    def take(self) -> tuple[bytes, bytes]:
        """Output received since the last call."""
        channel = self._channel
        out = channel.recv(_PIECE) if channel.recv_ready() else b""
        err = channel.recv_stderr(_PIECE) if channel.recv_stderr_ready() else b""
        return out, err

    def closed(self) -> bool:
        """True if the peer has sent everything."""
        return bool(self._channel.eof_received) or self._channel.closed

    def code(self) -> int | None:
        """The exit code, once the peer has sent it."""
        if not self._channel.exit_status_ready():
            return None
        code = self._channel.exit_status
        if code >= 0:
            return code
        if self._link.ends():
            raise self._link.lost(self._doing)
        raise BrokenError(
            self._doing, "it ended without an exit code: a signal killed it, or its sshd ended", ""
        )

    def wait(self, seconds: float) -> None:
        """Wait for output, or once that has ended for the exit code."""
        if self.closed():
            self._channel.status_event.wait(seconds)
        else:
            self._poll.poll(seconds * 1000)


def request(
    action: str,
    link: SSHTransport,
    channel: paramiko.Channel,
    ask: Callable[[paramiko.Channel], None],
    deadline: Deadline,
) -> None:
    """Have the server start a command or a subsystem.

    Raises DeadlineError when it does not answer in time. Raises ConnectionLostError when the
    connection broke. Raises BrokenError when the server refused.
    """
    from paramiko import SSHException  # noqa: PLC0415  slow to import

    try:
        with abort_after(deadline, channel.close):
            ask(channel)
    except (SSHException, EOFError, OSError) as error:
        if not link.alive():
            raise link.lost(action) from error
        if deadline.left() == 0.0:
            words = f"'{link.server.name}' did not start it within {deadline.seconds:g} s"
            raise DeadlineError(action, words) from error
        raise BrokenError(action, f"'{link.server.name}' refused to start it ({error})") from error


_END_SECONDS = 5.0
_LOOK_SECONDS = 0.05
"""Poll interval of a forwarded port for its shutdown."""


class Relay:
    """Copies bytes between a socket and an SSH channel, both ways, until the channel ends."""

    def __init__(self, near: socket.socket, channel: paramiko.Channel) -> None:
        self._near, self._channel = near, channel
        channel.settimeout(None)
        ways = (
            (near.recv, channel.sendall, channel.shutdown_write),
            (channel.recv, near.sendall, self._end),
        )
        self._threads = [threading.Thread(target=_pump, args=way, daemon=True) for way in ways]
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        """Wait until both directions have ended."""
        for thread in self._threads:
            thread.join()

    def close(self) -> None:
        """End both directions, and close both ends."""
        self._end()
        for thread in self._threads:
            thread.join(_END_SECONDS)
        self._near.close()

    def _end(self) -> None:
        with suppress(OSError, EOFError):  # the transport may be closed
            self._channel.close()
        with suppress(OSError):
            self._near.shutdown(socket.SHUT_RDWR)


class _PortServer(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 128


@contextmanager
def forward_port(dial: Callable[[], paramiko.Channel]) -> Iterator[int]:
    """A local port on the loopback address for the block, as with ``ssh -L``.

    Each connection to it gets a channel from ``dial``; if that fails, it is closed at once.
    """
    relays: set[Relay] = set()
    ending = threading.Event()

    class Forward(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            try:
                relay = Relay(self.request, dial())
            except Exception:  # noqa: BLE001  the caller of the port sees the connection close
                return
            relays.add(relay)
            if not ending.is_set():
                relay.join()
            relay.close()
            relays.discard(relay)

    with _PortServer(("127.0.0.1", 0), Forward) as server:
        threading.Thread(target=server.serve_forever, args=(_LOOK_SECONDS,), daemon=True).start()
        try:
            yield int(server.server_address[1])
        finally:
            ending.set()
            server.shutdown()
            for relay in tuple(relays):
                relay.close()


def _pump(
    take: Callable[[int], bytes], give: Callable[[bytes], object], ended: Callable[[], object]
) -> None:
    """Copy bytes one way until the end of the stream."""
    with suppress(OSError, EOFError):
        while piece := take(_PIECE):
            give(piece)
    with suppress(OSError, EOFError):
        ended()
