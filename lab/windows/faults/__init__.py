"""Faults of a cluster's Windows nodes, in PowerShell; the registry finds them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lab.explain.faults.registry import FaultChange, Sites, change, nodes, sites_on
from lab.facts.command_lines import in_powershell
from lab.topology.intent import Intent, MachineIntent


def windows_kubelets(intent: Intent) -> Iterator[MachineIntent]:
    """The cluster's Windows nodes; none if pods are the lab's own."""
    for machine in nodes(intent) if intent.kubernetes else ():
        if machine.os == "windows" and machine.kubelet:
            yield machine


ON_EACH: Sites = sites_on(windows_kubelets)


def on_node(node: str, do: Iterable[str], undo: Iterable[str]) -> FaultChange:
    """A change on a Windows node, by scripts of one line."""
    return change(node, map(in_powershell, do), map(in_powershell, undo))
