"""SIGTERM as an exception, so that a command that is stopped can say what is left."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Terminated(KeyboardInterrupt):
    """The process was sent SIGTERM; treated as Ctrl-C is."""


@contextmanager
def terminable() -> Iterator[None]:
    """Raise :class:`Terminated` on the first SIGTERM of the block; a second one kills as usual.

    Does nothing outside the main thread, or where the program handles SIGTERM itself.
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


def _take_no_notice(_number: int, _frame: FrameType | None) -> None:
    """A handler that handles nothing."""


def _raise(number: int, _: FrameType | None) -> None:
    signal.signal(number, signal.SIG_DFL)
    raise Terminated


@contextmanager
def postponed() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM take effect at the end of the block, for what must be done whole."""
    told: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda got, _: told.append(got)) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
    if told:
        signal.raise_signal(told[0])


@contextmanager
def deaf() -> Iterator[None]:
    """Take no notice of Ctrl-C and SIGTERM for the block: for what must be done before the end.

    They are not ignored as ``SIG_IGN`` has it, which commands started meanwhile would inherit.
    """
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, _take_no_notice) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
