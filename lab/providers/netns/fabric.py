"""The lab's own switches: one bridge a segment in the fabric, or one a hypervisor. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count

from lab._errors import UsageError
from lab.providers.netns.operations import (
    BridgeAdd,
    LinkUp,
    MasterSet,
    NamespaceOperations,
    Operation,
    SysctlSet,
    VethAdd,
)
from lab.topology.intent import Intent, MachineIntent

FABRIC = "fabric"
LOOPBACK = "lo"
LOOPBACK_INDEX = 1
_NAME_LENGTH = 15
"""IFNAMSIZ of linux/if.h less its closing zero."""

NO_IPV6 = (
    SysctlSet("net/ipv6/conf/all/disable_ipv6", "1", optional=True),
    SysctlSet("net/ipv6/conf/default/disable_ipv6", "1", optional=True),
)
UNFILTERED = SysctlSet("net/bridge/bridge-nf-call-iptables", "0", optional=True)
"""What crosses a switch is none of its machine's own packets."""


@dataclass(slots=True)
class Draft:
    """One namespace's operations while they are being written."""

    namespace: str
    indexes: dict[str, int] = field(default_factory=lambda: {LOOPBACK: LOOPBACK_INDEX})
    operations: list[Operation] = field(default_factory=list)

    def has(self, device: str, index: int) -> None:
        """Note a device that the namespace comes to have."""
        if device in self.indexes or len(device) > _NAME_LENGTH:
            raise UsageError(
                f"compiling namespace '{self.namespace}'",
                f"device name '{device}' is there twice or longer than {_NAME_LENGTH} characters",
                "give the device another name in its topology",
            )
        self.indexes[device] = index

    def done(self) -> NamespaceOperations:
        """Freeze."""
        return NamespaceOperations(
            self.namespace, tuple(self.indexes.items()), tuple(self.operations)
        )


def port_mac(index: int) -> str:
    """The MAC of a bridge port or fabric bridge: local, and the same in every run."""
    return ":".join(f"{byte:02x}" for byte in (0x0E, 0, *index.to_bytes(4)))


def join(intent: Intent, drafts: dict[str, Draft], indexes: count[int]) -> None:
    """The fabric: a bridge for each segment that is one piece, and the cards plugged into it."""
    fabric = drafts[FABRIC]
    fabric.operations += [*NO_IPV6, UNFILTERED, LinkUp(LOOPBACK)]
    cards = [
        (machine.name, card)
        for machine in intent.everything()
        for card in machine.interfaces
        if card.host is None
    ]
    plugged = {card.segment for _, card in cards}
    for segment in (one for one in intent.segments if one.name in plugged):
        index = next(indexes)
        fabric.has(segment.name, index)
        fabric.operations.append(BridgeAdd(segment.name, index, port_mac(index), segment.mtu))
    for machine, card in cards:
        index, far = next(indexes), next(indexes)
        port = f"p{index}"
        fabric.has(port, index)
        far_name = card.card or card.name
        drafts[machine].has(far_name, far)
        fabric.operations += [
            VethAdd(port, index, port_mac(index), machine, far_name, far, card.mac, card.mtu),
            MasterSet(port, card.segment),
        ]


def split(
    intent: Intent,
    machine: MachineIntent,
    drafts: dict[str, Draft],
    indexes: count[int],
) -> None:
    """A hypervisor's piece of a segment: its bridge, the tunnel to the others, and the ports."""
    switch = machine.switch
    if switch is None:
        return
    cards = {(one.name, card.name): card for one in intent.machines for card in one.interfaces}
    draft, index = drafts[machine.name], next(indexes)
    draft.has(switch.name, index)
    draft.operations.append(BridgeAdd(switch.name, index, switch.mac, switch.mtu))
    if machine.tunnel:
        draft.operations.append(MasterSet(machine.tunnel.name, switch.name))
    for port in switch.ports:
        card = cards[port.machine, port.card]
        index, far = next(indexes), next(indexes)
        draft.has(port.name, index)
        far_name = card.card or card.name
        drafts[port.machine].has(far_name, far)
        draft.operations += [
            VethAdd(
                port.name, index, port_mac(index), port.machine, far_name, far, card.mac, card.mtu
            ),
            MasterSet(port.name, switch.name),
        ]
