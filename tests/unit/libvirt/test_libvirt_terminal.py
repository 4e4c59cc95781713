"""The serial console on a terminal: no machine keeps its user from leaving."""

from __future__ import annotations

import os
import threading

from lab.providers.libvirt import domains

ENOUGH_SECONDS = 20.0
NOTHING = -2


class Stream:
    """A console that always says the same, and takes as many bytes at a time as it is told to."""

    def __init__(self, says: bytes | int, takes: int) -> None:
        self.says = says
        self.takes = takes
        self.taken = b""

    def recv(self, _count: int) -> bytes | int:
        return self.says

    def send(self, typed: bytes) -> int:
        self.taken += typed[: max(0, self.takes)]
        return self.takes


def copied(stream: Stream, *typed: bytes) -> bool:
    """Whether the terminal is left when all that has been typed."""
    keyboard, hand = os.pipe()
    screen = os.open(os.devnull, os.O_WRONLY)
    copying = threading.Thread(target=domains._copy, args=(stream, keyboard, screen), daemon=True)
    copying.start()
    for keys in typed:
        os.write(hand, keys)
        copying.join(0.5)
    copying.join(ENOUGH_SECONDS)
    for one in (keyboard, hand, screen):
        os.close(one)
    return not copying.is_alive()


def test_a_machine_that_never_stops_talking_is_left() -> None:
    assert copied(Stream(b"noise", 1), b"\x1d")


def test_a_machine_that_takes_no_input_is_left() -> None:
    assert copied(Stream(NOTHING, NOTHING), b"help me", b"\x1d")


def test_what_is_not_taken_at_once_is_sent_later() -> None:
    stream = Stream(NOTHING, 1)
    assert copied(stream, b"id\r", b"\x1d")
    assert stream.taken == b"id\r"
