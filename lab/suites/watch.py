"""Whether the lab is still there while it is tested: a lab that died is not probed on."""

from __future__ import annotations

import time
from collections.abc import Callable

SECONDS = 2.0
"""Between two looks at least."""
_SHARE = 20
"""A look takes a twentieth of the time at most: at an emulated cluster one takes 18 s."""


class Watch:
    """Looks at the lab now and then.

    Parameters
    ----------
    look
        Raises what is to end the test.
    clock
        Seconds, monotonic.

    """

    def __init__(
        self, look: Callable[[], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._look = look
        self._clock = clock
        self._next = 0.0

    def require(self) -> None:
        """Look now."""
        began = self._clock()
        self._look()
        ended = self._clock()
        self._next = ended + max(SECONDS, _SHARE * (ended - began))

    def glance(self) -> None:
        """Look if the last time is long enough ago."""
        if self._clock() >= self._next:
            self.require()
