"""A node has no CNI configuration: no pod gets a network, and the node is NotReady."""

from __future__ import annotations

from lab.explain.faults.fault import Fault, FaultChange, FaultSite, change
from lab.explain.faults.parts import kubelets
from lab.topology.intent import Intent

_PLACE = "/etc/cni/net.d"
_KEPT = "/etc/cni/kept-of-net.d"
"""In the same file system, but read by no program."""


def _change(_: Intent, node: str, __: str) -> FaultChange:
    return change(
        node,
        [
            f"mkdir -p {_KEPT}",
            f'for one in {_PLACE}/*; do [ ! -e "$one" ] || mv -f "$one" {_KEPT}/; done',
        ],
        # containerd reloads its directory after a write, not when a file is moved in
        [f"if [ -d {_KEPT} ]; then cp -a {_KEPT}/. {_PLACE}/ && rm -r {_KEPT}; fi"],
    )


FAULT = Fault(
    name="cni-config-missing",
    title="a node has no CNI configuration: running pods keep working, new ones get no network",
    needs="a CNI plugin, which the nodes of clusters have",
    sites=lambda intent: (FaultSite(one.name) for one in kubelets(intent)),
    change=_change,
    also=("cni-missing", "no-cni", "cni-config-gone"),
)
