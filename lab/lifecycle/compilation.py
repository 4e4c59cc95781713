"""Compile a scenario to plan, Intent and limits, from its file or from a lab's copy of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from lab._dataclass import dataclass
from lab._errors import UsageError
from lab.plan.plan import Plan
from lab.plan.planner import make_plan
from lab.providers.provider import MACHINES, Decided, Provider
from lab.scenario.families import (
    families_of,
    families_on_request,
    services_node_families,
)
from lab.scenario.loader import Wanted, load, meant
from lab.scenario.scenario import Limit, NodeGroup, Scenario, pod_names
from lab.scenario.special import SpecialService
from lab.scenario.terms import Family
from lab.state.directory import make_private
from lab.state.failure import guarded_files
from lab.state.files import read_private, write_private
from lab.state.rows import LabRow
from lab.state.store import Store
from lab.topology import registry
from lab.topology.hypervisors import on_real_ones
from lab.topology.intent import Intent


@dataclass(frozen=True, slots=True)
class Compiled:
    """Everything that is decided before a provider is used."""

    wanted: Wanted
    scenario: Scenario
    plan: Plan
    intent: Intent
    limits: tuple[Limit, ...]


def compile_scenario(  # noqa: PLR0913  a lab is made from as many decisions
    scenario: str | Path,
    only: str | None = None,
    node_mtu: int | None = None,
    pods: object = "namespaces",
    *,
    real: bool = False,
    original: str = "",
) -> Compiled:
    """Read a scenario by name, path or spec string and decide everything.

    ``scenario``: a shipped scenario's name, the path of a file, or a spec string. ``only``:
    ``"linux"`` or ``"windows"`` to leave out the nodes of the other system. ``node_mtu``: bytes;
    upper limit of the node network's MTU, set by the hypervisors. ``pods``: ``"kubernetes"`` or
    ``"namespaces"``. ``real``: whether the machines are real, on real hypervisors. ``original``:
    the file that ``scenario`` is a copy of.

    Raises ScenarioError with every finding at once. Raises UsageError for an unknown scenario, or
    when no node is left.
    """
    wanted = scenario if isinstance(scenario, Path) else meant(scenario)
    read = load(wanted, topology_check=registry.check, original=original)
    file = Path(original or (wanted if isinstance(wanted, Path) else "."))
    read = registry.locate(read, file.absolute().parent if file.name else Path.cwd())
    if only is not None:
        read = keep_only(read, only)
    if node_mtu is not None and node_mtu < read.network.mtu:
        read = read.replace(network=read.network.replace(mtu=node_mtu))
    plan = make_plan(read)
    intent = registry.intent(plan)
    if pods != "kubernetes":
        intent = replace(intent, kubernetes=None)
    if real:
        intent = on_real_ones(intent)
    return Compiled(wanted, read, plan, intent, registry.limits(plan))


def keep_only(scenario: Scenario, system: str) -> Scenario:
    """The scenario with the nodes of one operating system only.

    Raises UsageError when no control-plane node remains.
    """
    nodes = tuple(group for group in scenario.nodes if group.os == system)
    if not any(group.role == "control-plane" for group in nodes):
        raise UsageError(
            f'leaving all but the {system} nodes out of scenario "{scenario.name}"',
            "no control-plane node remains",
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
    """The special Services that remain with these nodes.

    One that loses all its backends is dropped: it would no longer be the same test.
    """
    pods = {name for group in nodes for name in pod_names(scenario, group)}
    left = []
    for service in scenario.services.special:
        named = tuple(pod for pod in service.pods if pod in pods)
        number = len(named) if service.pods else min(service.backends, len(pods))
        if number or not service.backends:
            left.append(service.replace(pods=named, backends=number))
    return tuple(left)


def _families_left(
    wanted: Iterable[Family], services: Iterable[SpecialService]
) -> tuple[Family, ...]:
    """The requested families that still have cells with these Services.

    Families of a services node do not depend on them.
    """
    available = {*families_of(services), *services_node_families(), *families_on_request()}
    return tuple(family for family in wanted if family in available)


FILE = "scenario.yaml"


def write_scenario(directory: Path, text: str) -> Path:
    """Write the scenario into the lab's directory unless it is already there; return its path.

    Raises StateError when it cannot be written.
    """
    path = directory / FILE
    make_private(directory)
    with guarded_files(f"reading '{path}'"):
        is_written = path.is_file() and read_private(path) == text.encode()
    if not is_written:
        write_private(path, text)
    return path


def rebuild(row: LabRow, store: Store, provider: Provider) -> Compiled | Decided:
    """Compile a lab again from the journal's copy of its scenario, which gives the same plan.

    A provider without scenarios decides by its own record.

    If the scenario file is missing from the lab's directory, it is restored, so that messages name
    a file that exists.

    Raises ScenarioError when this version reads the text differently from the one that wrote it.
    Raises StateError when the copy cannot be written.
    """
    path = write_scenario(store.lab_directory(row.name), row.scenario_text)
    if decided := provider.decide(row.scenario_text):
        return decided
    only, node_mtu = row.options.get("only"), row.options.get("node_mtu")
    return compile_scenario(
        path,
        only if isinstance(only, str) else None,
        node_mtu if isinstance(node_mtu, int) else None,
        row.options.get("pods"),
        real=MACHINES in provider.abilities,
        original=row.scenario_path,
    )
