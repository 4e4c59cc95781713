"""Two machines have no BGP session because one of them has disabled it."""

from __future__ import annotations

from collections.abc import Iterator

from lab.cluster.footprint import bird_of
from lab.explain.faults.fault import Fault, FaultChange, FaultSite, change
from lab.topology.intent import Intent


def _change(intent: Intent, node: str, peer: str) -> FaultChange:
    machine = intent.machine(node)
    assert machine.speaker is not None, "a site has one"
    session = next(one for one in machine.speaker.sessions if one.machine == peer)
    control = bird_of(intent, machine, "kubernetes" if intent.kubernetes else "lab")
    return change(node, [control.disable(session)], [control.enable(session)])


def _sites(intent: Intent) -> Iterator[FaultSite]:
    for machine in intent.machines:
        if machine.speaker and machine.speaker.sessions:
            yield FaultSite(machine.name, tuple(one.machine for one in machine.speaker.sessions))


FAULT = Fault(
    name="bgp-session-down",
    title="a machine has disabled its BGP session with another one, which withdraws the routes",
    needs="a session of BGP",
    sites=_sites,
    change=_change,
    peer="node",
    also=("bgp-down", "session-down", "bgp-session-shut"),
)
