"""The smallest lab that has a cell, and the file that says so."""

from collections.abc import Iterable
from pathlib import Path

import pytest

from lab._errors import UsageError
from lab.matrix.cell import Cell
from lab.matrix.cells import cells
from lab.matrix.reduce import reduce
from lab.plan.plan import Plan
from lab.plan.planner import make_plan
from lab.scenario.families import family_terms
from lab.scenario.loader import find, load, shipped, to_yaml
from lab.scenario.scenario import Scenario
from lab.topology import registry

CASES = Path(__file__).parents[2] / "cases" / "scenario" / "valid"


def read(path: Path) -> Scenario:
    return load(path, topology_check=registry.check)


def without_places(scenario: Scenario) -> Scenario:
    """The same but for the lines and the name of its file."""
    nodes = tuple(group.replace(line=0) for group in scenario.nodes)
    limits = tuple(limit.replace(source="") for limit in scenario.exceptions)
    assertions = tuple(each.replace(line=0) for each in scenario.assertions)
    return scenario.replace(nodes=nodes, exceptions=limits, assertions=assertions)


@pytest.mark.parametrize(
    "path",
    [*(find(name) for name in shipped()), *sorted(CASES.glob("*.yaml"))],
    ids=lambda path: path.stem,
)
def test_a_scenario_written_is_read_back_as_the_same(path, tmp_path):
    scenario = read(path)
    copy = tmp_path / "copy.yaml"
    copy.write_text(to_yaml(scenario, "a comment", "", 'with "quotes": and # more'))
    assert without_places(read(copy)) == without_places(scenario)


def made(scenario: Scenario) -> tuple[Plan, dict[str, Cell]]:
    plan = make_plan(scenario)
    return plan, {cell.id: cell for cell in cells(plan, registry.intent(plan))}


REDUCED = {
    ("overlay", "pod-pod/worker1-p1/win1-p2/tcp-small"): {"master": 0, "worker1": 1, "win1": 2},
    ("overlay", "pod-pod/master-p2/master-p1/udp-large"): {"master": 2},
    ("overlay", "hairpin/win2-p1/to-win2-p1/tcp-large"): {"master": 0, "win2": 1},
    ("overlay", "pod-external/worker2-p1/client/tcp-small"): {"master": 0, "worker2": 1},
    ("overlay", "node-pod/win1/worker2-p1/tcp-small"): {"master": 0, "worker2": 1, "win1": 0},
    ("overlay", "pod-service/win1-p1/everyone/tcp-small"): {
        "master": 1, "worker1": 1, "win1": 1, "win2": 1,
    },
    ("overlay", "nodeport/client/win2:to-win2-p1/udp-small"): {"master": 0, "win2": 1},
    ("overlay", "nodeport/worker1-p1/win2:to-win1-p1/tcp-small"): {
        "master": 0, "worker1": 1, "win1": 1, "win2": 0,
    },
    ("overlay", "dns/win1-p1/to-master-p1/udp-small"): {"master": 2, "win1": 1},
    ("upstream-tor", "pod-node/node009-p1/node010/tcp-small"): {
        "master1": 0, "node009": 1, "node010": 0,
    },
    ("hard-way", "pod-pod/worker-0-p1/worker-1-p1/tcp-small"): {
        "controller-0": None, "worker-0": 1, "worker-1": 1,
    },
}  # fmt: skip


@pytest.mark.parametrize(("case", "nodes"), REDUCED.items(), ids=lambda value: str(value)[:60])
def test_only_the_nodes_and_pods_are_left_that_the_cell_needs(case, nodes):
    name, cell = case
    small = reduce(read(find(name)), cell)
    assert {group.name: group.pods for group in small.nodes} == nodes


def some_cells(every: Iterable[str]) -> list[str]:
    """One of every family, of the first, the second … at another place."""
    found = []
    for number, family in enumerate(family_terms()):
        own = [cell for cell in every if cell.startswith(f"{family}/")]
        found += own[number * 7 % len(own) :][:1] if own else []
    return found


@pytest.mark.parametrize("name", shipped())
def test_a_reduced_lab_sends_the_same_packets(name, tmp_path):
    whole = read(find(name))
    plan, every = made(whole)
    for cell_id in some_cells(every):
        file = tmp_path / "small.yaml"
        file.write_text(to_yaml(reduce(whole, cell_id)))
        small = read(file)  # valid by every rule
        small_plan, few = made(small)
        before, after = every[cell_id], few[cell_id]
        assert (after.source, after.sources, after.backends, after.answer, after.mtu) == (
            before.source, before.sources, before.backends, before.answer, before.mtu,
        )  # fmt: skip
        if before.target.kind != "service":  # whose address is handed out in order
            assert after.target == before.target
        assert len(small_plan.nodes) < len(plan.nodes) or name == "hard-way"
        pods = {pod.name: pod for pod in plan.pods()}
        for node in small_plan.nodes:
            old = plan.node(node.name)
            assert (node.address, node.mac, node.pod_cidr) == (old.address, old.mac, old.pod_cidr)
            for pod in node.pods:
                if pod.role == "probe":
                    assert pod == pods[pod.name]


def test_exceptions_that_speak_of_the_cell_stay():
    scenario = read(CASES / "everything.yaml")
    _, every = made(scenario)
    kept = {cell: len(reduce(scenario, cell).exceptions) for cell in list(every)[::997]}
    assert all(number <= len(scenario.exceptions) for number in kept.values())


def test_a_cell_that_is_not_in_the_matrix_is_refused():
    with pytest.raises(UsageError, match="its matrix has no such cell"):
        reduce(read(find("overlay")), "pod-pod/a/b/tcp-small")
