"""Faults by which two have what only one may have: an address, a MAC, a pod CIDR."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from ipaddress import ip_interface

from lab.explain.faults.registry import (
    Fault,
    FaultChange,
    FaultCommand,
    FaultSite,
    change,
    hosts,
    nodes,
    probes,
    with_others,
    with_peers,
    without_address,
)
from lab.topology.commands import replace_route, tables
from lab.topology.intent import Intent, Interface, MachineIntent
from lab.topology.routing import bare

_CARD = "eth0"


def _same_address(intent: Intent, node: str, peer: str) -> FaultChange:
    taken = next(
        f"{bare(pod.address)}/32"
        for machine in intent.machines
        for pod in machine.pods
        if pod.name == peer
    )
    thief = next(pod.name for pod in probes(intent.machine(node)) if pod.name != peer)
    return change(
        thief,
        [f"ip address replace {taken} dev {_CARD}"],
        [without_address(taken, _CARD)],
    )


def _with_pods(intent: Intent) -> Iterator[FaultSite]:
    every = [(host.name, pod.name) for host in hosts(intent) for pod in probes(host)]

    def peers(machine: MachineIntent) -> list[str]:
        own = [pod.name for pod in probes(machine)]
        others = [pod for where, pod in every if where != machine.name]
        return others + (own if len(own) > 1 else [])

    return with_peers(hosts(intent), peers)


DUPLICATE_POD_ADDRESS = Fault(
    name="duplicate-pod-address",
    title="a pod of the node has the address of another pod",
    needs="pods",
    sites=_with_pods,
    change=_same_address,
    peer="pod",
    also=("duplicate-address", "duplicate-ip"),
)


def _same_cidr(intent: Intent, node: str, peer: str) -> FaultChange:
    machine, other = intent.machine(node), intent.machine(peer)
    assert machine.bridge is not None, "a site has one"
    assert other.bridge is not None, "a peer has one"
    device, address = machine.bridge.name, other.bridge.addresses[0]
    cidr = str(ip_interface(address).network)
    static = [
        route for route in machine.routes if route.by is None
    ]  # learned ones yield to the address
    routes = [route for route in static if route.destination == cidr]
    return change(
        node,
        [
            *(f"ip route del {cidr} dev {route.device}" for route in routes),
            f"ip address replace {address} dev {device}",
        ],
        [without_address(address, device), *(replace_route(route) for route in routes)],
    )


def _has_bridge(machine: MachineIntent) -> bool:
    """Whether it has its own bridge; a logical switch's port has no pods behind it."""
    return bool(machine.bridge and machine.bridge.addresses and machine.bridge.switch is None)


DUPLICATE_NODE_POD_CIDR = Fault(
    name="duplicate-node-pod-cidr",
    title="a node also has the pod CIDR of another node",
    needs="a bridge of its own, in a lab in which another node has one",
    sites=lambda intent: with_others(host for host in hosts(intent) if _has_bridge(host)),
    change=_same_cidr,
    peer="node",
    also=("duplicate-pod-cidr", "duplicate-cidr"),
)


def _same_mac(intent: Intent, node: str, peer: str) -> FaultChange:
    machine, twin = intent.machine(node), intent.machine(peer)
    own, other = machine.card, twin.card
    set_mac = f"ip link set dev {own.name} address"
    return FaultChange(
        (FaultCommand(node, f"{set_mac} {other.mac}"),),
        (
            FaultCommand(node, f"{set_mac} {own.mac}"),
            FaultCommand(node, _while_up(own.name, tables(machine, own.name))),
            FaultCommand(
                peer, _while_up(other.name, (*_announced(other), *tables(twin, other.name)))
            ),
        ),
    )


def _while_up(device: str, lines: Iterable[str]) -> str:
    """Run the lines if the device is up; if another fault has it down, its undo restores them."""
    return f"if ip -o link show up dev {device} | grep -q .; then {' && '.join(lines)}; fi"


def _announced(card: Interface) -> Iterator[str]:
    """Make a machine send by an interface, so that the switch learns its port again.

    It sends gratuitous ARP (``arp_notify`` of the kernel's ip-sysctl) as for a new MAC, and flushes
    its neighbours.
    """
    setting = f"/proc/sys/net/ipv4/conf/{card.name}/arp_notify"
    yield f"echo 1 > {setting}"
    yield f"ip link set dev {card.name} address {card.mac}"
    yield f"echo 0 > {setting}"


TWO_NODES_ONE_MAC = Fault(
    name="two-nodes-one-mac",
    title="a node's card has the MAC of another node's",
    needs="a card on which the kernel answers ARP, and another node on the same network",
    sites=lambda intent: (
        *with_others(node for node in nodes(intent) if node.chassis is None),  # OVN has its own
        *with_others(intent.hypervisors),
    ),
    change=_same_mac,
    peer="node",
    also=("duplicate-mac", "same-mac"),
)
