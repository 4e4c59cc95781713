"""The tunnel's packets are lost at one node's firewall."""

from __future__ import annotations

from lab.matrix.faults.fault import Change, Fault, Site
from lab.matrix.faults.parts import barred, carriers
from lab.topology.intent import Intent


def _change(intent: Intent, node: str, _: str) -> Change:
    tunnel = intent.machine(node).tunnel
    assert tunnel is not None, "a site has one"
    return barred(node, FAULT.name, "input", -150, [f"udp dport {tunnel.port} counter drop"])


FAULT = Fault(
    name="tunnel-udp-dropped",
    title="a node loses the tunnel's UDP packets without a word",
    needs="a tunnel",
    sites=lambda intent: (Site(one.name) for one in carriers(intent) if one.tunnel),
    change=_change,
    also=("udp-4789-dropped", "udp-dropped", "vxlan-dropped"),
)
