"""Links that the scenario makes slow, and that are not."""

from __future__ import annotations

from collections.abc import Iterator

from lab.explain.check import Check, Kind, Look
from lab.facts.difference import Difference
from lab.topology.links import link_line, link_queues, shape_of
from lab.topology.subject import DeviceSubject, QueueSubject


class SlowLinkCheck(Check):
    """The queueing disciplines that the scenario asks for."""

    order = 84
    kinds = (Kind("link-not-slow"),)

    def on_machine(self, look: Look) -> Iterator[Difference]:
        if not look.observed.knows("queues"):
            return
        queues = {
            item.device: item.value
            for item in look.observed.items.values()
            if isinstance(item.subject, QueueSubject) and item.subject.handle == "root"
        }
        for device, impairment in link_queues(look.intended).items():
            shape, actual = shape_of(impairment), queues.get(device, "no queue")
            if actual.split()[0] != shape.split()[0]:  # of other figures, it is one that slows
                shows = f"tc -statistics qdisc show dev {device}"
                words = (actual, shows, link_line(device, impairment))
                yield look.differs("link-not-slow", DeviceSubject(device), shape, *words)
