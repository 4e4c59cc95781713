"""The tunnel's packets are lost at one node's firewall."""

from __future__ import annotations

from lab.matrix.faults.fault import Fault
from lab.matrix.faults.parts import tunnel_barred, tunnelled

_NAME = "tunnel-udp-dropped"

FAULT = Fault(
    name=_NAME,
    title="a node loses the tunnel's UDP packets without a word",
    needs="a tunnel",
    sites=tunnelled,
    change=lambda intent, node, _: tunnel_barred(intent.machine(node), _NAME, "drop"),
    also=("udp-4789-dropped", "udp-dropped", "vxlan-dropped"),
)
