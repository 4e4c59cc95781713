"""A lab's machines where they were placed: their domains, consoles, screens and memory."""

from __future__ import annotations

import os
import select
import sys
import termios
import tty
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from lab._deadline import Deadline
from lab._errors import BrokenError, UsageError
from lab._log import say
from lab.providers.libvirt import bring_up, connection, domains, machines, pictures
from lab.providers.libvirt.boots import in_parallel
from lab.providers.libvirt.host import Host
from lab.providers.libvirt.layout import LibvirtLayout
from lab.providers.provider import LabHandle

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


class Placed:
    """The machines of a lab.

    Parameters
    ----------
    lab
        Whose they are.
    decided
        On which hypervisor each is.
    hosts
        Those hypervisors, by name.

    """

    def __init__(self, lab: LabHandle, decided: LibvirtLayout, hosts: Mapping[str, Host]) -> None:
        self._lab = lab
        self._decided = decided
        self._hosts = hosts

    def console(self, name: str) -> int:
        """Join this terminal to the machine's serial console until Ctrl-]; the exit code."""
        connection.hear_events()
        return join(self._domain(name))

    def console_log(self, name: str) -> str:
        """All that the serial console has said since the machine was made."""
        return machines.console_text(self._host(name), self._lab, name)

    def screenshot(self, name: str) -> bytes:
        """What its screen shows now, as PNG."""
        with self._host(name).told(f"taking a picture of the screen of '{name}'"):
            return pictures.png(domains.screenshot(self._domain(name)))

    def suspend(self) -> tuple[str, ...]:
        """Save every machine's memory to disk and stop it; the names of those that ran."""
        homes = self._decided.hypervisors()
        jobs = {
            home: {machine: self._saving(machine) for machine in self._decided.on(home)}
            for home in homes
        }
        limits = {home: self._hosts[home].threads for home in homes}
        done = in_parallel(jobs, limits, Deadline(bring_up.ALL_SECONDS))
        return tuple(machine for machine, ran in done.items() if ran)

    def _saving(self, name: str) -> Callable[[], bool]:
        def save() -> bool:
            with self._host(name).told(f"saving machine '{name}'"):
                return domains.save(self._domain(name))

        return save

    def _host(self, name: str) -> Host:
        home = self._decided.machines.get(name)
        if home is None:
            raise UsageError(
                f"looking for '{name}' in lab '{self._lab.name}'",
                "there is no machine of that name",
                f"one of {', '.join(self._decided.machines)}",
            )
        return self._hosts[home]

    def _domain(self, name: str) -> libvirt.virDomain:
        host = self._host(name)
        with host.told(f"looking for machine '{name}'"):
            found = domains.find(host.connected, self._lab, name)
        if found is None:
            raise BrokenError(
                f"looking for machine '{name}'", "its domain is gone", f"lab up {self._lab.name}"
            )
        return found[0]
