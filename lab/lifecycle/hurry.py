"""Pieces from somebody who may be slow or stuck: taken while there is time, then left."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator

from lab._deadline import Deadline
from lab.providers.provider import SLOW_EVIDENCE_SECONDS, Evidence

SLACK_SECONDS = 2.0
"""How much later than promised a piece may come."""
_LOOK_SECONDS = 0.1
"""How often one whose piece nobody takes looks whether anybody still wants it."""


class _Hurried:
    """Pieces on their way from the thread that makes them."""

    def __init__(self, start: Callable[[], Iterable[Evidence]]) -> None:
        self._start = start
        self._made: queue.Queue[Evidence | None] = queue.Queue(maxsize=1)
        self._left = threading.Event()
        self._thread = threading.Thread(target=self._work, name="evidence", daemon=True)

    def taken(self, source: str, deadline: Deadline) -> Iterator[Evidence]:
        self._thread.start()
        try:
            while piece := self._next(source, deadline):
                yield piece
        finally:
            self._left.set()
            self._thread.join(2 * _LOOK_SECONDS)

    def _next(self, source: str, deadline: Deadline) -> Evidence | None:
        """The next piece; None after the last."""
        if self._left.is_set():
            return None
        patience = min(deadline.left(), SLOW_EVIDENCE_SECONDS + SLACK_SECONDS)
        try:
            return self._made.get(timeout=patience)
        except queue.Empty:
            self._left.set()
        if deadline.left() == 0.0:
            why = f"there was no more time: all of it may take {deadline.seconds:g} s"
        else:
            why = f"'{source}' made no further piece within {patience:g} s"
        return Evidence("stopped.txt", f"{why}\n".encode())

    def _work(self) -> None:
        try:
            for piece in self._start():
                self._offer(piece)
                if self._left.is_set():
                    return
        except Exception as error:  # noqa: BLE001  it promised none; whatever it is, it is told
            self._offer(Evidence("stopped.txt", f"{type(error).__name__}: {error}\n".encode()))
        self._offer(None)

    def _offer(self, piece: Evidence | None) -> None:
        while not self._left.is_set():
            try:
                self._made.put(piece, timeout=_LOOK_SECONDS)
            except queue.Full:
                continue
            return


def hurried(
    source: str, start: Callable[[], Iterable[Evidence]], deadline: Deadline
) -> Iterator[Evidence]:
    """Every piece that comes in time, and one more that says why there are no others.

    The pieces are made on a thread of their own. One that is stuck is left behind; it ends with
    this process.

    Parameters
    ----------
    source
        Who makes them, for messages: ``"libvirt"``.
    start
        Begins to make them.
    deadline
        For all of them. Each has ``SLOW_EVIDENCE_SECONDS`` besides.

    """
    return _Hurried(start).taken(source, deadline)
