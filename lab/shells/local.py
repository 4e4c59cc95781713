"""A shell on this machine or inside one of its containers."""

from __future__ import annotations

import os
import select
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress

from lab._deadline import Deadline
from lab._errors import BrokenError, os_failure
from lab.shells.shell import Input, Shell, as_root, command_words, communicate, make_killable
from lab.state.failure import exhausted

_PIECE = 1 << 16
_END_SECONDS = 5.0
_PUT = 'umask 077; cat >"$1" && chmod "$2" "$1" && mv -fT "$1" "$3" || { rm -f "$1"; exit 1; }'


class LocalShell(Shell):
    """A :class:`~lab.shells.shell.Shell` on this machine, with child processes.

    ``become``: True to become root with ``sudo -n``; None: unless this process is root. ``inside``:
    returns the prefix that runs a command in a container; called for each command. ``machine``: the
    machine's name for messages. ``call``: runs a command on this terminal and returns its exit
    code, negative after a signal.
    """

    def __init__(
        self,
        *,
        become: bool | None = None,
        inside: Callable[[], Sequence[str]] = tuple,
        machine: str = "this machine",
        call: Callable[[Sequence[str]], int] = subprocess.call,
    ) -> None:
        self._become = os.geteuid() != 0 if become is None else become
        self._inside = inside
        self._machine = machine
        self._call = call

    def put(self, content: bytes, path: str, mode: int, deadline: Deadline) -> None:
        """Write a file atomically; ``mode`` as in chmod(2). Replaces a symbolic link."""
        draft = f"{path}.{os.getpid()}.{os.urandom(4).hex()}"
        words = ("sh", "-c", _PUT, "lab", draft, f"{mode:o}", path)
        done = self.run(words, deadline, content)
        if done.code:
            raise BrokenError(f"writing '{path}' on {self._machine}", done.stderr.strip())

    def get(self, path: str, deadline: Deadline) -> bytes:
        """Read a file."""
        content = bytearray()
        code, err = self._execute(("cat", "--", path), deadline, b"", content.extend)
        if code:
            raise BrokenError(f"reading '{path}' of {self._machine}", err.strip())
        return bytes(content)

    def wait(self, deadline: Deadline) -> None:
        """Check that we may become root; there is nothing to wait for."""
        done = self.run(("true",), deadline)
        if done.code:
            raise BrokenError(
                "becoming root on this machine",
                done.stderr.strip(),
                "run as root, or allow password-less sudo",
            )

    def attach(self, command: Sequence[str]) -> int:
        """Run a command on this terminal, or a login shell if ``command`` is empty."""
        inside = self._inside()
        own = "/bin/bash" if inside else os.environ.get("SHELL") or "/bin/sh"
        words = [*inside, *(command or (own, "-l"))]
        code = self._call(as_root(words, become=self._become))
        return code if code >= 0 else 128 - code

    def close(self) -> None:
        """Nothing to close."""

    def _execute(
        self,
        command: Sequence[str],
        deadline: Deadline,
        stdin: Input,
        out: Callable[[bytes], object],
    ) -> tuple[int, str]:
        action = f"running {command_words(command)} on {self._machine}"
        try:
            streams = ProcessStreams(
                make_killable((*self._inside(), *command), len(stdin), become=self._become)
            )
        except OSError as error:
            hint = "run as root, or install sudo"
            refused = BrokenError(action, os_failure(error), hint)
            raise exhausted(error, action) or refused from error
        try:
            return communicate(action, streams, stdin, deadline, out)
        finally:
            streams.close()


class ProcessStreams:
    """A child process; see :class:`~lab.shells.shell.CommandStreams`."""

    def __init__(self, words: Sequence[str]) -> None:
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(  # noqa: S603  the caller's command, no shell
            words, stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0, start_new_session=True
        )
        streams = (self._process.stdin, self._process.stdout, self._process.stderr)
        self._in, self._out, self._err = (stream.fileno() for stream in streams if stream)
        self._open = {self._out, self._err}
        os.set_blocking(self._in, False)
        self._poll = select.poll()
        for descriptor in self._open:
            os.set_blocking(descriptor, False)
            self._poll.register(descriptor, select.POLLIN)

    def give(self, data: memoryview) -> int:
        """Write as much as the pipe accepts."""
        try:
            return os.write(self._in, data[:_PIECE])
        except BlockingIOError:
            return 0
        except BrokenPipeError:
            return len(data)

    def take(self) -> tuple[bytes, bytes]:
        """Output written since the last call."""
        return self._read(self._out), self._read(self._err)

    def closed(self) -> bool:
        """True if both output streams have ended."""
        return not self._open

    def code(self) -> int | None:
        """The exit code as in a shell: 128 + N after signal N."""
        code = self._process.poll()
        return code if code is None or code >= 0 else 128 - code

    def wait(self, seconds: float) -> None:
        """Wait for output, or once that has ended for the exit."""
        if self._open:
            self._poll.poll(seconds * 1000)
            return
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)

    def close(self) -> None:
        """Close its input, which kills its process group, and wait for it."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for stream in (self._process.stdout, self._process.stderr):
            if stream:
                stream.close()

    def _read(self, descriptor: int) -> bytes:
        if descriptor not in self._open:
            return b""
        try:
            piece = os.read(descriptor, _PIECE)
        except BlockingIOError:
            return b""
        if not piece:
            self._open.discard(descriptor)
            self._poll.unregister(descriptor)
        return piece
