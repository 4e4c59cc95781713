"""A part of what arrives at a node is lost.

By chance at the node's firewall, for not every kernel has ``netem``.
"""

from __future__ import annotations

from lab.matrix.faults.fault import Change, Fault, Site
from lab.matrix.faults.parts import barred, card, carriers
from lab.topology.intent import Intent

_PERCENT = 30


def _change(intent: Intent, node: str, _: str) -> Change:
    device = card(intent.machine(node)).name
    lost = f'iifname "{device}" numgen random mod 100 < {_PERCENT} counter drop'
    return barred(node, FAULT.name, "prerouting", -400, [lost])


FAULT = Fault(
    name="packet-loss",
    title=f"{_PERCENT} % of the packets that arrive at a node's card are lost",
    needs="to be a node, or a hypervisor of the lab's own",
    sites=lambda intent: (Site(one.name) for one in carriers(intent)),
    change=_change,
    also=("loss", "lossy"),
)
