"""A machine's serial console, joined to the user's terminal."""

from __future__ import annotations

import os
import select
import sys
import termios
import tty
from contextlib import suppress
from typing import TYPE_CHECKING

from lab._errors import UsageError
from lab._log import say
from lab.providers.libvirt import connection

if TYPE_CHECKING:
    import libvirt

_LEAVE = b"\x1d"
"""Ctrl-], as virsh and telnet have it."""
_CHUNK = 4096
_CHUNKS_AT_ONCE = 16
_EVERY_SECONDS = 0.02
"""Between two looks for output: libvirt's stream has no descriptor to wait on without its loop."""


def join(domain: libvirt.virDomain) -> int:
    """Copy both ways until Ctrl-], the end of input, or the machine's end. Always 0.

    Raises
    ------
    UsageError
        If there is no terminal to join.

    """
    if not sys.stdin.isatty():
        raise UsageError(
            f"joining the console of '{domain.name()}'",
            "standard input is no terminal",
            "'--log' prints what the console has said",
        )
    library = connection.load()
    stream = domain.connect().newStream(library.VIR_STREAM_NONBLOCK)
    domain.openConsole(None, stream, library.VIR_DOMAIN_CONSOLE_FORCE)
    say("the serial console; Ctrl-] leaves it")
    before = termios.tcgetattr(0)
    try:
        tty.setraw(0)
        _copy(stream)
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)
        with suppress(library.libvirtError):  # the machine has ended it
            stream.abort()
    return 0


def _copy(stream: libvirt.virStream, keyboard: int = 0, screen: int = 1) -> None:
    waiting = b""
    while _show(stream, screen):
        if select.select([keyboard], [], [], _EVERY_SECONDS)[0]:
            typed = os.read(keyboard, _CHUNK)
            if not typed or _LEAVE in typed:
                return
            waiting += typed
        if waiting:
            waiting = waiting[max(0, stream.send(waiting)) :]  # negative: it takes nothing now


def _show(stream: libvirt.virStream, screen: int) -> bool:
    """Print what has come, but not so much that a talkative machine drowns the keyboard.

    False at the stream's end.
    """
    for _ in range(_CHUNKS_AT_ONCE):
        data = stream.recv(_CHUNK)
        if data == -2:  # noqa: PLR2004  libvirt's "nothing yet"
            return True
        if not data:
            return False
        os.write(screen, data)
    return True
