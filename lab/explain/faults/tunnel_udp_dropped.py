"""One node's firewall drops the tunnel's packets."""

from __future__ import annotations

from lab.explain.faults.fault import Fault, FaultChange, FaultSite, change
from lab.explain.faults.parts import card, carriers, tunnel_barred
from lab.topology.intent import Intent
from lab.topology.logical import GENEVE_PORT

_NAME = "tunnel-udp-dropped"
_PRIORITY = 100
"""Higher than that of the single flow that switches everything."""


def _change(intent: Intent, node: str, _: str) -> FaultChange:
    machine = intent.machine(node)
    if machine.chassis is None:
        return tunnel_barred(machine, _NAME, "drop")
    # the kernel's firewall does not see the packets of a user-space switch
    bridge, flow = card(machine).name, f"priority={_PRIORITY},udp,tp_dst={GENEVE_PORT}"
    return change(
        node,
        [f"ovs-ofctl --timeout=10 add-flow {bridge} {flow},actions=drop"],
        [f"ovs-ofctl --timeout=10 --strict del-flows {bridge} {flow}"],
    )


FAULT = Fault(
    name=_NAME,
    title="a node drops the tunnel's UDP packets silently",
    needs="a tunnel",
    sites=lambda intent: (
        FaultSite(one.name) for one in carriers(intent) if one.tunnel or one.chassis
    ),
    change=_change,
    also=("udp-4789-dropped", "udp-dropped", "vxlan-dropped"),
)
