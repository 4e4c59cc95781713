"""Which source port each probe has: one that its source has not had for a minute.

Two connections to one backend, one of them by way of a Service, differ on the backend's side in
nothing but their source port. Left to the kernel, which chooses a port by the address that is
asked, they may have the same one. The kernel's own NAT then gives the second another; a data
path that does not (Open vSwitch 3.1 in user space, conntrack.c) takes the answers of the second
for the first's until that is forgotten, and the probe is lost to nobody's fault.

Pure; the clock is the caller's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from zlib import crc32

FIRST, LAST = 32_768, 60_999
"""The kernel's own range, as net.ipv4.ip_local_port_range begins."""
CYCLE_SECONDS = 60.0
"""A port comes again after so long, where its source makes less than 470 connections a second.
Open vSwitch 3.1 remembers a closed TCP connection for 45 s and a UDP one for 60 s at most
(lib/conntrack-tp.c)."""

_COUNT = LAST - FIRST + 1


class SourcePorts:
    """The next port of each source.

    Where a source begins follows the clock, so that it goes on where another process, which did
    the batch before, can have ended at most.

    Parameters
    ----------
    now
        Seconds, by a clock that all processes of the machine share.

    """

    def __init__(self, now: float) -> None:
        self._begin = int(now * _COUNT / CYCLE_SECONDS)
        self._used: defaultdict[str, int] = defaultdict(int)

    def of(self, source: str, tries: int) -> Iterator[int]:
        """So many ports of the source, each the next one."""
        for _ in range(tries):
            used = self._used[source]
            self._used[source] += 1
            yield FIRST + (self._begin + crc32(source.encode()) + used) % _COUNT
