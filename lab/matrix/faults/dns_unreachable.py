"""What a node's pods ask the DNS server is lost on the way."""

from __future__ import annotations

from lab.matrix.faults.fault import Change, Fault, Site
from lab.matrix.faults.parts import barred, hosts, probes
from lab.topology.intent import Intent

_PORT = 53


def _change(intent: Intent, node: str, _: str) -> Change:
    server = probes(intent.machine(node))[0].resolver.server
    bars = f"ip daddr {server} meta l4proto {{ tcp, udp }} th dport {_PORT} counter drop"
    return barred(node, FAULT.name, "prerouting", -300, [bars])


FAULT = Fault(
    name="dns-unreachable",
    title="a node's firewall loses what its pods ask the DNS server",
    needs="pods, in a lab with a DNS server",
    sites=lambda intent: (
        Site(one.name)
        for one in hosts(intent)
        if any(pod.role == "dns" for machine in intent.machines for pod in machine.pods)
    ),
    change=_change,
    also=("dns-server-unreachable", "dns-down", "no-dns"),
)
