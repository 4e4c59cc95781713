"""Queueing disciplines that delay or drop packets."""

from __future__ import annotations

from collections.abc import Iterator

from lab.explain.check import Check, Difference, Kind, Look
from lab.topology.path import Hop, Path


def _at_device(difference: Difference, hop: Hop, _: Path) -> bool:
    device = difference.object.rpartition(" ")[2]
    return (hop.place, hop.device) == (difference.node, device)


class ShapingCheck(Check):
    """What delays or drops packets on a device."""

    order = 82
    kinds = (Kind("slowed", fault="slow-link", meets=_at_device),)

    def on_machine(self, look: Look) -> Iterator[Difference]:
        for shaper in look.observed.shapers:
            device = f"device {shaper.where}"
            yield look.differs(
                "slowed", device, "no shaping", shaper.rule, shaper.shows, shaper.mends
            )
