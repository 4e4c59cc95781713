"""The tunnel of one node has another network identifier."""

from __future__ import annotations

from dataclasses import replace

from lab.matrix.faults.fault import Change, Fault, Site, change
from lab.matrix.faults.parts import carriers
from lab.topology.commands import remade_tunnel
from lab.topology.intent import Intent


def _change(intent: Intent, node: str, _: str) -> Change:
    machine = intent.machine(node)
    tunnel = machine.tunnel
    assert tunnel is not None, "a site has one"
    wrong = replace(tunnel, vni=tunnel.vni + 1)
    return change(node, remade_tunnel(machine, wrong), remade_tunnel(machine, tunnel))


FAULT = Fault(
    name="wrong-vni",
    title="a node's tunnel has another VNI than the others",
    needs="a VXLAN tunnel",
    sites=lambda intent: (Site(one.name) for one in carriers(intent) if one.tunnel),
    change=_change,
    also=("vni", "wrong-id"),
)
