"""A node, or the router, does not forward packets that are not its own."""

from __future__ import annotations

from lab.explain.faults.registry import Fault, change, probes, sites_on

_SETTING = "/proc/sys/net/ipv4/ip_forward"

FAULT = Fault(
    name="ip-forward-off",
    title="a node, or the router, does not forward packets (ip_forward is 0)",
    needs="pods, or the role of router",
    sites=sites_on(
        lambda intent: intent.machines,
        lambda _, machine: machine.forwards and (probes(machine) or machine.kind == "router"),
    ),
    change=lambda _, node, __: change(node, [f"echo 0 > {_SETTING}"], [f"echo 1 > {_SETTING}"]),
    also=("forwarding-off", "ip_forward"),
)
