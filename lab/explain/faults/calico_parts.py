"""What faults of Calico's objects have in common: the first control plane is told. Pure."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from lab.cluster.addons.calico import POOL_KIND, TOPOLOGIES, node_pool, pool_spec
from lab.cluster.linux.api import ADMIN
from lab.explain.faults.fault import FaultChange, FaultSite, change
from lab.explain.faults.parts import kubelets
from lab.topology.intent import Intent

KUBECTL = f"kubectl --kubeconfig={ADMIN} --request-timeout=20s"
NEEDS = "Calico, as a cluster's network"


def sites(intent: Intent) -> Iterator[FaultSite]:
    """The Linux nodes of a cluster of Calico's."""
    if intent.topology in TOPOLOGIES:
        yield from (FaultSite(one.name) for one in kubelets(intent))


def pool_changed(intent: Intent, node: str, wrong: Mapping[str, Any]) -> FaultChange:
    """A node's pool with other values than it should have."""
    kubelet = intent.machine(node).kubelet
    assert kubelet is not None, "a site is a node"
    own = node_pool(node, str(kubelet.pod_cidr))
    right = {key: pool_spec(intent.topology, own)[key] for key in wrong}
    return change(intent.control_plane(), [_patched(own.name, wrong)], [_patched(own.name, right)])


def _patched(name: str, spec: Mapping[str, Any]) -> str:
    patch = json.dumps({"spec": dict(spec)}, separators=(",", ":"))
    return f"{KUBECTL} patch {POOL_KIND} {name} --type=merge -p {shlex.quote(patch)}"
