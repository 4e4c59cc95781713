"""The tunnel's packets are lost at one node's firewall."""

from __future__ import annotations

from lab.matrix.faults.fault import Change, Fault, Site, change
from lab.matrix.faults.parts import barred, card, carriers
from lab.topology.intent import Intent
from lab.topology.logical import GENEVE_PORT

_PRIORITY = 100
"""Before that of the one flow that switches everything."""


def _change(intent: Intent, node: str, _: str) -> Change:
    machine = intent.machine(node)
    tunnel = machine.tunnel
    if machine.chassis:  # the kernel's firewall does not see what a switch in user space carries
        bridge = card(machine).name
        flow = f"udp,tp_dst={GENEVE_PORT}"
        return change(
            node,
            [f"ovs-ofctl --timeout=10 add-flow {bridge} priority={_PRIORITY},{flow},actions=drop"],
            [f"ovs-ofctl --timeout=10 --strict del-flows {bridge} priority={_PRIORITY},{flow}"],
        )
    assert tunnel is not None, "a site has one"
    return barred(node, FAULT.name, "input", -150, [f"udp dport {tunnel.port} counter drop"])


FAULT = Fault(
    name="tunnel-udp-dropped",
    title="a node loses the tunnel's UDP packets without a word",
    needs="a tunnel",
    sites=lambda intent: (Site(one.name) for one in carriers(intent) if one.tunnel or one.chassis),
    change=_change,
    also=("udp-4789-dropped", "udp-dropped", "vxlan-dropped"),
)
