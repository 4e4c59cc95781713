"""Faults of the DNS: queries are lost, or the cluster's DNS has no pods."""

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
from lab.machines.cluster.dns import NAMESPACE, replicas_of
from lab.machines.cluster.linux.api import ADMIN
from lab.topology.intent import Intent
from lab.topology.observed import DNS_SELECTOR

_PORT = 53


def _unreachable(intent: Intent, node: str, _: str) -> FaultChange:
    asked = f"meta l4proto {{ tcp, udp }} th dport {_PORT} counter drop"
    if intent.machine(node).kind == "services":
        return barred(node, "dns-unreachable", "input", -150, [asked])
    server = probes(intent.machine(node))[0].resolver.server
    if intent.logical:
        return _by_access_list(intent, node, server)
    return barred(node, "dns-unreachable", "prerouting", -300, [f"ip daddr {server} {asked}"])


def _by_access_list(intent: Intent, node: str, server: str) -> FaultChange:
    """On the node's logical switch: traffic between pods does not pass the kernel."""
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


def _asking(intent: Intent) -> Iterator[FaultSite]:
    if any(pod.role == "dns" for machine in intent.machines for pod in machine.pods):
        yield from (FaultSite(one.name) for one in hosts(intent))
    if intent.services_node:
        yield FaultSite(intent.services_node.machine)


DNS_UNREACHABLE = Fault(
    name="dns-unreachable",
    title="a firewall drops DNS queries of pods, or those to the services node",
    needs="pods, in a lab with a DNS server, or to be the services node",
    sites=_asking,
    change=_unreachable,
    also=("dns-server-unreachable", "dns-down", "no-dns"),
)

_KUBECTL = f"kubectl --kubeconfig={ADMIN} --namespace={NAMESPACE}"
_SCALE = f"{_KUBECTL} --request-timeout=20s scale deployment coredns --replicas="


def _scale_down(intent: Intent, node: str, _: str) -> FaultChange:
    """Done when the pods have gone, and undone when they answer again."""
    return change(
        node,
        [f"{_SCALE}0", f"{_KUBECTL} wait --for=delete pod -l {DNS_SELECTOR} --timeout=50s"],
        [
            f"{_SCALE}{replicas_of(intent)}",
            f"{_KUBECTL} rollout status deployment coredns --timeout=50s",
        ],
    )


COREDNS_SCALED_DOWN = Fault(
    name="coredns-scaled-down",
    title="CoreDNS has no replicas: its Deployment is scaled to 0",
    needs="a cluster, whose DNS is CoreDNS, and to be its first control plane",
    sites=lambda intent: (FaultSite(name) for name in (intent.control_plane(),) if name),
    change=_scale_down,
    also=("coredns-down", "coredns-scaled-to-zero", "no-coredns"),
)
