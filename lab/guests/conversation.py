"""Talking to a command until it ends, on whatever carries it: input in, both streams out.

One thread does all of it, in turns that never block for long, so that neither side can wait for
the other with its pipes full, and the deadline is always seen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from lab._deadline import Deadline
from lab._errors import DeadlineError

GRACE_SECONDS = 1.0
"""How long output may be silent after the command itself has ended, if something that it left
running in the background still has it open."""
LOOK_SECONDS = 0.25
"""How often an end that nothing announces is looked for."""
GIVE_SECONDS = 0.01
"""How often input is offered that was not taken."""


class Ends(Protocol):
    """Our side of a command's three streams, and what is known of its end."""

    def give(self, data: memoryview) -> int:
        """Give it some of its input: how many bytes it takes now, all if it reads no more."""

    def take(self) -> tuple[bytes, bytes]:
        """What it has written to standard output and error since, possibly nothing."""

    def closed(self) -> bool:
        """Whether both of its output streams have ended; what was written can still be taken."""

    def code(self) -> int | None:
        """Its exit code; None as long as it runs.

        Raises
        ------
        BrokenError
            When it will never be known.

        """

    def wait(self, seconds: float) -> None:
        """Wait until there is output or an end, but no longer than that."""


class Lines:
    """Bytes in pieces, told as lines; each with its newline, the last perhaps without."""

    def __init__(self, heard: Callable[[bytes], None]) -> None:
        self._heard = heard
        self._begun = bytearray()

    def __call__(self, piece: bytes) -> None:
        """Take a piece, and tell every line that it completes."""
        *whole, rest = piece.split(b"\n")
        for line in whole:
            begun, self._begun = bytes(self._begun), bytearray()
            self._heard(begun + line + b"\n")
        self._begun += rest

    def end(self) -> None:
        """Tell what came after the last newline."""
        if self._begun:
            self._heard(bytes(self._begun))
            self._begun.clear()


def converse(
    doing: str,
    ends: Ends,
    stdin: bytes,
    deadline: Deadline,
    heard: Callable[[bytes, bytes], object],
) -> int:
    """Talk to the command until it ends; its exit code.

    ``heard`` is told every piece of standard output and of standard error, either may be empty.

    Raises
    ------
    DeadlineError
        When it has not ended in time, with what it said last.
    BrokenError
        As the ends raise it.

    """
    left = memoryview(stdin)
    last = b""
    quiet = Deadline(GRACE_SECONDS)
    while True:
        code, closed = ends.code(), ends.closed()  # before the last look at the streams
        if code is None and left:
            left = left[ends.give(left) :]
        said, complained = ends.take()
        if said or complained:
            last = (said or complained)[-200:]
            quiet = Deadline(GRACE_SECONDS)
            heard(said, complained)
        elif code is not None and (closed or quiet.left() == 0.0):
            return code
        if deadline.left() == 0.0:
            raise overdue(doing, deadline, last)
        if not said and not complained:
            ends.wait(min(deadline.left(), GIVE_SECONDS if left else LOOK_SECONDS))


def overdue(doing: str, deadline: Deadline, last: bytes, *, ended: bool = True) -> DeadlineError:
    """The error for a command that has not ended in time.

    Parameters
    ----------
    doing, deadline
        What was done, and until when.
    last
        The last that it said.
    ended
        Whether it was made to end; else nobody knows.

    """
    lines = last.decode(errors="replace").strip().splitlines()
    said = f"the last it said: '{lines[-1]}'" if lines else "it has said nothing"
    fate = "and ended" if ended else "and whether it has ended is not known"
    return DeadlineError(
        doing,
        f"not done within {deadline.seconds:g} s, {fate}; {said}",
        "give it longer, or see what it waits for",
    )
