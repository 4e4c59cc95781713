"""A scenario drawn up: checked, planned, and turned into an Intent. Nothing is made."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from lab._errors import UsageError
from lab.plan.plan import Plan
from lab.plan.planner import make_plan
from lab.providers.provider import Pods
from lab.scenario.loader import Wanted, load, meant
from lab.scenario.scenario import Limit, Scenario
from lab.scenario.special import left_of, still_shown
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
        scenario = replace(scenario, network=replace(scenario.network, mtu=node_mtu))
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
        replace(service, backends=min(service.backends, pods))
        for service in scenario.shared_services
    )
    left_out = len(nodes) < len(scenario.nodes)
    special = left_of(scenario, nodes)
    return replace(
        scenario,
        summary=f"{scenario.summary}: {system.capitalize()} nodes alone"
        if left_out
        else scenario.summary,
        nodes=nodes,
        shared_services=shared,
        special_services=special,
        matrix=replace(scenario.matrix, families=still_shown(scenario.matrix.families, special)),
    )
