"""The one TCP connection of a WinRM client: straight, or through an SSH host."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from lab._deadline import Deadline
from lab.guests.door import Door
from lab.guests.jumps import JUMPS
from lab.guests.link import patience
from lab.guests.sockets import CONNECT_SECONDS, reached
from lab.guests.winrm_endpoint import Endpoint
from lab.guests.winrm_errors import StaleError

if TYPE_CHECKING:
    import paramiko

_PIECE = 1 << 16
_END_SECONDS = 5.0


class Dial:
    """Connects once, and never again: what NTLM has let in is this connection and no other.

    Parameters
    ----------
    endpoint
        Where to.
    jump
        The SSH host to go through; None for the network of this machine.

    """

    def __init__(self, endpoint: Endpoint, jump: Door | None) -> None:
        self._endpoint, self._jump = endpoint, jump
        self.doing, self.deadline = "", Deadline(0)
        """Of the request that is under way."""
        self._passage: _Passage | None = None
        self._dialled = False
        self._socket: socket.socket | None = None

    @property
    def jumps(self) -> bool:
        """Whether it goes through another host."""
        return self._jump is not None

    def __call__(self) -> socket.socket:
        """Connect.

        Raises
        ------
        StaleError
            When it was connected before: that connection has ended, and nothing was sent.
        UnreachableError, HostKeyError, DeadlineError
            With how far it went.

        """
        if self._dialled:
            raise StaleError(self.doing, "the connection had ended meanwhile")
        self._dialled = True
        made = self._through(self._jump) if self._jump else self._direct()
        made.settimeout(min(patience(self.deadline), CONNECT_SECONDS))
        self._socket = made
        return made

    def holds(self, sock: socket.socket) -> None:
        """Take note of what the connection has become (TLS)."""
        self._socket = sock

    def cut(self) -> None:
        """End whatever waits for it, at once; from any thread."""
        if self._socket is not None:
            with suppress(OSError):
                # Of the plain socket: TLS's own would first say goodbye, and may wait for that.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection, and give back the way there. Safe to repeat."""
        if self._socket is not None:
            with suppress(OSError):
                self._socket.close()
            self._socket = None
        if self._passage:
            self._passage.close()
            self._passage = None

    def _direct(self) -> socket.socket:
        found = self._endpoint
        cure = f"see that the machine runs and that WinRM listens: nc -v {found.host} {found.port}"
        return reached(self.doing, found.host, found.port, self.deadline, cure)

    def _through(self, jump: Door) -> socket.socket:
        link = JUMPS.borrow(jump, self.deadline)
        try:
            address = (self._endpoint.host, self._endpoint.port)
            channel = link.channel(self.doing, "direct-tcpip", address, self.deadline)
        except BaseException:
            JUMPS.give_back(jump)
            raise
        self._passage = _Passage(channel, jump)
        return self._passage.near


class _Passage:
    """An SSH channel as a socket of this process: no port is opened for it."""

    def __init__(self, channel: paramiko.Channel, jump: Door) -> None:
        self._channel, self._jump = channel, jump
        self.near, self._far = socket.socketpair()
        channel.settimeout(None)
        self._threads = [
            threading.Thread(target=one, name=f"winrm-{word}", daemon=True)
            for word, one in (("there", self._there), ("back", self._back))
        ]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """End both directions, and give the way back. The near end is somebody else's."""
        with suppress(OSError):
            self._far.shutdown(socket.SHUT_RDWR)
        self._hang_up()
        for thread in self._threads:
            thread.join(_END_SECONDS)
        self._far.close()
        JUMPS.give_back(self._jump)

    def _there(self) -> None:
        with suppress(OSError, EOFError):
            while piece := self._far.recv(_PIECE):
                self._channel.sendall(piece)
        self._hang_up()

    def _back(self) -> None:
        with suppress(OSError, EOFError):
            while piece := self._channel.recv(_PIECE):
                self._far.sendall(piece)
        with suppress(OSError):
            self._far.shutdown(socket.SHUT_RDWR)

    def _hang_up(self) -> None:
        with suppress(OSError, EOFError):  # the link itself may have gone
            self._channel.close()
