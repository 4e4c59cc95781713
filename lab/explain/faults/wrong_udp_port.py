"""The tunnel of one node has another UDP port."""

from __future__ import annotations

from dataclasses import replace

from lab.explain.faults.fault import Fault
from lab.explain.faults.parts import tunnel_remade, tunnelled

FAULT = Fault(
    name="wrong-udp-port",
    title="a node's tunnel has another UDP port than the others",
    needs="a VXLAN tunnel",
    sites=tunnelled,
    change=lambda intent, node, _: tunnel_remade(
        intent.machine(node), lambda right: replace(right, port=right.port + 1)
    ),
    also=("wrong-port", "vxlan-port"),
)
