"""The shell protocol that providers and clusters use, and how a command is run to its end.

One thread feeds a command's input and reads both output streams, in turns that never block for
long: no pipe fills up, and the deadline is always noticed.

Commands are started by a line of shell. The command's own input is the first ``N`` bytes of the
channel's; the rest of the channel stays silent, and when it is closed (the channel is closed, the
connection breaks, the caller dies) the whole process group is killed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from lab._deadline import Deadline
from lab._errors import BrokenError, DeadlineError


class UnreachableError(BrokenError):
    """The machine was not reached this time; ``happened`` says how far the attempt got."""


class HostKeyError(BrokenError):
    """The machine shows another key than it must. Retrying does not help."""


class ConnectionLostError(BrokenError):
    """The connection broke while it was in use."""


class KeyFileError(BrokenError):
    """The private key file cannot be used. Retrying does not help."""


@dataclass(frozen=True, slots=True)
class Completed:
    """A command that has ended."""

    code: int
    stdout: str
    stderr: str


@dataclass(frozen=True, slots=True)
class Jump:
    """An SSH host to jump through: the hypervisor whose NAT hides a machine."""

    host: str
    port: int = 22
    user: str = "root"
    keyfile: Path | None = None
    """None for the user's own keys and agent."""
    known_hosts: Path | None = None
    """None for the user's own known hosts; an unknown host is refused either way."""
    no_verify: bool = False
    """As ``no_verify=1`` in a libvirt URI: the host's key is not checked."""


@dataclass(frozen=True, slots=True)
class Reach:
    """All that is needed to get a shell on one machine."""

    name: str
    """The machine's name in the lab, for messages."""
    address: str
    user: str
    keyfile: Path
    """The lab's private key (OpenSSH format, mode 0600)."""
    host_key: str
    """The machine's public key, ``ssh-ed25519 AAAA...``: pinned, anything else is refused."""
    port: int = 22
    jump: Jump | None = None


class Shell(Protocol):
    """A machine that takes commands; one connection, opened when first used, used by threads."""

    def run(self, command: Sequence[str], deadline: Deadline, stdin: bytes = b"") -> Completed:
        """Run a command to its end.

        Raises
        ------
        DeadlineError
            When it has not ended in time.
        BrokenError
            When the machine cannot be reached, with the last attempt; a host key other than
            the pinned one is reported as such and never retried.

        """

    def stream(
        self,
        command: Sequence[str],
        deadline: Deadline,
        heard: Callable[[bytes], None],
        stdin: bytes = b"",
    ) -> Completed:
        """As ``run``, but pass on each line of standard output as it comes, and keep none."""

    def put(self, content: bytes, path: str, mode: int, deadline: Deadline) -> None:
        """Write a file on the machine, whole or not at all."""

    def get(self, path: str, deadline: Deadline) -> bytes:
        """Read a file of the machine.

        Raises
        ------
        BrokenError
            When there is none, or it cannot be read.

        """

    def wait(self, deadline: Deadline) -> None:
        """Wait until the machine takes a command.

        Raises
        ------
        DeadlineError
            With the outcome of the last attempt (``"connection refused"``, ``"no banner"``).

        """

    def attach(self, command: Sequence[str]) -> int:
        """Run a command with this terminal as its own; an empty one is a login shell."""

    def close(self) -> None:
        """Close the connection. Safe to repeat."""


WINRM_TLS_PORT = 5986


@dataclass(frozen=True, slots=True)
class WindowsReach:
    """A Windows machine: commands by WinRM, files by SSH."""

    ssh: Reach
    """Its OpenSSH: address, user, lab's key, pinned host key, and the host to jump through."""
    password: str = field(repr=False)
    """Of the same user. Secret."""
    certificate: str = ""
    """SHA-256 of the certificate (DER) that WinRM must show, 64 hex digits: pinned, and anything
    else is refused."""
    port: int = WINRM_TLS_PORT


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
    for _ in deadline.tries():
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
        if not said and not complained:
            streams.wait(min(deadline.left(), GIVE_SECONDS if left else LOOK_SECONDS))
    raise timeout_error(doing, deadline, last)


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
    said = f"last output: '{lines[-1]}'" if lines else "no output"
    fate = "and ended" if ended else "and it may still be running"
    return DeadlineError(
        doing,
        f"not done within {deadline.seconds:g} s, {fate}; {said}",
        "give it more time, or find out what it waits for",
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
