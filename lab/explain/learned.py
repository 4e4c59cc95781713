"""What daemons have not learned, or do not hold: routes of BGP, and virtual gateways. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from lab.explain.difference import Difference
from lab.explain.differences import as_held, differences
from lab.facts.node import NodeFacts
from lab.topology.intent import Intent

_KINDS = {"learned-route-missing", "wrong-learned-route", "gateway-missing"}


def asked(intent: Intent) -> tuple[str, ...]:
    """The machines on which daemons learn routes or hold gateways."""
    candidates = {name for one in intent.gateways for name in one.candidates}
    return tuple(
        machine.name
        for machine in intent.machines
        if machine.name in candidates or any(route.by for route in machine.routes)
    )


def unlearned(intent: Intent, observed: Mapping[str, NodeFacts]) -> Iterator[Difference]:
    """What is not there yet on the machines that were seen, wherever gateways are held now."""
    for machine in as_held(intent, observed).machines:
        if machine.name in observed:
            found = differences(machine, observed[machine.name])
            yield from (one for one in found if one.kind in _KINDS)
