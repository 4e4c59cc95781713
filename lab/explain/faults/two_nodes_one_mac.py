"""Two machines on one network have the same MAC."""

from __future__ import annotations

from collections.abc import Iterator

from lab.explain.faults.fault import Fault, FaultChange, FaultCommand
from lab.explain.faults.parts import card, nodes, while_up, with_others
from lab.topology.commands import tables
from lab.topology.intent import Intent, Interface


def _change(intent: Intent, node: str, peer: str) -> FaultChange:
    machine, twin = intent.machine(node), intent.machine(peer)
    own, other = card(machine), card(twin)
    set_mac = f"ip link set dev {own.name} address"
    return FaultChange(
        (FaultCommand(node, f"{set_mac} {other.mac}"),),
        (
            FaultCommand(node, f"{set_mac} {own.mac}"),
            FaultCommand(node, while_up(own.name, tables(machine, own.name))),
            FaultCommand(
                peer, while_up(other.name, (*_announced(other), *tables(twin, other.name)))
            ),
        ),
    )


def _announced(card: Interface) -> Iterator[str]:
    """Make a machine send by an interface, so that the switch learns its port again.

    It sends gratuitous ARP (``arp_notify`` of the kernel's ip-sysctl) as for a new MAC, and flushes
    its neighbours.
    """
    setting = f"/proc/sys/net/ipv4/conf/{card.name}/arp_notify"
    yield f"echo 1 > {setting}"
    yield f"ip link set dev {card.name} address {card.mac}"
    yield f"echo 0 > {setting}"


FAULT = Fault(
    name="two-nodes-one-mac",
    title="a node's card has the MAC of another node's",
    needs="a card that the kernel itself answers on, and another node beside it",
    sites=lambda intent: (
        *with_others(one for one in nodes(intent) if one.chassis is None),  # OVN has its own
        *with_others(intent.hypervisors),
    ),
    change=_change,
    peer="node",
    also=("duplicate-mac", "same-mac"),
)
