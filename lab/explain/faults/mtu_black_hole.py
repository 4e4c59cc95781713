"""Large packets to a node's pods are lost without an error to the sender."""

from __future__ import annotations

from lab.explain.faults.fault import Fault, FaultChange, FaultCommand, FaultSite, change
from lab.explain.faults.parts import barred, card, carriers, probes
from lab.topology.intent import Intent

_LESS = 200
"""Bytes removed; both sizes are far from those of small probes and of full packets."""


def _change(intent: Intent, node: str, _: str) -> FaultChange:
    machine = intent.machine(node)
    bridge, tunnel = machine.bridge, machine.tunnel
    if machine.switch and tunnel:  # a bridge sends no error for what it cannot forward
        by_mtu = f"ip link set dev {tunnel.name} mtu"
        return change(node, [f"{by_mtu} {tunnel.mtu - _LESS}"], [f"{by_mtu} {tunnel.mtu}"])
    assert bridge is not None, "a site has one"
    if bridge.switch:  # a user-space switch drops what its interface does not take
        own = card(machine)
        by_mtu = f"ip link set dev {own.card} mtu"
        return change(node, [f"{by_mtu} {own.mtu - _LESS}"], [f"{by_mtu} {own.mtu}"])
    silent = barred(
        node,
        FAULT.name,
        "output",
        -150,
        ["icmp type destination-unreachable icmp code frag-needed counter drop"],
    )
    small = FaultCommand(node, f"ip link set dev {bridge.name} mtu {bridge.mtu - _LESS}")
    back = FaultCommand(node, f"ip link set dev {bridge.name} mtu {bridge.mtu}")
    return FaultChange((small, *silent.do), (back, *silent.undo))


FAULT = Fault(
    name="mtu-black-hole",
    title="the MTU of a node's bridge or a hypervisor's tunnel is too small, without ICMP errors",
    needs="pods, or to be one of several hypervisors of the lab's own",
    sites=lambda intent: (
        FaultSite(one.name)
        for one in carriers(intent)
        if (one.bridge and probes(one)) or (one.switch and one.tunnel)
    ),
    change=_change,
    also=("black-hole", "mtu", "pmtu"),
)
