"""Links to hosts that are gone through: one a host, shared by all the guests behind it."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from lab._deadline import Deadline
from lab._errors import DeadlineError
from lab.guests.connecting import connect
from lab.guests.door import Door
from lab.guests.link import Link, patience


@dataclass
class _Shared:
    lock: threading.Lock = field(default_factory=threading.Lock)
    link: Link | None = None
    users: int = 0


class Jumps:
    """Who goes through which door, and the link there while anybody does."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._shared: dict[Door, _Shared] = {}

    def borrow(self, door: Door, deadline: Deadline) -> Link:
        """The link through that door, made if there is none that lives. Give it back after.

        Raises
        ------
        BrokenError
            As :func:`~lab.guests.link.connect` does.

        """
        with self._lock:
            shared = self._shared.setdefault(door, _Shared())
            shared.users += 1
        try:
            return _living(door, shared, deadline)
        except BaseException:
            self.give_back(door)
            raise

    def give_back(self, door: Door) -> None:
        """Go through that door no more; the last one closes it."""
        with self._lock:
            shared = self._shared[door]
            shared.users -= 1
            if shared.users:
                return
            del self._shared[door]
        if shared.link:
            shared.link.close()


def _living(door: Door, shared: _Shared, deadline: Deadline) -> Link:
    if not shared.lock.acquire(timeout=patience(deadline)):
        raise DeadlineError(
            f"connecting to '{door.name}'",
            f"another thread was still connecting after {deadline.seconds:g} s",
        )
    try:
        if shared.link and not shared.link.alive():
            shared.link.close()
            shared.link = None
        if shared.link is None:
            shared.link = connect(door, None, deadline)
        return shared.link
    finally:
        shared.lock.release()


JUMPS = Jumps()
"""Of this process."""
