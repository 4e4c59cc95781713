"""A lab of namespaces, observed as in ``lab explain``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from netns_running import Running

from lab._deadline import Deadline
from lab.explain.explainer import compare_lab
from lab.facts.difference import Difference
from lab.facts.linux import observe, observe_pod
from lab.facts.node import NodeFacts
from lab.topology.intent import MachineIntent

SECONDS = 30


def seen(running: Running) -> Mapping[str, NodeFacts]:
    """The facts of every machine of the lab and its pods."""
    return {machine.name: look(running, machine) for machine in running.intent.everything()}


def look(running: Running, machine: MachineIntent) -> NodeFacts:
    def shell(name: str):
        return running.provider.machine(running.lab, running.intent, name)

    facts = observe(shell(machine.name), Deadline(SECONDS), namespace=True)
    pods = tuple(observe_pod(pod.name, shell(pod.name), Deadline(SECONDS)) for pod in machine.pods)
    return replace(facts, pods=pods)


def differences(running: Running, *nodes: str) -> tuple[Difference, ...]:
    """Differences of the whole lab, or of some of its machines."""
    machines = [
        machine for machine in running.intent.everything() if not nodes or machine.name in nodes
    ]
    return compare_lab(
        running.intent, {machine.name: look(running, machine) for machine in machines}
    )
