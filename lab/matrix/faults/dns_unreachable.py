"""What a node's pods ask the DNS server is lost on the way."""

from __future__ import annotations

from lab.matrix.faults.fault import Change, Fault, Site, change
from lab.matrix.faults.parts import barred, central, hosts, probes
from lab.topology.intent import Intent

_PORT = 53


def _change(intent: Intent, node: str, _: str) -> Change:
    server = probes(intent.machine(node))[0].resolver.server
    if intent.logical:
        return _by_access_list(intent, node, server)
    bars = f"ip daddr {server} meta l4proto {{ tcp, udp }} th dport {_PORT} counter drop"
    return barred(node, FAULT.name, "prerouting", -300, [bars])


def _by_access_list(intent: Intent, node: str, server: str) -> Change:
    """On the node's logical switch: what is between pods is none of the kernel's."""
    does = "ovn-nbctl --no-leader-only --timeout=10"
    matches = [f"'ip4.dst == {server} && {one}.dst == {_PORT}'" for one in ("udp", "tcp")]
    return change(
        central(intent),
        [
            f"{does} --wait=hv --may-exist acl-add {node} from-lport 1000 {match} drop"
            for match in matches
        ],
        [f"{does} --wait=hv acl-del {node} from-lport 1000 {match}" for match in matches],
    )


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
