"""A scenario's own hypervisors: the node segment split among them and joined by a VXLAN.

Every machine of the segment is plugged into its hypervisor's switch; each hypervisor's tunnel has
an entry for every machine on the others, and a flood entry for each other hypervisor. Kubeinit
joins hypervisors by OVN with Geneve; a VXLAN carries the same frames with 8 bytes less of overhead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from lab.plan.plan import Plan, PlannedHypervisor
from lab.plan.planner import VXLAN_OVERHEAD
from lab.scenario.reserved import HYPERVISOR_CIDR
from lab.topology.intent import (
    FLOOD,
    ForwardingEntry,
    Intent,
    Interface,
    MachineIntent,
    Neighbour,
    Segment,
    Switch,
    SwitchPort,
    Tunnel,
)
from lab.topology.machines import CLUSTER, ROUTER, UPLINK
from lab.topology.services_node import BALANCER

SEGMENT = "hypervisors"
SWITCH = "br-nodes"
TUNNEL = "vxlan-nodes"
VNI = 1
"""Different from the pods' own overlay, whose lowest VNI on Windows is 4096."""
PORT = 4789


def spread(plan: Plan, intent: Intent) -> Intent:
    """Plug every machine of the node segment into its hypervisor's switch, if there are any."""
    if not plan.hypervisors:
        return intent
    where = {node.name: str(node.hypervisor) for node in plan.nodes}
    where[ROUTER] = plan.hypervisors[0].name
    between = Segment(SEGMENT, str(HYPERVISOR_CIDR), plan.hypervisor_mtu)
    return replace(
        intent,
        segments=(*intent.segments, between),
        machines=tuple(_plug_cards(machine, where) for machine in intent.machines),
        hypervisors=tuple(
            _hypervisor(plan, intent, hypervisor, where) for hypervisor in plan.hypervisors
        ),
    )


def on_real_ones(intent: Intent) -> Intent:
    """The Intent for machines on real hypervisors.

    They are taken in the order of the inventory: the scenario's second is the inventory's second.
    They carry the node segment in their own way. The services node's programs stay the same, except
    with a real cluster, which brings the balancer of its API servers itself.
    """
    front = intent.services_node
    if front and intent.kubernetes:
        front = replace(front, tls=True)
    numbers = {machine.name: number for number, machine in enumerate(intent.hypervisors, start=1)}
    places = {machine: numbers[host] for machine, host in intent.hosts()}
    machines = tuple(
        _by_number(machine, places.get(machine.name), cluster=intent.kubernetes is not None)
        for machine in intent.machines
    )
    segments = tuple(segment for segment in intent.segments if segment.name != SEGMENT)
    return replace(
        intent,
        segments=segments,
        machines=machines,
        hypervisors=(),
        services_node=front,
    )


def _by_number(machine: MachineIntent, place: int | None, *, cluster: bool) -> MachineIntent:
    hardware = machine.hardware
    kept = (daemon for daemon in machine.daemons if not cluster or daemon.name != BALANCER)
    if place is not None:
        hardware = replace(hardware, hypervisor=None, place=place)
    return replace(
        machine,
        interfaces=tuple(replace(card, host=None) for card in machine.interfaces),
        hardware=hardware,
        daemons=tuple(kept),
    )


def _plug_cards(machine: MachineIntent, where: Mapping[str, str]) -> MachineIntent:
    cards = tuple(
        replace(card, host=where[machine.name]) if card.segment == CLUSTER else card
        for card in machine.interfaces
    )
    return replace(machine, interfaces=cards)


def _hypervisor(
    plan: Plan, intent: Intent, own: PlannedHypervisor, where: Mapping[str, str]
) -> MachineIntent:
    others = {
        hypervisor.name: hypervisor
        for hypervisor in plan.hypervisors
        if hypervisor.name != own.name
    }
    cards = [
        (machine.name, card)
        for machine in intent.machines
        for card in machine.interfaces
        if card.segment == CLUSTER
    ]
    here = [(name, card) for name, card in cards if where[name] == own.name]
    return MachineIntent(
        name=own.name,
        kind="hypervisor",
        os="linux",
        interfaces=(_make_uplink(plan, own),),
        tunnel=_make_tunnel(plan, own) if others else None,
        neighbours=tuple(
            Neighbour(str(hypervisor.address), hypervisor.mac, UPLINK)
            for hypervisor in others.values()
        ),
        forwarding=(
            *(
                ForwardingEntry(FLOOD, TUNNEL, str(hypervisor.address))
                for hypervisor in others.values()
            ),
            *_forwarding_to_others(cards, others, where),
        ),
        switch=Switch(
            SWITCH,
            CLUSTER,
            _own_mac("0c", own),
            plan.node_mtu,
            tuple(
                SwitchPort(f"vnet{number}", name, card.name)
                for number, (name, card) in enumerate(here)
            ),
        ),
    )


def _forwarding_to_others(
    cards: list[tuple[str, Interface]],
    others: Mapping[str, PlannedHypervisor],
    where: Mapping[str, str],
) -> Iterator[ForwardingEntry]:
    for name, card in cards:
        if where[name] in others:
            yield ForwardingEntry(card.mac, TUNNEL, str(others[where[name]].address))


def _make_uplink(plan: Plan, own: PlannedHypervisor) -> Interface:
    address = f"{own.address}/{HYPERVISOR_CIDR.prefixlen}"
    return Interface(UPLINK, SEGMENT, own.mac, (address,), plan.hypervisor_mtu)


def _make_tunnel(plan: Plan, own: PlannedHypervisor) -> Tunnel:
    return Tunnel(
        name=TUNNEL,
        vni=VNI,
        port=PORT,
        local=str(own.address),
        device=UPLINK,
        mac=_own_mac("0e", own),
        addresses=(),
        mtu=plan.hypervisor_mtu - VXLAN_OVERHEAD,
    )


def _own_mac(first: str, own: PlannedHypervisor) -> str:
    """The uplink's MAC with another first byte, which no machine of the segment has."""
    return f"{first}{own.mac[2:]}"
