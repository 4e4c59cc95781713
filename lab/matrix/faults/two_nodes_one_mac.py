"""Two nodes have one MAC, as machines cloned without care."""

from __future__ import annotations

from collections.abc import Iterator

from lab.matrix.faults.fault import Change, Fault, Site, change
from lab.matrix.faults.parts import card, nodes
from lab.topology.commands import tables
from lab.topology.intent import Intent


def _change(intent: Intent, node: str, peer: str) -> Change:
    machine = intent.machine(node)
    own, other = card(machine), card(intent.machine(peer))
    set_mac = f"ip link set dev {own.name} address"
    return change(
        node,
        [f"{set_mac} {other.mac}"],
        [f"{set_mac} {own.mac}", *tables(machine, own.name)],
    )


def _sites(intent: Intent) -> Iterator[Site]:
    for alike in (tuple(nodes(intent)), intent.hypervisors):
        names = [one.name for one in alike if one.chassis is None]  # OVN has MACs of its own
        for name in names:
            peers = tuple(one for one in names if one != name)
            if peers:
                yield Site(name, peers)


FAULT = Fault(
    name="two-nodes-one-mac",
    title="a node's card has the MAC of another node's",
    needs="a card that the kernel itself answers on, and another node beside it",
    sites=_sites,
    change=_change,
    peer="node",
    also=("duplicate-mac", "same-mac"),
)
