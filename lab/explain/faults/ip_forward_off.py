"""A node, or the router, does not forward packets that are not its own."""

from __future__ import annotations

from lab.explain.faults.fault import Fault, FaultChange, FaultSite, change
from lab.explain.faults.parts import probes
from lab.topology.intent import Intent

_SETTING = "/proc/sys/net/ipv4/ip_forward"


def _change(_: Intent, node: str, __: str) -> FaultChange:
    return change(node, [f"echo 0 > {_SETTING}"], [f"echo 1 > {_SETTING}"])


FAULT = Fault(
    name="ip-forward-off",
    title="a node, or the router, does not forward packets (ip_forward is 0)",
    needs="pods, or to be the router",
    sites=lambda intent: (
        FaultSite(one.name)
        for one in intent.machines
        if one.forwards and (probes(one) or one.kind == "router")
    ),
    change=_change,
    also=("forwarding-off", "ip_forward"),
)
