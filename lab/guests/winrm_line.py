"""A WinRM client that is let in once: one connection, one request at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from lab._deadline import Deadline
from lab._errors import DeadlineError, LabError, PreflightError
from lab.guests.door import Door
from lab.guests.link import SESSIONS, patience
from lab.guests.winrm_dialling import Dial
from lab.guests.winrm_endpoint import Endpoint
from lab.guests.winrm_errors import (
    FaultError,
    QuietError,
    ReplyLostError,
    StaleError,
    meaning,
)

OPERATION_SECONDS = 20
"""The longest that the service is asked to wait before it says that there is nothing yet."""
ANSWER_SECONDS = 10.0
"""How much later than that its answer may come."""
_LEAST_SECONDS = 1
"""WinRM counts in whole seconds."""

T = TypeVar("T")
Protocol = Any
"""pywinrm's; it has no annotations that mypy sees."""


class Line:
    """One connection to the service. Not for several threads at once, but for :meth:`cut`."""

    def __init__(self, endpoint: Endpoint, jump: Door | None) -> None:
        self._endpoint = endpoint
        self._dial = Dial(endpoint, jump)
        self._client: Protocol = None
        self._ready = False
        self.broken = False
        """Whether it is of no more use."""

    def ask(
        self,
        doing: str,
        deadline: Deadline,
        call: Callable[[Protocol], T],
        wait: int = OPERATION_SECONDS,
    ) -> T:
        """Make one request of the service, which may take ``wait`` seconds for it.

        Raises
        ------
        QuietError
            When the service's own time for it has passed.
        FaultError
            When the service refused.
        StaleError, UnreachableError
            When nothing was sent.
        ReplyLostError
            When something was sent and no answer came.
        CertificateError, PasswordError, HostKeyError
            When trying again is no cure.
        DeadlineError, BrokenError
            As the words say.

        """
        self._dial.doing, self._dial.deadline = doing, deadline
        if self.broken:
            raise StaleError(doing, "the connection had ended meanwhile")
        try:
            if not self._ready:
                self._open(doing, deadline)
            self._allow(deadline, wait)
            return call(self._client)
        except LabError:
            self.broken = True
            raise
        except Exception as error:
            raise self._meant(doing, deadline, error) from error

    def cut(self) -> None:
        """Break it off, from any thread: whoever waits is told that it is lost."""
        self._dial.cut()

    def close(self) -> None:
        """Close the connection. Safe to repeat."""
        self.broken = True
        if self._client is not None:
            with suppress(Exception):  # a connection that has gone takes no more
                self._client.transport.close_session()
        self._dial.close()

    def _meant(self, doing: str, deadline: Deadline, error: Exception) -> Exception:
        found = meaning(doing, self._endpoint, error, deadline)
        if isinstance(found, ReplyLostError) and self._dial.jumps:
            found.clean = False  # the host in between may have lost it
        self.broken = not isinstance(found, (QuietError, FaultError))
        return found

    def _open(self, doing: str, deadline: Deadline) -> None:
        try:
            from winrm.protocol import Protocol as Client  # noqa: PLC0415  slow to import
        except ImportError as error:
            words = "pywinrm, which speaks WinRM, is not installed"
            raise PreflightError(doing, words, "pip install 'hybridlab[windows]'") from error
        from lab.guests.winrm_http import mount  # noqa: PLC0415  slow to import

        found = self._endpoint
        self._client = Client(
            found.url,
            transport="ntlm",
            username=found.user,
            password=found.password,
            server_cert_validation="ignore",  # by authorities; the pin is checked instead
            message_encryption="never",  # as long as there is nothing to seal with
            proxy=None,
        )
        session = self._client.transport.build_session()
        mount(session, found, self._dial)
        if not found.certificate:
            self._allow(deadline, OPERATION_SECONDS)
            self._client.transport.setup_encryption(session)
        self._ready = True

    def _allow(self, deadline: Deadline, longest: int) -> None:
        """Give the next request the time that is left."""
        left = patience(deadline)
        wait = max(_LEAST_SECONDS, int(min(longest, left - 0.5)))
        self._client.operation_timeout_sec = wait
        self._client.transport.read_timeout_sec = min(wait + ANSWER_SECONDS, left)


class Trunk:
    """The connections to one service: as many as there are requests at once, kept for the next.

    Parameters
    ----------
    endpoint
        The service.
    jump
        The SSH host to go through; None for the network of this machine.

    """

    def __init__(self, endpoint: Endpoint, jump: Door | None) -> None:
        self.endpoint, self._jump = endpoint, jump
        self._lock = threading.Lock()
        self._idle: list[Line] = []
        self._room = threading.BoundedSemaphore(SESSIONS)

    def enter(self, doing: str, deadline: Deadline) -> None:
        """Wait until fewer than ``SESSIONS`` commands run; then one more does, until `leave`.

        Raises
        ------
        DeadlineError
            When they did not end in time.

        """
        if not self._room.acquire(timeout=patience(deadline)):
            words = f"{SESSIONS} other commands ran there for {deadline.seconds:g} s"
            raise DeadlineError(doing, words)

    def leave(self) -> None:
        """One command less."""
        self._room.release()

    def take(self) -> Line:
        """A connection that nobody uses; perhaps one that has died unseen."""
        with self._lock:
            return self._idle.pop() if self._idle else self.fresh()

    def fresh(self) -> Line:
        """A connection that is not there yet."""
        return Line(self.endpoint, self._jump)

    def give(self, line: Line) -> None:
        """Keep it for the next, or close it where it is of no more use."""
        if not line.broken:
            with self._lock:
                if not self._idle:
                    self._idle.append(line)
                    return
        line.close()

    def close(self) -> None:
        """Close what nobody uses."""
        with self._lock:
            idle, self._idle = self._idle, []
        for line in idle:
            line.close()
