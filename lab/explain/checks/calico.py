"""Calico's configuration in a cluster, and whether Felix runs: parsed and compared. Pure.

Calico's objects are cluster-wide and read on the first control plane. A wrong pool or AS number is
reported for the node that it is for.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from lab.cluster.addons.calico import (
    AS_NUMBER,
    BGP,
    POOL_KIND,
    TOPOLOGIES,
    as_number,
    node_pool,
    pool_spec,
)
from lab.explain.check import Check, Difference, Kind, LabLook, differs, on_machine
from lab.facts.questions import ADMIN
from lab.topology.intent import Intent, MachineIntent
from lab.topology.path import Hop, Path

_STOPPED = ("T", "t")
"""States of ps(1): stopped by a signal, or by a debugger."""
_KUBECTL = f"kubectl --kubeconfig={ADMIN}"


def _on_path(difference: Difference, hop: Hop, path: Path) -> bool:
    """The configuration of a node's block comes before everything that follows from it."""
    return hop is path.hops[0] and difference.node in path.machines


def _pool(
    intent: Intent, machine: MachineIntent, pools: Mapping[str, Mapping[str, Any]]
) -> Iterator[Difference]:
    assert machine.kubelet, "asked of nodes alone"
    wanted = node_pool(machine.name, str(machine.kubelet.pod_cidr))
    spec, there = pool_spec(intent.topology, wanted), pools.get(wanted.name)
    wrong = {key: value for key, value in spec.items() if there and there.get(key) != value}
    if there and there.get("disabled"):
        wrong["disabled"] = False
    if there is not None and not wrong:
        return
    kind = "wrong-encapsulation" if {"vxlanMode", "ipipMode"} & set(wrong) else "wrong-pool"
    patch = json.dumps({"spec": wrong}, separators=(",", ":"))
    yield differs(
        kind,
        machine.name,
        f"IPPool {wanted.name}",
        _words(wrong) or "there",
        _words({key: (there or {}).get(key) for key in wrong}) or "there is none",
        f"{_KUBECTL} get {POOL_KIND} {wanted.name} -o yaml",
        f"{_KUBECTL} patch {POOL_KIND} {wanted.name} --type=merge -p '{patch}'"
        if there is not None
        else "lab up",
        place=intent.control_plane(),
    )


def _words(spec: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {json.dumps(value)}" for key, value in spec.items())


def _autonomous_system(
    intent: Intent, machine: MachineIntent, systems: Mapping[str, str]
) -> Iterator[Difference]:
    wanted, there = as_number(intent, machine) or "", systems.get(machine.name)
    if intent.topology != BGP or there is None or there == wanted:
        return
    annotation = f"{AS_NUMBER}={wanted}" if wanted else f"{AS_NUMBER}-"
    yield differs(
        "wrong-as",
        machine.name,
        f"AS number of node {machine.name}",
        wanted or "none of its own",
        there or "none of its own",
        f"{_KUBECTL} get node {machine.name} -o yaml",
        f"{_KUBECTL} annotate --overwrite node {machine.name} {annotation}",
        place=intent.control_plane(),
    )


def _felix(machine: MachineIntent, states: tuple[str, ...]) -> Iterator[Difference]:
    if any(state not in _STOPPED for state in states):
        return
    yield differs(
        "felix-down",
        machine.name,
        "program felix",
        "running",
        "stopped by a signal" if states else "it does not run",
        "ps -e -o pid,state,lstart,args",
        "delete the node's pod calico-node, which creates it again",
    )


class CalicoCheck(Check):
    """Pools, AS numbers and Felix on each node of a cluster with Calico."""

    order = 140
    kinds = (
        Kind("wrong-pool", fault="wrong-pool", meets=_on_path),
        Kind("wrong-encapsulation", fault="wrong-encapsulation", meets=_on_path),
        Kind("wrong-as", fault="wrong-as-number", meets=_on_path),
        Kind("felix-down", fault="felix-killed", meets=on_machine, follows=True),
    )

    def in_lab(self, look: LabLook) -> Iterator[Difference]:
        intent = look.intent
        if intent.kubernetes is None or intent.topology not in TOPOLOGIES:
            return
        found = {name: facts.calico for name, facts in look.observed.items() if facts.calico}
        asked = found.get(intent.control_plane())
        for machine in intent.machines:
            if not machine.kubelet or not machine.kubelet.pod_cidr:
                continue
            if asked and asked.pools is not None:
                yield from _pool(intent, machine, asked.pools)
            if asked and asked.systems is not None and machine.os == "linux":
                yield from _autonomous_system(intent, machine, asked.systems)
            seen = found.get(machine.name)
            if seen and seen.felix is not None:
                yield from _felix(machine, seen.felix)
