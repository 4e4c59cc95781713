"""A node's firewall drops packets to its NodePorts."""

from __future__ import annotations

from lab.explain.faults.fault import Fault, FaultChange, FaultSite
from lab.explain.faults.parts import barred, hosts
from lab.topology.intent import Intent, MachineIntent


def _change(intent: Intent, node: str, _: str) -> FaultChange:
    ports = _ports(intent.machine(node))
    bars = (
        f"meta l4proto {{ tcp, udp }} th dport {min(ports)}-{max(ports)} "
        "fib daddr type local counter drop"
    )
    return barred(node, FAULT.name, "prerouting", -300, [bars])


def _serves(machine: MachineIntent) -> bool:
    """Windows nodes of a logical network serve no NodePorts anyway."""
    return machine.chassis is None or machine.os == "linux"


def _ports(machine: MachineIntent) -> list[int]:
    services = machine.translation.services if machine.translation else ()
    return [port for one in services for port in one.node_ports()]


FAULT = Fault(
    name="nodeport-blocked",
    title="a node's firewall drops packets to its NodePorts",
    needs="NodePorts",
    sites=lambda intent: (
        FaultSite(one.name) for one in hosts(intent) if _ports(one) and _serves(one)
    ),
    change=_change,
    also=("nodeports-blocked", "node-port-blocked"),
)
