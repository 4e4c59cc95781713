"""A node has another node's pod CIDR as well as its own."""

from __future__ import annotations

from ipaddress import ip_interface

from lab.explain.faults.fault import Fault, FaultChange, change
from lab.explain.faults.parts import hosts, with_others, without_address
from lab.topology.commands import replace_route
from lab.topology.intent import Intent, MachineIntent


def _change(intent: Intent, node: str, peer: str) -> FaultChange:
    machine, other = intent.machine(node), intent.machine(peer)
    assert machine.bridge is not None, "a site has one"
    assert other.bridge is not None, "a peer has one"
    device, address = machine.bridge.name, other.bridge.addresses[0]
    cidr = str(ip_interface(address).network)
    static = [one for one in machine.routes if one.by is None]  # learned ones yield to the address
    routes = [one for one in static if one.destination == cidr]
    return change(
        node,
        [
            *(f"ip route del {cidr} dev {one.device}" for one in routes),
            f"ip address replace {address} dev {device}",
        ],
        [without_address(address, device), *(replace_route(one) for one in routes)],
    )


def _has_bridge(machine: MachineIntent) -> bool:
    """Whether it has its own bridge; a logical switch's port has no pods behind it."""
    return bool(machine.bridge and machine.bridge.addresses and machine.bridge.switch is None)


FAULT = Fault(
    name="duplicate-node-pod-cidr",
    title="a node also has the pod CIDR of another node",
    needs="a bridge of its own beside another node's",
    sites=lambda intent: with_others(one for one in hosts(intent) if _has_bridge(one)),
    change=_change,
    peer="node",
    also=("duplicate-pod-cidr", "duplicate-cidr"),
)
