"""Waiting for a Windows guest: tries that never lock its Administrator out."""

from __future__ import annotations

from collections.abc import Callable

from lab._deadline import Deadline
from lab._errors import BrokenError
from lab.guests.identity import KeyFileError
from lab.guests.link import HostKeyError
from lab.guests.ssh import TRY_SECONDS, WHOLE_SECONDS
from lab.guests.winrm_errors import CertificateError, PasswordError

REFUSALS = 3
"""Passwords refused in a row before waiting is given up: while a guest starts, one may be for a
reason that passes. Windows locks Administrator after 10 within 10 minutes (Microsoft KB5020282)."""
REFUSED_SECONDS = 15.0
"""Between them."""


class Tries:
    """One try after another, and what the last whole one has met.

    Parameters
    ----------
    attempt
        One try, within a deadline of its own: what it has met, or nothing if all is well.

    """

    def __init__(self, attempt: Callable[[Deadline], str]) -> None:
        self._attempt = attempt
        self._met: str | None = None
        self._refused = 0
        self._pause = Deadline(0)

    def wait(self, doing: str, deadline: Deadline, every: float) -> None:
        """Try, every so many seconds, until all is well.

        Raises
        ------
        DeadlineError
            With what the last try has met.
        CertificateError, HostKeyError, KeyFileError
            At once.
        PasswordError
            After ``REFUSALS`` in a row.

        """
        deadline.wait(
            doing,
            lambda: self._look(deadline),
            until=lambda met: not met,
            every=every,
            cure="look at what its console says",
        )

    def _look(self, deadline: Deadline) -> str | None:
        if self._pause.left() > 0.0:
            return self._met
        own = Deadline(min(deadline.left(), TRY_SECONDS))
        met = self._tried(own)
        # A try that the end of the wait cuts off says less than the one before it.
        if not met or self._met is None or own.left() > 0.0 or own.seconds >= WHOLE_SECONDS:
            self._met = met
        return self._met

    def _tried(self, deadline: Deadline) -> str:
        try:
            met = self._attempt(deadline)
        except (CertificateError, HostKeyError, KeyFileError):
            raise
        except PasswordError as error:
            self._refused += 1
            if self._refused >= REFUSALS:
                raise
            self._pause = Deadline(REFUSED_SECONDS)
            return f"WinRM: {error.happened}"
        except BrokenError as error:
            return f"WinRM: {error.happened}"
        self._refused = 0
        return met
