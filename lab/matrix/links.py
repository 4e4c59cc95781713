"""Slow and lossy links of a lab: how long its probes wait, and which cells cross them. Pure."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from lab.matrix.run import RunPace
from lab.matrix.verdict import CellResult
from lab.providers.provider import LARGE_TCP_BYTES, ProbeSettings
from lab.topology.intent import Intent
from lab.topology.links import impaired

_LARGE_BITS = 10 * LARGE_TCP_BYTES
"""Of a large TCP probe in one direction: its bytes, with headers and repeated packets."""
_ROUND_TRIPS = 10
"""Handshake and slow start there and back of a large TCP probe."""
_LOST_SECONDS = 3.0
"""In which TCP sends a lost first packet twice again (RFC 6298: after 1 s, then 2 s)."""


def follow_links(pace: RunPace, intent: Intent) -> RunPace:
    """The pace for the lab's links: probes wait longer, and fewer are in flight."""
    machines = impaired(intent)
    every = [each for machine in machines for each in (machine.sends, machine.receives) if each]
    if not every:
        return pace
    one_way = max((machine.sends.delay for machine in machines if machine.sends), default=0)
    one_way += max((machine.receives.delay for machine in machines if machine.receives), default=0)
    rate = min((each.rate for each in every if each.rate), default=0)
    wait = _ROUND_TRIPS * 2 * one_way / 1_000 + (4 * _LARGE_BITS / rate if rate else 0.0)
    wait += _LOST_SECONDS if any(each.loss for each in every) else 0.0

    def follow(settings: ProbeSettings) -> ProbeSettings:
        timeout = settings.timeout + wait
        room = max(1, int(rate * timeout / (4 * _LARGE_BITS))) if rate else settings.in_flight
        return replace(settings, timeout=timeout, in_flight=min(room, settings.in_flight))

    return replace(
        pace,
        first=follow(pace.first),
        second=follow(pace.second),
        streams=replace(pace.streams, timeout=pace.streams.timeout + wait),
        settle=pace.settle + wait,
    )


class LossyLinks:
    """The nodes of a lab whose links lose packets."""

    def __init__(self, intent: Intent) -> None:
        self._nodes = {
            machine.name
            for machine in impaired(intent)
            if any(each and each.loss for each in (machine.sends, machine.receives))
        }

    def add_remark(self, result: CellResult) -> CellResult:
        """The result; the detail of one that is red says that a link of the path loses packets."""
        cell = result.cell
        through = [cell.source.node, *([cell.entry] if cell.entry else []), cell.target.node]
        crossed = (node for ends in pairwise(through) if len({*ends}) > 1 for node in ends)
        node = next((node for node in crossed if node in self._nodes), None)
        if result.verdict not in {"fail", "flaky"} or not node:
            return result
        return replace(
            result, detail=f"{result.detail}; the link of '{node}' loses packets in this scenario"
        )
