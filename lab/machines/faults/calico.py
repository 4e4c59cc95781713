"""Faults of a cluster's Calico: its Felix, and what its objects ask for."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from lab.explain.faults.registry import (
    Fault,
    FaultChange,
    FaultCommand,
    change,
    kubelets,
    sites_on,
    until,
)
from lab.machines.addons.calico import (
    AS_NUMBER,
    POOL_KIND,
    VXLAN,
    as_number,
    has_felix,
    node_pool,
    pool_spec,
)
from lab.machines.cluster.linux.api import ADMIN
from lab.topology.intent import Intent

_KUBECTL = f"kubectl --kubeconfig={ADMIN} --request-timeout=20s"
_NEEDS = "Calico as the cluster's network"
_nodes = sites_on(kubelets, lambda intent, _: has_felix(intent))

_SERVICE = "/etc/service/enabled/felix"
_ASKED = "nsenter --target $(pgrep -o -f '[r]unsvdir -P /etc/service/enabled') --mount sv"
_FELIX_SECONDS, _ROUTE_SECONDS = 20, 30
_MASQUERADED = "cali40masq-ipam-pools"
"""Felix's set of the blocks that it masquerades (seen of Calico 3.31)."""


def _kill_felix(_: Intent, node: str, __: str) -> FaultChange:
    """The container's runit restarts Felix unless the service is stopped."""
    runs = "pgrep -f '[c]alico-node -felix' > /dev/null"
    back = until(runs, _FELIX_SECONDS)
    return change(
        node,
        [f"{_ASKED} force-stop {_SERVICE}"],
        [f"{runs} || {{ {_ASKED} up {_SERVICE}; {back}; }}"],
    )


FELIX_KILLED = Fault(
    name="felix-killed",
    title="Felix of a node was killed and does not start again: changes do not reach the node",
    needs=_NEEDS,
    sites=_nodes,
    change=_kill_felix,
    also=("felix-down", "calico-node-down"),
)


def _pool_changed(intent: Intent, node: str, wrong: Mapping[str, Any]) -> FaultChange:
    """Set wrong values in a node's pool."""
    kubelet = intent.machine(node).kubelet
    assert kubelet is not None, "a site is a node"
    own = node_pool(node, str(kubelet.pod_cidr))
    right = {key: pool_spec(intent.topology, own)[key] for key in wrong}
    return change(intent.control_plane(), [_patch(own.name, wrong)], [_patch(own.name, right)])


def _patch(name: str, spec: Mapping[str, Any]) -> str:
    patch = json.dumps({"spec": dict(spec)}, separators=(",", ":"))
    return f"{_KUBECTL} patch {POOL_KIND} {name} --type=merge -p {shlex.quote(patch)}"


def _without_nat(intent: Intent, node: str, _: str) -> FaultChange:
    """Undone once every node masquerades the block again."""
    made = _pool_changed(intent, node, {"natOutgoing": False})
    kubelet = intent.machine(node).kubelet
    known = f"nft list set ip calico {_MASQUERADED} | grep -q '{kubelet and kubelet.pod_cidr}'"
    waits = (
        FaultCommand(kubelet.name, until(known, _ROUTE_SECONDS)) for kubelet in kubelets(intent)
    )
    return replace(made, undo=(*made.undo, *waits))


WRONG_POOL = Fault(
    name="wrong-pool",
    title="a node's IPPool has natOutgoing off: packets of its pods leave with the pods' addresses",
    needs=_NEEDS,
    sites=_nodes,
    change=_without_nat,
    also=("pool-wrong", "wrong-ippool", "nat-outgoing-off"),
)


def _wrong_encapsulation(intent: Intent, node: str, _: str) -> FaultChange:
    """Undone once the control plane's own route to the block is restored."""
    wrong = "Never" if intent.topology == VXLAN else "Always"
    made = _pool_changed(intent, node, {"vxlanMode": wrong})
    central, kubelet = intent.machine(intent.control_plane()), intent.machine(node).kubelet
    block = kubelet.pod_cidr if kubelet else None
    ways = [route for route in central.routes if route.destination == block and route.via]
    if not ways:
        return made
    test = f"ip route show {block} | grep -q 'dev {ways[0].device}'"
    wait = FaultCommand(central.name, until(test, _ROUTE_SECONDS))
    return replace(made, undo=(*made.undo, wait))


WRONG_ENCAPSULATION = Fault(
    name="wrong-encapsulation",
    title="a node's IPPool has the wrong encapsulation: VXLAN instead of none, or none instead",
    needs=_NEEDS,
    sites=_nodes,
    change=_wrong_encapsulation,
    also=("encapsulation-wrong", "vxlan-mode-wrong"),
)

_WRONG_AS = 65_000
"""A private AS number (RFC 6996) that no node has."""


def _wrong_as(intent: Intent, node: str, _: str) -> FaultChange:
    right = as_number(intent, intent.machine(node))
    annotation = f"{_KUBECTL} annotate --overwrite node {node} {AS_NUMBER}="
    return change(intent.control_plane(), [f"{annotation}{_WRONG_AS}"], [f"{annotation}{right}"])


WRONG_AS_NUMBER = Fault(
    name="wrong-as-number",
    title="a node has another AS number than its router expects",
    needs="Calico as the cluster's network, whose nodes peer with the router",
    sites=lambda intent: (
        site for site in _nodes(intent) if as_number(intent, intent.machine(site.node))
    ),
    change=_wrong_as,
    also=("wrong-as", "bgp-wrong-as", "bad-peer-as"),
)
