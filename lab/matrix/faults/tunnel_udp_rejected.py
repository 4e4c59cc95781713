"""The tunnel's packets are refused at one node's firewall."""

from __future__ import annotations

from lab.matrix.faults.fault import Change, Fault, Site
from lab.matrix.faults.parts import barred, carriers
from lab.topology.intent import Intent


def _change(intent: Intent, node: str, _: str) -> Change:
    tunnel = intent.machine(node).tunnel
    assert tunnel is not None, "a site has one"
    return barred(node, FAULT.name, "input", -150, [f"udp dport {tunnel.port} counter reject"])


FAULT = Fault(
    name="tunnel-udp-rejected",
    title="a node refuses the tunnel's UDP packets with an ICMP error",
    needs="a VXLAN tunnel",
    sites=lambda intent: (Site(one.name) for one in carriers(intent) if one.tunnel),
    change=_change,
    also=("udp-4789-rejected", "udp-rejected", "vxlan-rejected"),
)
