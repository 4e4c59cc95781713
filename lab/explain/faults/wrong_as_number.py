"""A Calico node has another AS number than the router expects, so the session fails."""

from __future__ import annotations

from collections.abc import Iterator

from lab.cluster.addons.calico import AS_NUMBER, as_number
from lab.explain.faults import parts
from lab.explain.faults.fault import Fault, FaultChange, FaultSite, change
from lab.topology.intent import Intent

_WRONG = 65_000
"""A private AS number (RFC 6996) that no node has."""


def _change(intent: Intent, node: str, _: str) -> FaultChange:
    right = as_number(intent, intent.machine(node))
    annotation = f"{parts.CALICO_KUBECTL} annotate --overwrite node {node} {AS_NUMBER}="
    return change(intent.control_plane(), [f"{annotation}{_WRONG}"], [f"{annotation}{right}"])


def _sites(intent: Intent) -> Iterator[FaultSite]:
    for site in parts.calico_nodes(intent):
        if as_number(intent, intent.machine(site.node)):
            yield site


FAULT = Fault(
    name="wrong-as-number",
    title="a node has another AS number than its router expects",
    needs="Calico, as a cluster's network, whose nodes peer with the router",
    sites=_sites,
    change=_change,
    also=("wrong-as", "bgp-wrong-as", "bad-peer-as"),
)
