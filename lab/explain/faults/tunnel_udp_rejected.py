"""One node's firewall rejects the tunnel's packets."""

from __future__ import annotations

from lab.explain.faults.fault import Fault
from lab.explain.faults.parts import tunnel_barred, tunnelled

_NAME = "tunnel-udp-rejected"

FAULT = Fault(
    name=_NAME,
    title="a node rejects the tunnel's UDP packets with an ICMP error",
    needs="a VXLAN tunnel",
    sites=tunnelled,
    change=lambda intent, node, _: tunnel_barred(intent.machine(node), _NAME, "reject"),
    also=("udp-4789-rejected", "udp-rejected", "vxlan-rejected"),
)
