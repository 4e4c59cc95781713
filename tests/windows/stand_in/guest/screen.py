"""Output of the stand-in on COM1 and on its screen."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import NoReturn

COM1 = Path("/dev/ttyS0")
SCREEN = Path("/dev/tty0")


class StopError(Exception):
    """Setup shows an error and waits for a person."""


class RestartError(Exception):
    """The system restarts here."""


def say(line: str) -> None:
    """Write a line to COM1, like ``echo`` of cmd.exe; the terminal adds the carriage return."""
    with COM1.open("wb", buffering=0) as port:
        port.write(f"{line}\n".encode("ascii", errors="replace"))


def show(line: str) -> None:
    """Write a line to the screen."""
    with SCREEN.open("wb", buffering=0) as screen:
        screen.write(f"{line}\r\n".encode())


def stop(why: str) -> NoReturn:
    """Show the error screen, and halt."""
    say(f"stand-in: {why}")
    show(f"\033[2J\033[H\033[44mWindows Setup (a stand-in, not Windows)\r\n\r\n{why}\r\n\r\n[ OK ]")
    flush()
    while True:
        time.sleep(3600)


def flush() -> None:
    """Write everything to the disk."""
    subprocess.run(["/bin/busybox", "sync"], check=True)


def restart() -> NoReturn:
    """Reset the machine."""
    _down("reboot")


def power_off() -> NoReturn:
    _down("poweroff")


def _down(verb: str) -> NoReturn:
    flush()
    subprocess.run(["/bin/busybox", "mount", "-o", "remount,ro", "/c"], check=False)
    subprocess.run(["/bin/busybox", verb, "-f"], check=True)
    while True:
        time.sleep(3600)
