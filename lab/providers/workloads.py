"""Workload checks: what a pod may expect of its node besides the network. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from lab.topology.intent import Intent, MachineIntent

Check = Literal[
    "secret",
    "config-map",
    "host-path",
    "empty-dirs",
    "node-selector",
    "pod-metrics",
    "node-metrics",
]
CHECKS: tuple[Check, ...] = get_args(Check)
WorkloadVerdict = Literal["pass", "fail", "probe-error"]


@dataclass(frozen=True, slots=True)
class WorkloadResult:
    """The verdict of one check on one node."""

    node: str
    check: Check
    verdict: WorkloadVerdict
    detail: str
    """The reason in one sentence; empty for a plain pass."""

    @property
    def id(self) -> str:
        """``worker1/secret``: unique in a run."""
        return f"{self.node}/{self.check}"


def nodes(intent: Intent) -> tuple[MachineIntent, ...]:
    """The nodes that pods can run on."""
    return tuple(
        machine for machine in intent.machines if machine.kubelet and machine.kubelet.pod_cidr
    )


def wanted(intent: Intent) -> tuple[tuple[str, Check], ...]:
    """Every node and check, in order."""
    return tuple((machine.name, check) for machine in nodes(intent) for check in CHECKS)
