"""Faults of the DNS: queries are lost."""

from __future__ import annotations

from collections.abc import Iterator

from lab.explain.faults.registry import (
    Fault,
    FaultChange,
    FaultSite,
    barred,
    central,
    change,
    hosts,
    probes,
)
from lab.topology.intent import Intent

_PORT = 53


def _unreachable(intent: Intent, node: str, _: str) -> FaultChange:
    rule = f"meta l4proto {{ tcp, udp }} th dport {_PORT} counter drop"
    if intent.machine(node).kind == "services":
        return barred(node, "dns-unreachable", "input", -150, [rule])
    server = probes(intent.machine(node))[0].resolver.server
    if intent.logical:
        return _by_access_list(intent, node, server)
    return barred(node, "dns-unreachable", "prerouting", -300, [f"ip daddr {server} {rule}"])


def _by_access_list(intent: Intent, node: str, server: str) -> FaultChange:
    """On the node's logical switch: traffic between pods does not pass the kernel."""
    does = "ovn-nbctl --no-leader-only --timeout=10"
    matches = [f"'ip4.dst == {server} && {protocol}.dst == {_PORT}'" for protocol in ("udp", "tcp")]
    return change(
        central(intent),
        [
            f"{does} --wait=hv --may-exist acl-add {node} from-lport 1000 {match} drop"
            for match in matches
        ],
        [f"{does} --wait=hv acl-del {node} from-lport 1000 {match}" for match in matches],
    )


def _asking(intent: Intent) -> Iterator[FaultSite]:
    if any(pod.role == "dns" for machine in intent.machines for pod in machine.pods):
        yield from (FaultSite(host.name) for host in hosts(intent))
    if intent.services_node:
        yield FaultSite(intent.services_node.machine)


DNS_UNREACHABLE = Fault(
    name="dns-unreachable",
    title="a firewall drops DNS queries of pods, or those to the services node",
    needs="pods, in a lab with a DNS server, or the role of services node",
    sites=_asking,
    change=_unreachable,
    also=("dns-server-unreachable", "dns-down", "no-dns"),
)
