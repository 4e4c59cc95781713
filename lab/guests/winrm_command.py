"""One command over WinRM, from its shell's creation to its deletion, whatever happens between."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from lab._deadline import Deadline
from lab._errors import BrokenError, DeadlineError
from lab.guests.command_line import Started
from lab.guests.conversation import overdue
from lab.guests.link import LostError, UnreachableError, watched
from lab.guests.winrm_errors import (
    FORGOTTEN,
    FaultError,
    QuietError,
    ReplyLostError,
    StaleError,
)
from lab.guests.winrm_input import Feeder
from lab.guests.winrm_line import Protocol, Trunk

T = TypeVar("T")

UTF8 = 65001
"""Code page of what the command says."""
IDLE = "PT300S"
"""After so long without a request the service deletes a shell itself: one that was lost."""
AWAY_SECONDS = 60.0
"""How long a service that does not answer is asked again for a command that runs there."""
AGAIN_SECONDS = 0.25
CLEAN_SECONDS = 5.0
"""For ending the command and its shell, after the deadline too."""
_STUCK_SECONDS = 10.0
"""How long after its deadline a call may still be inside the library before it is cut off."""


class WinrmCommand:
    """A command on a guest. To be run once.

    Parameters
    ----------
    trunk
        The connections to the guest.
    doing
        For messages.
    deadline
        For all of it but the last cleaning up.
    heard
        Told every piece of standard output and of standard error; either may be empty.

    """

    def __init__(
        self,
        trunk: Trunk,
        doing: str,
        deadline: Deadline,
        heard: Callable[[bytes, bytes], object],
    ) -> None:
        self._trunk, self._doing, self._deadline, self._heard = trunk, doing, deadline, heard
        self._line = trunk.take()
        self._shell = self._command = ""
        self._feeder: Feeder | None = None
        self._last = b""
        self._gap = False

    def run(self, started: Started, stdin: bytes) -> int:
        """Run it to its end; its exit code. It is never begun twice.

        Raises
        ------
        DeadlineError
            When it has not ended in time; it was ended then, or the message says otherwise.
        LostError
            When the connection was lost before it was known to have begun, or too long while it
            ran, or with a part of what it said.
        BrokenError
            As :meth:`~lab.guests.winrm_line.Line.ask` does.

        """
        cleaned = False
        try:
            with watched(Deadline(self._deadline.left() + _STUCK_SECONDS), self._cut):
                self._begin(started, stdin)
                return self._listened()
        except DeadlineError as error:
            cleaned = True
            ended = self._clean()
            if not self._command:
                raise
            raise overdue(self._doing, self._deadline, self._last, ended=ended) from error
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
            raise LostError(self._doing, words, error.cure) from error
        if stdin:
            self._feeder = Feeder(self._trunk, self._doing, (self._shell, self._command))
            self._feeder.start(stdin, self._deadline)
            return
        with suppress(FaultError, ReplyLostError):  # it may have ended, and reads nothing then
            self._ask(
                lambda one: one.send_command_input(self._shell, self._command, b"", end=True),
                repeat=True,
            )

    def _ask(self, call: Callable[[Protocol], T], *, repeat: bool) -> T:
        """Ask once; once more where nothing was sent, or where repeating does no harm."""
        for again in (True, False):
            try:
                return self._line.ask(self._doing, self._deadline, call)
            except QuietError as error:
                raise BrokenError(self._doing, "the service did not do it in its time") from error
            except (StaleError, ReplyLostError) as error:
                self._anew()
                if not again or not (repeat or isinstance(error, StaleError)):
                    raise
        raise AssertionError

    def _anew(self) -> None:
        self._line.close()
        self._line = self._trunk.fresh()

    def _listened(self) -> int:
        away: Deadline | None = None
        while True:
            self._look()
            try:
                code = self._received()
            except QuietError:
                away = None
                continue
            except UnreachableError as error:  # nothing was sent
                away = self._patient(away, error)
            except ReplyLostError as error:
                self._gap = self._gap or not error.clean
                away = self._patient(away, error)
            else:
                away = None
                if code is not None:
                    return self._ended(code)

    def _look(self) -> None:
        if self._deadline.left() == 0.0:
            raise DeadlineError(self._doing, f"not done within {self._deadline.seconds:g} s")
        if self._feeder and self._feeder.lost:
            raise LostError(
                self._doing,
                f"a part of its input was lost: {self._feeder.lost}",
                "see what it has done, then repeat; send what is large in a file",
            )

    def _received(self) -> int | None:
        """One Receive: its output is told; the exit code, if it has ended."""
        try:
            out, err, code, done = self._line.ask(
                self._doing,
                self._deadline,
                lambda one: one.get_command_output_raw(self._shell, self._command),
            )
        except FaultError as error:
            if error.code not in FORGOTTEN:
                raise
            words = "the service no longer knows the command: it, or the machine, was restarted"
            raise LostError(self._doing, words, "see what it has done, then repeat") from error
        if out or err:
            self._last = (out or err)[-200:]
            self._heard(out, err)
        return int(code) if done else None

    def _patient(self, away: Deadline | None, error: LostError | UnreachableError) -> Deadline:
        """Go on with a fresh connection after a moment, unless it took too long already."""
        stale = isinstance(error, StaleError)
        away = away or Deadline(AWAY_SECONDS)
        if away.left() == 0.0:
            words = f"{error.happened}, and not back within {AWAY_SECONDS:g} s"
            raise LostError(self._doing, words, error.cure) from error
        self._anew()
        if not stale:
            time.sleep(min(AGAIN_SECONDS, self._deadline.left()))
        return away

    def _ended(self, code: int) -> int:
        if self._gap:
            raise LostError(
                self._doing,
                f"it has ended with exit code {code}, but the connection broke meanwhile and a "
                "part of what it said may be lost",
                "see what it has done, then repeat",
            )
        return code

    def _cut(self) -> None:
        self._line.cut()

    def _clean(self) -> bool:
        """End the command and delete its shell; whether the service has said so."""
        deadline = Deadline(CLEAN_SECONDS)
        if self._feeder:
            self._feeder.stop()
        if self._line.broken:
            self._anew()
        try:
            signalled = not self._command or self._tidy(
                deadline, lambda one: one.cleanup_command(self._shell, self._command)
            )
            deleted = not self._shell or self._tidy(
                deadline, lambda one: one.close_shell(self._shell, close_session=False)
            )
        finally:
            self._trunk.give(self._line)
        return signalled or deleted

    def _tidy(self, deadline: Deadline, call: Callable[[Protocol], object]) -> bool:
        for _ in range(2):
            try:
                self._line.ask(self._doing, deadline, call)
            except FaultError as error:
                return error.code in FORGOTTEN
            except (QuietError, BrokenError):  # what went before counts more than this
                self._anew()
            else:
                return True
        return False
