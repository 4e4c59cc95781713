"""The shell protocol that providers and clusters use, and how a command is run.

One thread feeds a command's input and reads both output streams, without blocking for long: no
pipe fills up, and the deadline is always noticed.

A small shell script starts each command. The command's input is the first ``N`` bytes of the
channel; nothing follows, and when the channel ends (it is closed, the connection breaks, or the
caller dies) the whole process group is killed.
"""

from __future__ import annotations

import shlex
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import field
from mmap import mmap
from pathlib import Path
from typing import Protocol, Self

from lab._dataclass import dataclass
from lab._deadline import Deadline
from lab._errors import BrokenError, DeadlineError
from lab._log import one_line


class UnreachableError(BrokenError):
    """The machine was not reached this time; ``happened`` tells how far the attempt got."""


class FatalError(BrokenError):
    """The machine was not reached, and retrying does not help."""


class HostKeyError(FatalError):
    """The machine's key is not the expected one."""


class ConnectionLostError(BrokenError):
    """The connection broke while it was in use."""


class KeyFileError(FatalError):
    """The private key file cannot be used."""


@dataclass(frozen=True, slots=True)
class Completed:
    """The result of a finished command."""

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
    """None to use the user's keys and agent."""
    known_hosts: Path | None = None
    """None to use the user's known hosts; an unknown host is always refused."""
    no_verify: bool = False
    """Like ``no_verify=1`` in a libvirt URI: do not check the host's key."""


@dataclass(frozen=True, slots=True)
class Reach:
    """Everything needed to get a shell on one machine."""

    name: str
    """The machine's name in the lab, for messages."""
    address: str
    user: str
    keyfile: Path
    """The lab's private key (OpenSSH format, mode 0600)."""
    host_key: str
    """The machine's pinned public key, ``ssh-ed25519 AAAA...``; any other is refused."""
    port: int = 22
    jump: Jump | None = None


WINRM_TLS_PORT = 5986


@dataclass(frozen=True, slots=True)
class WindowsReach:
    """A Windows machine: commands over WinRM, files over SSH."""

    ssh: Reach
    """Its OpenSSH server: address, user, the lab's key, pinned host key, and jump host."""
    password: str = field(repr=False)
    """The same user's password. Secret."""
    certificate: str = ""
    """SHA-256 of WinRM's pinned certificate (DER), 64 hex digits; any other is refused."""
    port: int = WINRM_TLS_PORT


Input = bytes | mmap
"""A command's input; a mapped file is read as it is sent."""
GRACE_SECONDS = 1.0
"""How long to wait for more output after the command has exited, if a background process that it
started holds the streams open."""
LOOK_SECONDS = 0.25
"""Poll interval for an exit that causes no event."""
GIVE_SECONDS = 0.01
"""Interval for retrying to send input that was not accepted."""
_SHOWN = 120
"""Characters of a command that errors have at most."""


class CommandStreams(Protocol):
    """The caller's side of a command's three streams, and its exit code."""

    def give(self, data: memoryview) -> int:
        """Send some input; returns the bytes accepted now, or all if it no longer reads."""

    def take(self) -> tuple[bytes, bytes]:
        """Standard output and standard error since the last call; may be empty."""

    def closed(self) -> bool:
        """True if both output streams have ended; ``take`` may still return output."""

    def code(self) -> int | None:
        """Its exit code; None while it runs.

        Raises BrokenError when the exit code will never be known.
        """

    def wait(self, seconds: float) -> None:
        """Wait for output or the exit, at most ``seconds``."""


class LineSplitter:
    """Splits output into lines; each keeps its newline, the last may have none."""

    def __init__(self, heard: Callable[[bytes], None]) -> None:
        self._heard = heard
        self._rest = bytearray()

    def __call__(self, piece: bytes) -> None:
        """Add a piece of output, and pass on every completed line."""
        *whole, rest = piece.split(b"\n")
        for line in whole:
            begun, self._rest = bytes(self._rest), bytearray()
            self._heard(begun + line + b"\n")
        self._rest += rest

    def end(self) -> None:
        """Pass on the text after the last newline, if any."""
        if self._rest:
            self._heard(bytes(self._rest))
            self._rest.clear()


class Shell(ABC):
    """A machine that runs commands over one connection, opened on first use. Thread-safe."""

    def run(self, command: Sequence[str], deadline: Deadline, stdin: Input = b"") -> Completed:
        """Run a command and wait for it; at the deadline its process group is killed.

        Raises DeadlineError when it does not finish in time. Raises BrokenError when the machine is
        unreachable; shows the last attempt. A host key other than the pinned one raises
        HostKeyError and is never retried.
        """
        out = bytearray()
        code, err = self._execute(command, deadline, stdin, out.extend)
        return Completed(code, out.decode(errors="replace"), err)

    def stream(
        self,
        command: Sequence[str],
        deadline: Deadline,
        heard: Callable[[bytes], None],
        stdin: Input = b"",
    ) -> Completed:
        """Like :meth:`run`, but pass each line of standard output to ``heard`` and keep none."""
        lines = LineSplitter(heard)
        code, err = self._execute(command, deadline, stdin, lines)
        lines.end()
        return Completed(code, "", err)

    @abstractmethod
    def put(self, content: bytes, path: str, mode: int, deadline: Deadline) -> None:
        """Write a file on the machine atomically."""

    @abstractmethod
    def get(self, path: str, deadline: Deadline) -> bytes:
        """Read a file on the machine.

        Raises BrokenError when it does not exist or cannot be read.
        """

    @abstractmethod
    def wait(self, deadline: Deadline) -> None:
        """Wait until the machine runs a command.

        Raises DeadlineError with the outcome of the last attempt (``"connection refused"``, ``"no
        banner"``).
        """

    @abstractmethod
    def attach(self, command: Sequence[str]) -> int:
        """Run a command on this terminal, or a login shell if ``command`` is empty."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection. Safe to repeat."""

    @abstractmethod
    def _execute(
        self,
        command: Sequence[str],
        deadline: Deadline,
        stdin: Input,
        out: Callable[[bytes], object],
    ) -> tuple[int, str]:
        """Run a command; returns exit code and standard error. Output goes to ``out`` in pieces."""


class Script(str):
    """A shell script, for ``sh -c``, that errors do not quote but name by its ``source``.

    ``source``: the file that has all of it.
    """

    __slots__ = ("source",)
    source: str

    def __new__(cls, text: str, source: str) -> Self:
        """A script with its source."""
        made = super().__new__(cls, text)
        made.source = source
        return made


def command_words(command: Sequence[str]) -> str:
    """A command for an error: in quotes, a long one as its first words and where it is whole."""
    line = one_line(shlex.join(command))
    if len(line) <= _SHOWN:
        return f"'{line}'"
    named = next((at for at, word in enumerate(command) if isinstance(word, Script)), None)
    if named is None:
        return f"'{shorten(line)}' ({len(line):,} characters)"
    script = command[named]
    assert isinstance(script, Script)
    return f"'{shlex.join(command[:named])} ...' (the script in {script.source})"


def shorten(line: str) -> str:
    """The first words of a long line."""
    if len(line) <= _SHOWN:
        return line
    words = line[:_SHOWN]
    return f"{words.rpartition(' ')[0] or words}..."


def communicate(
    action: str,
    streams: CommandStreams,
    stdin: Input,
    deadline: Deadline,
    out: Callable[[bytes], object],
) -> tuple[int, str]:
    """Feed a command's input and read its output until it exits.

    Returns exit code and standard error; standard output goes to ``out`` in pieces.

    Raises DeadlineError when it does not exit in time; shows its last output. Raises BrokenError as
    ``streams`` raises it.
    """
    left = memoryview(stdin)
    last, err = b"", bytearray()
    quiet = Deadline(GRACE_SECONDS)
    for _ in deadline.tries():
        code, closed = streams.code(), streams.closed()  # before the last read of the streams
        if code is None and left:
            left = left[streams.give(left) :]
        output, complained = streams.take()
        if output or complained:
            last = (output or complained)[-200:]
            quiet = Deadline(GRACE_SECONDS)
            out(output)
            err += complained
        elif code is not None and (closed or quiet.left() == 0.0):
            return code, err.decode(errors="replace")
        if not output and not complained:
            streams.wait(min(deadline.left(), GIVE_SECONDS if left else LOOK_SECONDS))
    raise timeout_error(action, deadline, last)


def timeout_error(
    action: str, deadline: Deadline, last: bytes, *, ended: bool = True
) -> DeadlineError:
    """The error for a command that did not finish in time.

    ``action``, ``deadline``: the operation and its deadline. ``last``: the command's last output.
    ``ended``: True if it is known to have been killed.
    """
    lines = last.decode(errors="replace").strip().splitlines()
    last_line = f"last output: '{lines[-1]}'" if lines else "no output"
    fate = "and ended" if ended else "and it may still be running"
    return DeadlineError(
        action,
        f"not done within {deadline.seconds:g} s, {fate}; {last_line}",
        "give it more time, or find out what it waits for",
    )


_FEEDER = 'echo "$$"; head -c "$0"; exec >/dev/null; while read -r _; do :; done; kill -9 "-$1"'
_HOLDER = (
    'n=$1; shift; read -r _ _ _ _ g _ <"/proc/$$/stat"; exec 3>&2 2>/dev/null; '
    f'sh -c \'{_FEEDER}\' "$n" "$g" 3>&- | '
    '{ read -r feeder; "$@" 2>&3 3>&-; code=$?; kill "$feeder"; exit "$code"; }'
)
"""The feeder prints its ``$$`` before the first byte of input, so that it can be killed. The
group is read from /proc: behind sudo it is sudo's."""

SUDO = ("sudo", "-n", "--")
"""``-n``: fail instead of asking for a password."""


def as_root(command: Sequence[str], *, become: bool) -> tuple[str, ...]:
    """The command run as root; ``become`` is True if the user is not root."""
    return (*SUDO, *command) if become else tuple(command)


def make_killable(command: Sequence[str], stdin_bytes: int, *, become: bool) -> tuple[str, ...]:
    """A command whose process group is killed when its channel ends. Start it as session leader.

    Its exit code is the command's own, 128 + N if signal N killed it, 127 if the program does not
    exist.

    ``command``: program and arguments. ``stdin_bytes``: number of input bytes. Do not send
    end-of-file after them. ``become``: True if the user is not root.
    """
    return as_root(("sh", "-c", _HOLDER, "lab", str(stdin_bytes), *command), become=become)
