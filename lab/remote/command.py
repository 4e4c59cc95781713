"""Running a command: its input and output, its deadline, and the end of its process group.

One thread feeds the input and reads both output streams, in turns that never block for long: no
pipe fills up, and the deadline is always noticed.

Commands are started by a line of shell. The command's own input is the first ``N`` bytes of the
channel's; the rest of the channel stays silent, and when it is closed (the channel is closed, the
connection breaks, the caller dies) the whole process group is killed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Protocol

from lab._deadline import Deadline
from lab._errors import DeadlineError
from lab.remote.shell import Completed

GRACE_SECONDS = 1.0
"""How long output may be silent after the command itself has ended, if something that it left
running in the background still has it open."""
LOOK_SECONDS = 0.25
"""How often to look for an end that nothing announces."""
GIVE_SECONDS = 0.01
"""How often refused input is offered again."""
_SHOWN = 120


class CommandStreams(Protocol):
    """The caller's side of a command's three streams, and its exit code."""

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


class LineSplitter:
    """Splits output into lines; each keeps its newline, the last may have none."""

    def __init__(self, heard: Callable[[bytes], None]) -> None:
        self._heard = heard
        self._rest = bytearray()

    def __call__(self, piece: bytes) -> None:
        """Take a piece, and pass on every line that it completes."""
        *whole, rest = piece.split(b"\n")
        for line in whole:
            begun, self._rest = bytes(self._rest), bytearray()
            self._heard(begun + line + b"\n")
        self._rest += rest

    def end(self) -> None:
        """Pass on what came after the last newline."""
        if self._rest:
            self._heard(bytes(self._rest))
            self._rest.clear()


class CommandShell(ABC):
    """``run`` and ``stream`` of a :class:`~lab.remote.shell.Shell`, by one way to run a command."""

    def run(self, command: Sequence[str], deadline: Deadline, stdin: bytes = b"") -> Completed:
        """Run a command to its end; see :class:`~lab.remote.shell.Shell`.

        At the deadline its process group is killed.
        """
        out = bytearray()
        code, err = self._execute(command, deadline, stdin, out.extend)
        return Completed(code, out.decode(errors="replace"), err)

    def stream(
        self,
        command: Sequence[str],
        deadline: Deadline,
        heard: Callable[[bytes], None],
        stdin: bytes = b"",
    ) -> Completed:
        """As :meth:`run`, but pass on each line of standard output and keep none."""
        lines = LineSplitter(heard)
        code, err = self._execute(command, deadline, stdin, lines)
        lines.end()
        return Completed(code, "", err)

    @abstractmethod
    def _execute(
        self,
        command: Sequence[str],
        deadline: Deadline,
        stdin: bytes,
        out: Callable[[bytes], object],
    ) -> tuple[int, str]:
        """Run a command; its exit code and standard error. Output goes to ``out`` in pieces."""


def shortened(line: str) -> str:
    """A command line for messages."""
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}..."


def communicate(
    doing: str,
    streams: CommandStreams,
    stdin: bytes,
    deadline: Deadline,
    heard: Callable[[bytes, bytes], object],
) -> int:
    """Feed and read a command until it ends; its exit code.

    ``heard`` gets each piece of standard output and of standard error; either may be empty.

    Raises
    ------
    DeadlineError
        When it has not ended in time, with what it said last.
    BrokenError
        As the streams raise it.

    """
    left = memoryview(stdin)
    last = b""
    quiet = Deadline(GRACE_SECONDS)
    while True:
        code, closed = streams.code(), streams.closed()  # before the last look at the streams
        if code is None and left:
            left = left[streams.give(left) :]
        said, complained = streams.take()
        if said or complained:
            last = (said or complained)[-200:]
            quiet = Deadline(GRACE_SECONDS)
            heard(said, complained)
        elif code is not None and (closed or quiet.left() == 0.0):
            return code
        if deadline.left() == 0.0:
            raise timeout_error(doing, deadline, last)
        if not said and not complained:
            streams.wait(min(deadline.left(), GIVE_SECONDS if left else LOOK_SECONDS))


def timeout_error(
    doing: str, deadline: Deadline, last: bytes, *, ended: bool = True
) -> DeadlineError:
    """The error for a command that has not ended in time.

    Parameters
    ----------
    doing, deadline
        What was done, and until when.
    last
        The last that it said.
    ended
        Whether it is known to have been ended.

    """
    lines = last.decode(errors="replace").strip().splitlines()
    said = f"the last it said: '{lines[-1]}'" if lines else "it has said nothing"
    fate = "and ended" if ended else "and whether it has ended is not known"
    return DeadlineError(
        doing,
        f"not done within {deadline.seconds:g} s, {fate}; {said}",
        "give it longer, or see what it waits for",
    )


_FEEDER = 'echo "$$"; head -c "$0"; exec >/dev/null; while read -r _; do :; done; kill -9 "-$1"'
_HOLDER = (
    'n=$1; shift; read -r _ _ _ _ g _ <"/proc/$$/stat"; exec 3>&2 2>/dev/null; '
    f'sh -c \'{_FEEDER}\' "$n" "$g" 3>&- | '
    '{ read -r feeder; "$@" 2>&3 3>&-; code=$?; kill "$feeder"; exit "$code"; }'
)
"""``$$`` of the feeder is said before the first byte of input, so that its end can be asked for.
The group is read from /proc: behind sudo it is that of sudo."""

SUDO = ("sudo", "-n", "--")
"""``-n``: sudo that would ask for a password fails instead."""


def as_root(command: Sequence[str], *, become: bool) -> tuple[str, ...]:
    """The command as root runs it; ``become`` says whether the user is not root."""
    return (*SUDO, *command) if become else tuple(command)


def killable(command: Sequence[str], stdin_bytes: int, *, become: bool) -> tuple[str, ...]:
    """A command whose process group ends with its channel. Start it as a session leader.

    Its exit code is the command's own, 128 + N if signal N ended it, 127 where there is no such
    program.

    Parameters
    ----------
    command
        Program and arguments.
    stdin_bytes
        How many bytes are sent to it. No end of input may be sent after them.
    become
        Whether the user is not root.

    """
    return as_root(("sh", "-c", _HOLDER, "lab", str(stdin_bytes), *command), become=become)
