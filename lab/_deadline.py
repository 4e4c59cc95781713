"""Waits with a deadline, which report their condition and the last value seen."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from lab._errors import DeadlineError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Deadline:
    """A point on the monotonic clock.

    Parameters
    ----------
    seconds
        Time from now. Shown in the error.
    check
        Called before each pause of a wait; raises when there is nothing to wait for any more.

    """

    seconds: float
    check: Callable[[], None] | None = field(default=None, compare=False)
    _ends: float = field(default=0.0)

    def __post_init__(self) -> None:
        if not self._ends:
            object.__setattr__(self, "_ends", time.monotonic() + self.seconds)

    def left(self) -> float:
        """Seconds until the deadline, never below zero."""
        return max(0.0, self._ends - time.monotonic())

    def wait(
        self,
        action: str,
        look: Callable[[], T],
        *,
        until: Callable[[T], bool] = bool,
        every: float = 0.01,
        hint: str = "",
    ) -> T:
        """Call ``look`` until ``until`` is true for its value, and return that value.

        Raises DeadlineError with ``action`` and the last value seen. ``look`` is called at least
        once. Raises what ``check`` raises.
        """
        for _ in self.tries(every):
            value = look()
            if until(value):
                return value
        raise DeadlineError(
            action, f"not done within {self.seconds:g} s; last seen: {value!r}", hint
        )

    def tries(self, every: float = 0.0) -> Iterator[None]:
        """Yield once, and then every ``every`` seconds until the deadline has passed."""
        yield
        while left := self.left():
            if self.check:
                self.check()
            time.sleep(min(every, left))
            yield
