"""A virtual gateway does not answer ARP, but its holder keeps advertising it (VRRP).

The other candidates hear the holder, and so do not take over.
"""

from __future__ import annotations

from collections.abc import Iterator

from lab.explain.faults.fault import Fault, FaultChange, FaultCommand, FaultSite
from lab.explain.faults.parts import bare, barred
from lab.topology.intent import Intent

_NAME = "gateway-dead"
_HOOK = "output"
_CHAIN = f"type filter hook {_HOOK} priority 0;"


def _change(intent: Intent, node: str, peer: str) -> FaultChange:
    """Drop ARP for its MAC, and flush the entry of the node behind it."""
    gateway = next(one for one in intent.gateways if one.node == peer)
    address = bare(gateway.address)
    dropped = f"arp saddr ip {address} counter drop"
    mute = barred(node, f"{_NAME} {peer}", _HOOK, 0, [dropped], "arp")
    forgotten = FaultCommand(peer, f"ip neighbour flush to {address} dev {gateway.device}")
    return FaultChange((*mute.do, forgotten), mute.undo)


def _sites(intent: Intent) -> Iterator[FaultSite]:
    for machine in intent.machines:
        peers = tuple(one.node for one in intent.gateways if one.holder == machine.name)
        if peers:
            yield FaultSite(machine.name, peers)


FAULT = Fault(
    name=_NAME,
    title="a virtual gateway does not answer, while its holder advertises it (VRRP)",
    needs="to hold a virtual gateway",
    sites=_sites,
    change=_change,
    peer="node",
    also=("gateway-address-dead", "vip-dead", "vrrp-dead", "virtual-address-dead"),
    asks=f"printf '%s\\n' 'table arp tried {{' 'chain tried {{' '{_CHAIN}' '}}' '}}' | nft -c -f -",
)
