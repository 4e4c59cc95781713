"""Large packets to a node's pods are lost, and nobody is told."""

from __future__ import annotations

from lab.matrix.faults.fault import Change, Command, Fault, Site
from lab.matrix.faults.parts import barred, hosts
from lab.topology.intent import Intent

_LESS = 200
"""Bytes taken off; both sizes are far from those of small probes and from full packets."""


def _change(intent: Intent, node: str, _: str) -> Change:
    bridge = intent.machine(node).bridge
    assert bridge is not None, "a site has one"
    silent = barred(
        node,
        FAULT.name,
        "output",
        -150,
        ["icmp type destination-unreachable icmp code frag-needed counter drop"],
    )
    small = Command(node, f"ip link set dev {bridge.name} mtu {bridge.mtu - _LESS}")
    back = Command(node, f"ip link set dev {bridge.name} mtu {bridge.mtu}")
    return Change((small, *silent.do), (back, *silent.undo))


FAULT = Fault(
    name="mtu-black-hole",
    title="a node's bridge has too small an MTU, and the node tells nobody",
    needs="pods",
    sites=lambda intent: (Site(one.name) for one in hosts(intent) if one.bridge),
    change=_change,
    also=("black-hole", "mtu", "pmtu"),
)
