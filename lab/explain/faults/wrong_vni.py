"""The tunnel of one node has another VNI."""

from __future__ import annotations

from dataclasses import replace

from lab.explain.faults.fault import Fault
from lab.explain.faults.parts import tunnel_remade, tunnelled

FAULT = Fault(
    name="wrong-vni",
    title="a node's tunnel has another VNI than the others",
    needs="a VXLAN tunnel",
    sites=tunnelled,
    change=lambda intent, node, _: tunnel_remade(
        intent.machine(node), lambda right: replace(right, vni=right.vni + 1)
    ),
    also=("vni", "wrong-id"),
)
