"""SIGTERM as an exception, so that a stopped command can say what is left."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from lab._errors import Terminated


@contextmanager
def terminable() -> Iterator[None]:
    """Raise :class:`Terminated` on the first SIGTERM in the block; a second one kills the process.

    Does nothing outside the main thread, or if the program handles SIGTERM itself.
    """
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _raise)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _raise(number: int, _: FrameType | None) -> None:
    signal.signal(number, signal.SIG_DFL)
    raise Terminated


@contextmanager
def postponed(*, discard: bool = False) -> Iterator[None]:
    """Delay Ctrl-C and SIGTERM until the end of the block, which must not be interrupted.

    ``discard``: drop them instead. ``SIG_IGN`` is not used: commands started meanwhile would
    inherit it.
    """
    received: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [
        signal.signal(number, lambda received_number, _: received.append(received_number))
        for number in numbers
    ]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
    if received and not discard:
        signal.raise_signal(received[0])
