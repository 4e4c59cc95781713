"""A node has no CNI configuration, so that no pod gets a network, and the node is NotReady."""

from __future__ import annotations

from lab.explain.faults.fault import Fault, FaultChange, FaultSite, change
from lab.explain.faults.parts import kubelets
from lab.topology.intent import Intent

_PLACE = "/etc/cni/net.d"
_KEPT = "/etc/cni/kept-of-net.d"
"""In the same file system, and read by nobody."""


def _change(_: Intent, node: str, __: str) -> FaultChange:
    each = 'for one in {there}/*; do [ ! -e "$one" ] || mv -f "$one" {to}/; done'
    return change(
        node,
        [f"mkdir -p {_KEPT}", each.format(there=_PLACE, to=_KEPT)],
        [f"if [ -d {_KEPT} ]; then {each.format(there=_KEPT, to=_PLACE)}; rmdir {_KEPT}; fi"],
    )


FAULT = Fault(
    name="cni-config-missing",
    title="a node has no CNI configuration: its pods go on, and new ones get no network",
    needs="a CNI plugin, which the nodes of clusters have",
    sites=lambda intent: (FaultSite(one.name) for one in kubelets(intent)),
    change=_change,
    also=("cni-missing", "no-cni", "cni-config-gone"),
)
