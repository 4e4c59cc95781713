"""One command over WinRM, from its shell's creation to its deletion, whatever happens between."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

from lab._deadline import Deadline
from lab._errors import BrokenError, DeadlineError
from lab.remote.command import timeout_error
from lab.remote.shell import ConnectionLostError, UnreachableError
from lab.remote.transport import abort_after
from lab.remote.windows_commands import Started
from lab.remote.winrm_connection import (
    UNKNOWN_SHELL,
    Client,
    FaultError,
    OperationTimeoutError,
    ReplyLostError,
    StaleError,
    WinrmConnection,
    WinrmPool,
)

PIECE = 65_536
"""Bytes of input in one message: 88 kB of it, and the service takes 150 kB and more
(MaxEnvelopeSizekb)."""
SEND_SECONDS = 1_800
"""How long the service may wait until the command reads a piece (MaxTimeoutms)."""
_END_SECONDS = 5.0


class InputSender:
    """Sends a command its input on a connection of its own: it may write before it reads."""

    def __init__(self, pool: WinrmPool, doing: str, names: tuple[str, str]) -> None:
        self._connection: WinrmConnection = pool.new()
        self._doing, self._names = doing, names
        self.lost = ""
        """Why input was lost; empty while it is not, or where the command reads no more."""
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, content: bytes, deadline: Deadline) -> None:
        """Begin, in a thread."""
        self._thread = threading.Thread(
            target=self._feed, args=(content, deadline), name="winrm-input", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Send no more."""
        self._over.set()
        self._connection.abort()
        if self._thread:
            self._thread.join(_END_SECONDS)
        self._connection.close()

    def _feed(self, content: bytes, deadline: Deadline) -> None:
        """Send piece after piece, none of them twice.

        Where one is refused the command reads no more; its exit code says how it ended.
        """
        shell, command = self._names
        view = memoryview(content)
        while view and not self._over.is_set():
            piece, view = bytes(view[:PIECE]), view[PIECE:]
            give = partial(_give, shell, command, piece, end=not view)
            try:
                self._connection.request(self._doing, deadline, give, wait=SEND_SECONDS)
            except FaultError:
                return
            except OperationTimeoutError:
                self.lost = "the command did not read it in time"
                return
            except BrokenError as error:
                self.lost = error.happened
                return


def _give(shell: str, command: str, piece: bytes, client: Client, *, end: bool) -> None:
    client.send_command_input(shell, command, piece, end=end)


T = TypeVar("T")

UTF8 = 65001
"""Code page of what the command says."""
IDLE = "PT300S"
"""The service deletes a shell without requests after so long: a lost one."""
AWAY_SECONDS = 60.0
"""How long to keep asking a service that does not answer for a running command."""
AGAIN_SECONDS = 0.25
CLEAN_SECONDS = 5.0
"""For ending the command and its shell, after the deadline too."""
_STUCK_SECONDS = 10.0
"""How long after its deadline a call may still be inside pywinrm before it is aborted."""


class WinrmCommand:
    """A command on a Windows machine. To be run once.

    Parameters
    ----------
    pool
        The connections to the machine.
    doing
        For messages.
    deadline
        For all of it but the last cleaning up.
    heard
        Gets each piece of standard output and of standard error; either may be empty.

    """

    def __init__(
        self,
        pool: WinrmPool,
        doing: str,
        deadline: Deadline,
        heard: Callable[[bytes, bytes], object],
    ) -> None:
        self._pool, self._doing, self._deadline, self._heard = pool, doing, deadline, heard
        self._connection = pool.take()
        self._shell = self._command = ""
        self._sender: InputSender | None = None
        self._last = b""
        self._gap = False

    def run(self, started: Started, stdin: bytes) -> int:
        """Run it to its end; its exit code. It is never begun twice.

        Raises
        ------
        DeadlineError
            When it has not ended in time; it was ended then, or the message says otherwise.
        ConnectionLostError
            When the connection was lost before it was known to have begun, or too long while it
            ran, or with a part of what it said.
        BrokenError
            As :meth:`~lab.remote.winrm_connection.WinrmConnection.request` does.

        """
        cleaned = False
        try:
            with abort_after(Deadline(self._deadline.left() + _STUCK_SECONDS), self._cut):
                self._begin(started, stdin)
                return self._receive_all()
        except DeadlineError as error:
            cleaned = True
            ended = self._clean()
            if not self._command:
                raise
            raise timeout_error(self._doing, self._deadline, self._last, ended=ended) from error
        finally:
            if not cleaned:
                self._clean()

    def _begin(self, started: Started, stdin: bytes) -> None:
        self._shell = self._ask(
            lambda one: one.open_shell(codepage=UTF8, idle_timeout=IDLE), repeat=True
        )
        arguments = (started.arguments,) if started.arguments else ()
        try:
            self._command = self._ask(
                lambda one: one.run_command(
                    self._shell,
                    started.program,
                    arguments,
                    console_mode_stdin=False,
                    skip_cmd_shell=True,
                ),
                repeat=False,
            )
        except ReplyLostError as error:
            words = f"{error.happened}; whether the command was begun is not known"
            raise ConnectionLostError(self._doing, words, error.hint) from error
        if stdin:
            self._sender = InputSender(self._pool, self._doing, (self._shell, self._command))
            self._sender.start(stdin, self._deadline)
            return
        with suppress(FaultError, ReplyLostError):  # it may have ended, and reads nothing then
            self._ask(
                lambda one: one.send_command_input(self._shell, self._command, b"", end=True),
                repeat=True,
            )

    def _ask(self, call: Callable[[Client], T], *, repeat: bool) -> T:
        """Ask once; once more where nothing was sent, or where repeating does no harm."""
        for again in (True, False):
            try:
                return self._connection.request(self._doing, self._deadline, call)
            except OperationTimeoutError as error:
                raise BrokenError(self._doing, "the service did not do it in its time") from error
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
        while True:
            self._check()
            try:
                code = self._receive()
            except OperationTimeoutError:
                away = None
                continue
            except UnreachableError as error:  # nothing was sent
                away = self._retry_within(away, error)
            except ReplyLostError as error:
                self._gap = self._gap or not error.clean
                away = self._retry_within(away, error)
            else:
                away = None
                if code is not None:
                    return self._ended(code)

    def _check(self) -> None:
        if self._deadline.left() == 0.0:
            raise DeadlineError(self._doing, f"not done within {self._deadline.seconds:g} s")
        if self._sender and self._sender.lost:
            raise ConnectionLostError(
                self._doing,
                f"a part of its input was lost: {self._sender.lost}",
                "see what it has done, then repeat; send what is large in a file",
            )

    def _receive(self) -> int | None:
        """One Receive: pass on its output; the exit code, if the command has ended."""
        try:
            out, err, code, done = self._connection.request(
                self._doing,
                self._deadline,
                lambda one: one.get_command_output_raw(self._shell, self._command),
            )
        except FaultError as error:
            if error.code not in UNKNOWN_SHELL:
                raise
            words = "the service no longer knows the command: it, or the machine, was restarted"
            raise ConnectionLostError(
                self._doing, words, "see what it has done, then repeat"
            ) from error
        if out or err:
            self._last = (out or err)[-200:]
            self._heard(out, err)
        return int(code) if done else None

    def _retry_within(
        self, away: Deadline | None, error: ConnectionLostError | UnreachableError
    ) -> Deadline:
        """Continue with a new connection after a moment, unless it took too long already."""
        stale = isinstance(error, StaleError)
        away = away or Deadline(AWAY_SECONDS)
        if away.left() == 0.0:
            words = f"{error.happened}, and not back within {AWAY_SECONDS:g} s"
            raise ConnectionLostError(self._doing, words, error.hint) from error
        self._reconnect()
        if not stale:
            time.sleep(min(AGAIN_SECONDS, self._deadline.left()))
        return away

    def _ended(self, code: int) -> int:
        if self._gap:
            raise ConnectionLostError(
                self._doing,
                f"it has ended with exit code {code}, but the connection broke meanwhile and a "
                "part of what it said may be lost",
                "see what it has done, then repeat",
            )
        return code

    def _cut(self) -> None:
        self._connection.abort()

    def _clean(self) -> bool:
        """End the command and delete its shell; whether the service has said so."""
        deadline = Deadline(CLEAN_SECONDS)
        if self._sender:
            self._sender.stop()
        if self._connection.broken:
            self._reconnect()
        try:
            signalled = not self._command or self._tidy(
                deadline, lambda one: one.cleanup_command(self._shell, self._command)
            )
            deleted = not self._shell or self._tidy(
                deadline, lambda one: one.close_shell(self._shell, close_session=False)
            )
        finally:
            self._pool.give(self._connection)
        return signalled or deleted

    def _tidy(self, deadline: Deadline, call: Callable[[Client], object]) -> bool:
        for _ in range(2):
            try:
                self._connection.request(self._doing, deadline, call)
            except FaultError as error:
                return error.code in UNKNOWN_SHELL
            except (OperationTimeoutError, BrokenError):  # what went before counts more than this
                self._reconnect()
            else:
                return True
        return False
