"""Work on another thread while a test breaks something that it needs."""

from __future__ import annotations

import threading
from collections.abc import Callable

from lab._deadline import Deadline

_SECONDS = 240.0


class Work:
    """A thread that starts at once; ``join`` raises its exception."""

    def __init__(self, function: Callable[[], object]) -> None:
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(function,))
        self._thread.start()

    def _run(self, function: Callable[[], object]) -> None:
        try:
            function()
        except BaseException as error:  # noqa: BLE001  raised by join
            self._failure = error

    def wait_for(self, look: Callable[[], bool]) -> None:
        """Wait for a condition; it is an error if the work ends before."""
        Deadline(_SECONDS).wait("working", lambda: look() or self.ended, every=0.2)
        assert not self.ended, self._failure

    def go_on_for(self, seconds: float) -> None:
        """Check for this long that the work does not end."""
        self._thread.join(seconds)
        assert not self.ended, self._failure

    @property
    def ended(self) -> bool:
        return not self._thread.is_alive()

    def join(self) -> None:
        self._thread.join(_SECONDS)
        assert self.ended
        if self._failure:
            raise self._failure
