"""A scenario drawn up: checked, planned, and turned into an Intent. Nothing is made."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from lab._errors import UsageError
from lab.plan.plan import Plan
from lab.plan.planner import make_plan
from lab.providers.provider import Pods
from lab.scenario.loader import Wanted, load, meant
from lab.scenario.names import pod_names
from lab.scenario.scenario import Limit, NodeGroup, Scenario, SpecialService, families_of
from lab.scenario.terms import OF_SERVICES_NODE, Family
from lab.topology import registry
from lab.topology.hypervisors import on_real_ones
from lab.topology.intent import Intent


@dataclass(frozen=True, slots=True)
class Blueprint:
    """All that is decided before a provider is asked."""

    wanted: Wanted
    scenario: Scenario
    plan: Plan
    intent: Intent
    limits: tuple[Limit, ...]


def draw(
    scenario: str | Path,
    only: str | None = None,
    node_mtu: int | None = None,
    pods: Pods = "namespaces",
    *,
    real: bool = False,
) -> Blueprint:
    """Read a scenario by name, path or spec string and decide everything.

    Parameters
    ----------
    scenario
        A shipped scenario's name, the path of a file, or a spec string.
    only
        ``"linux"`` or ``"windows"``: leave the nodes of the other system out.
    node_mtu
        Bytes; the most that the node segment can have where the machines will be.
    pods
        What its pods are.
    real
        Whether its machines are computers, on hypervisors that are there.

    Raises
    ------
    ScenarioError
        Every finding at once.
    UsageError
        No such scenario, or no node is left.
    """
    wanted = scenario if isinstance(scenario, Path) else meant(scenario)
    read = load(wanted, topology_check=registry.check)
    read = cut(read, only, node_mtu)
    plan = make_plan(read)
    intent = fitted(registry.intent(plan), pods, real=real)
    return Blueprint(wanted, read, plan, intent, registry.limits(plan))


def fitted(intent: Intent, pods: object, *, real: bool) -> Intent:
    """The Intent for where its lab is to be.

    With a cluster where pods are Kubernetes' alone, and with hypervisors of its own where its
    machines are no computers alone.
    """
    if pods != "kubernetes":
        intent = replace(intent, kubernetes=None)
    return on_real_ones(intent) if real else intent


def cut(scenario: Scenario, only: str | None, node_mtu: int | None) -> Scenario:
    """The scenario as it is asked for: see :func:`draw` for both."""
    if only is not None:
        scenario = keep_only(scenario, only)
    if node_mtu is not None and node_mtu < scenario.network.mtu:
        scenario = scenario.replace(network=scenario.network.replace(mtu=node_mtu))
    return scenario


def keep_only(scenario: Scenario, system: str) -> Scenario:
    """The scenario with the nodes of one operating system.

    Raises
    ------
    UsageError
        When the scenario would have no control plane, or no node at all, left.
    """
    nodes = tuple(group for group in scenario.nodes if group.os == system)
    if not any(group.role == "control-plane" for group in nodes):
        raise UsageError(
            f'leaving all but the {system} nodes out of scenario "{scenario.name}"',
            "no control-plane node is left",
            "use ONLY=linux (--only linux), or the whole scenario",
        )
    pods = sum(
        group.count * (scenario.pods_per_node if group.pods is None else group.pods)
        for group in nodes
        if group.kubelet
    )
    shared = tuple(
        service.replace(backends=min(service.backends, pods))
        for service in scenario.services.shared
    )
    left_out = len(nodes) < len(scenario.nodes)
    special = _special_left(scenario, nodes)
    return scenario.replace(
        summary=f"{scenario.summary}: {system.capitalize()} nodes alone"
        if left_out
        else scenario.summary,
        nodes=nodes,
        services=scenario.services.replace(shared=shared, special=special),
        matrix=scenario.matrix.replace(families=_families_left(scenario.families, special)),
    )


def _special_left(scenario: Scenario, nodes: Iterable[NodeGroup]) -> tuple[SpecialService, ...]:
    """The special Services where no other nodes are left.

    One whose backends are all gone goes too: without any it would be another one.
    """
    pods = {name for group in nodes for name in pod_names(scenario, group)}
    found = []
    for service in scenario.services.special:
        named = tuple(pod for pod in service.pods if pod in pods)
        number = len(named) if service.pods else min(service.backends, len(pods))
        if number or not service.backends:
            found.append(service.replace(pods=named, backends=number))
    return tuple(found)


def _families_left(
    asked: Iterable[Family], services: Iterable[SpecialService]
) -> tuple[Family, ...]:
    """Of the families that are asked for, those that these Services leave cells in.

    Those of a services node are none of theirs.
    """
    there = {*families_of(services), *OF_SERVICES_NODE}
    return tuple(family for family in asked if family in there)
