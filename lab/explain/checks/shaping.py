"""Queueing disciplines that delay or drop packets."""

from __future__ import annotations

from collections.abc import Iterator

from lab.explain.check import Check, Kind, Look
from lab.facts.difference import Difference
from lab.facts.effect import Effect
from lab.topology.links import is_shape, link_queues, shape_of
from lab.topology.path import Hop, Path
from lab.topology.subject import DeviceSubject, QueueSubject, device_of

_SLOWS = Effect(partial=True)
_SLOWING = {"tbf", "htb", "netem", "police", "hfsc", "cbs", "sfb", "red"}


def _at_device(difference: Difference, hop: Hop, _: Path) -> bool:
    return (hop.place, hop.device) == (difference.node, device_of(difference.subject))


class ShapingCheck(Check):
    """What delays or drops packets on a device."""

    order = 82
    kinds = (Kind("slowed", fault="slow-link", meets=_at_device),)

    def on_machine(self, look: Look) -> Iterator[Difference]:
        own = link_queues(look.intended)
        for item in look.observed.items.values():
            if not isinstance(item.subject, QueueSubject) or item.value.split()[0] not in _SLOWING:
                continue
            if not is_shape(item.value, shape_of(own.get(item.device))):
                subject, words = DeviceSubject(item.device), (item.value, item.shows, item.remove)
                yield look.differs("slowed", subject, "no shaping", *words, effect=_SLOWS)
