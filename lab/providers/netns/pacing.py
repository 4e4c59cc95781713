"""How fast the pods' network of a lab may be probed. Pure.

The kernel carries hundreds of probes at once. Open vSwitch in user space does it with one
thread a node, which also learns each new connection: beyond some tens under way its ports'
buffers overflow, and what is lost says nothing of the lab (measured on 2 cores: of 2,300 probes,
256 at once, 481 had to be tried again; 32 at once, 9, all UDP beside TCP; apart, none).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from lab.providers.provider import Probe, ProbeSettings
from lab.scenario.scenario import Protocol, Size
from lab.topology.intent import Intent

_PACES: Mapping[tuple[Protocol, Size | None], tuple[int, int]] = {
    ("udp", "small"): (32, 2),
    ("udp", "large"): (12, 2),
    ("tcp", None): (12, 4),
}
"""Of a protocol and a size (None for any), so many at once, and so many times longer is an answer
waited for. A large probe over TCP is a burst of its own, and sends again what was lost; one over
UDP is three packets of up to 1,500 bytes, and by reckoning some 90 of those fill the buffer of a
port (212,992 bytes, 2.3 KiB a packet) when the switch's thread does not run for a moment."""


def batches(
    intent: Intent, probes: Sequence[Probe], settings: ProbeSettings
) -> Iterator[tuple[Sequence[Probe], ProbeSettings]]:
    """What is sent one after another, and how.

    TCP sends again what a burst of its own made a port lose; UDP does not, and goes apart.
    Probes that nothing is to come back from load nobody: they go together, at the pace asked.
    """
    if intent.logical is None:
        yield probes, settings
        return
    for (protocol, size), (at_once, patience) in _PACES.items():
        own = [
            one
            for one in probes
            if one.protocol == protocol and size in {None, one.size} and not one.unanswered
        ]
        if own:
            pace = min(at_once, settings.in_flight)
            yield own, ProbeSettings(settings.timeout * patience, pace)
    unanswered = [one for one in probes if one.unanswered]
    if unanswered:
        yield unanswered, settings
