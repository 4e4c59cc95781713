"""A part of what arrives at a node is lost.

By chance at the node's firewall, for not every kernel has ``netem``.
"""

from __future__ import annotations

from lab.explain.faults.fault import Fault, FaultChange, FaultSite, change
from lab.explain.faults.parts import barred, card, carriers, nft, wire
from lab.topology.intent import Intent

_PERCENT = 30


def _change(intent: Intent, node: str, _: str) -> FaultChange:
    machine = intent.machine(node)
    if machine.chassis:
        return _behind_a_switch(node, wire(machine))
    device = card(machine).name
    lost = f'iifname "{device}" numgen random mod 100 < {_PERCENT} counter drop'
    return barred(node, FAULT.name, "prerouting", -400, [lost])


def _behind_a_switch(node: str, device: str) -> FaultChange:
    """Of what is sent: a switch in user space has its own copy of what arrives."""
    table = "netdev firewall-packet-loss"
    hook = f"type filter hook egress device {device} priority 0; policy accept;"
    lost = f"numgen random mod 100 < {_PERCENT} counter drop"
    gone = (f"table {table} {{}}", f"delete table {table}")
    return change(
        node,
        [nft(*gone, f"table {table} {{", "chain egress {", hook, lost, "}", "}")],
        [nft(*gone)],
    )


FAULT = Fault(
    name="packet-loss",
    title=f"{_PERCENT} % of the packets that arrive at a node's card are lost",
    needs="to be a node, or a hypervisor of the lab's own",
    sites=lambda intent: (FaultSite(one.name) for one in carriers(intent)),
    change=_change,
    also=("loss", "lossy"),
)
