"""Names that follow from a scenario: of nodes, pods and Services."""

from __future__ import annotations

from collections.abc import Iterator

from lab.scenario.scenario import NodeGroup, Scenario


def node_names(group: NodeGroup) -> tuple[str, ...]:
    """NAME for a single node, NAME1 to NAMEn for a count above 1."""
    if group.count == 1:
        return (group.name,)
    return tuple(f"{group.name}{number}" for number in range(1, group.count + 1))


def pods_per_node(scenario: Scenario, group: NodeGroup) -> int:
    """Probe pods on each node of the group."""
    if not group.kubelet:
        return 0
    return scenario.pods_per_node if group.pods is None else group.pods


def pod_names(scenario: Scenario, group: NodeGroup) -> Iterator[str]:
    """NODE-p1 to NODE-pN, node by node."""
    for node in node_names(group):
        for number in range(1, pods_per_node(scenario, group) + 1):
            yield f"{node}-p{number}"


def service_name(pod: str) -> str:
    """The Service of one probe pod."""
    return f"to-{pod}"


def hypervisor_name(number: int) -> str:
    """The name of a scenario's own hypervisor; numbers begin at 1."""
    return f"hypervisor-{number:02}"


def hypervisor_names(scenario: Scenario) -> tuple[str, ...]:
    """Of every hypervisor that the scenario has itself, in order."""
    count = scenario.hypervisors.count if scenario.hypervisors else 0
    return tuple(hypervisor_name(number) for number in range(1, count + 1))


def probe_pods(scenario: Scenario) -> int:
    """How many probe pods the lab has."""
    return sum(group.count * pods_per_node(scenario, group) for group in scenario.nodes)
