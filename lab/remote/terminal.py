"""Pass the terminal of this process to a command elsewhere, and restore it afterwards."""

from __future__ import annotations

import os
import select
import signal
import termios
import threading
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING

from lab._deadline import Deadline
from lab.remote.connection import SessionStreams, TerminalSize
from lab.remote.shell import GIVE_SECONDS, GRACE_SECONDS, LOOK_SECONDS

if TYPE_CHECKING:
    import paramiko

_IN, _OUT, _ERR = 0, 1, 2
_PIECE = 1 << 16


def own_terminal() -> TerminalSize | None:
    """What this terminal is; None where input or output is none."""
    if not (os.isatty(_IN) and os.isatty(_OUT)):
        return None
    return TerminalSize(os.environ.get("TERM") or "vt100", *os.get_terminal_size(_OUT))


def pass_terminal(streams: SessionStreams, channel: paramiko.Channel, *, raw: bool) -> int:
    """Pass input and output on until the command ends; its exit code.

    Parameters
    ----------
    streams
        The command, already started.
    channel
        Its channel, which is resized with the terminal.
    raw
        Whether the command has a terminal: every key then goes to it, Ctrl-C too.

    Raises
    ------
    ConnectionLostError
        When the connection breaks.

    """
    if not raw:
        return _Attachment(streams, channel).run()
    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        with _raw(), _watch_size(writer):
            return _Attachment(streams, channel, reader).run()
    finally:
        os.close(reader)
        os.close(writer)


class _Attachment:
    """Keys and output under way between the terminal and a command."""

    def __init__(
        self, streams: SessionStreams, channel: paramiko.Channel, resized: int | None = None
    ) -> None:
        self._streams, self._channel, self._resized = streams, channel, resized
        self._typed = memoryview(b"")
        self._poll = select.poll()
        for descriptor in (channel.fileno(), _IN, resized):
            if descriptor is not None:
                self._poll.register(descriptor, select.POLLIN)

    def run(self) -> int:
        """Pass everything on until the command ends; its exit code."""
        quiet = Deadline(GRACE_SECONDS)
        while True:
            code, closed = self._streams.code(), self._streams.closed()
            out, err = self._streams.take()
            _write(_OUT, out)
            _write(_ERR, err)
            if out or err or code is None:
                quiet = Deadline(GRACE_SECONDS)
            elif closed or quiet.left() == 0.0:
                return code
            if closed:  # its descriptor is readable for good
                self._streams.wait(LOOK_SECONDS)
            elif not out and not err:
                self._listen()

    def _listen(self) -> None:
        if self._typed:
            self._typed = self._typed[self._streams.give(self._typed) :]
            if not self._typed:
                self._poll.register(_IN, select.POLLIN)
        for descriptor, _ in self._poll.poll(
            1000 * (GIVE_SECONDS if self._typed else LOOK_SECONDS)
        ):
            if descriptor == self._resized:
                os.read(descriptor, _PIECE)
                self._channel.resize_pty(*os.get_terminal_size(_OUT))
            elif descriptor == _IN:
                self._read()

    def _read(self) -> None:
        """Read what was typed; no more is read before all of it is given."""
        self._poll.unregister(_IN)
        try:
            self._typed = memoryview(os.read(_IN, _PIECE))
        except OSError:  # the terminal is gone
            self._typed = memoryview(b"")
        if not self._typed:
            self._channel.shutdown_write()


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


@contextmanager
def _raw() -> Iterator[None]:
    """Every key as it is typed; undone by whatever ends the block, and by SIGTERM or SIGHUP."""
    before = termios.tcgetattr(_IN)

    def restore() -> None:
        with suppress(termios.error):  # the terminal may be gone
            termios.tcsetattr(_IN, termios.TCSADRAIN, before)

    def end(number: int, _: FrameType | None) -> None:
        restore()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    handlers = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGHUP):
            handlers[number] = signal.signal(number, end)
    try:
        tty.setraw(_IN, termios.TCSADRAIN)  # what was typed ahead is kept
        yield
    finally:
        restore()
        for number, handler in handlers.items():
            signal.signal(number, handler)


@contextmanager
def _watch_size(writer: int) -> Iterator[None]:
    """Have a byte written whenever the terminal's size changes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def changed(*_: object) -> None:
        with suppress(BlockingIOError):  # it is full, and the reader will look at the size
            os.write(writer, b"*")

    before = signal.signal(signal.SIGWINCH, changed)
    try:
        yield
    finally:
        signal.signal(signal.SIGWINCH, before)
