"""Which cells are asked where all of them would be too many, and what is said of it."""

from collections import Counter
from collections.abc import Callable, Iterable
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shipped import matrix_of

from lab._errors import PreflightError
from lab.matrix.cell import Cell
from lab.matrix.cells import Matrix, counts, make_matrix
from lab.matrix.sampling import LIMIT, STRATEGIES, Choice, Part, coverage, sample
from lab.plan.planner import make_plan
from lab.scenario.families import usual_families
from lab.scenario.loader import find, load, shipped
from lab.scenario.scenario import Services
from lab.suites import session
from lab.suites.session import require
from lab.topology import registry

HUNDRED = """
name: hundred
summary: a hundred nodes with twenty pods each
kubernetes: {version: "1.36", pod_cidr: 10.0.0.0/9, node_prefix: 24,
  service_cidr: 10.128.0.0/12, dns_address: 10.128.0.10}
network: {cidr: 192.168.0.0/22}
topology: {kind: overlay}
pods_per_node: 20
nodes:
  - {name: master, os: linux, role: control-plane}
  - {name: worker, os: linux, count: 79}
  - {name: win, os: windows, count: 20}
"""


def drawn(path: Path) -> Matrix:
    plan = make_plan(load(path))
    return make_matrix(plan, registry.intent(plan))


@pytest.fixture(scope="module")
def hundred(tmp_path_factory):
    path = tmp_path_factory.mktemp("large") / "hundred.yaml"
    path.write_text(HUNDRED)
    return drawn(path)


@pytest.fixture
def overlay():
    return matrix_of("overlay")


def ids(cells: tuple[Cell, ...]) -> list[str]:
    return [cell.id for cell in cells]


def test_hundred_nodes_are_sampled_without_making_their_36_million_cells(hundred):
    assert hundred.size == 36_134_400
    made = sample(hundred, Choice())
    found = coverage(hundred, Choice(), made)
    assert LIMIT < len(made) < 1.2 * LIMIT
    assert found.node_pairs == Part(9_900, 9_900)
    assert found.share == f"{len(made):,} of 36,134,400 cells"
    assert found.sentence == (
        "sample 'node-pairs', seed 0: every node pair both ways, every pair of operating systems "
        "in every family, every pod is a source and a target"
    )
    assert set(counts(made)) == set(usual_families())


@pytest.mark.parametrize("name", shipped())
def test_node_pairs_reaches_all_that_it_promises(name):
    for seed in (0, 7):
        whole, choice = matrix_of(name), Choice("node-pairs", seed)
        made = sample(whole, choice)
        found = coverage(whole, choice, made)
        assert len(made) < whole.size
        parts = (found.node_pairs, found.systems, found.askers, found.asked)
        assert all(part.whole for part in parts), found


@pytest.mark.parametrize("name", shipped())
def test_os_pairs_asks_each_kind_three_times_and_every_node(name):
    whole, choice = matrix_of(name), Choice("os-pairs")
    made = sample(whole, choice)
    kinds = Counter(map(_kind, made))
    assert set(kinds) >= {_kind(cell) for cell in whole.cells() if cell.relation != "self"}
    assert max(kinds.values()) < 2 * max(3, len(whole.grids[0].sources_by_node))
    for grid in whole.grids:
        nodes = {cell.source.node for cell in made if cell.family == grid.family}
        assert nodes >= {source.node for source in grid.sources}
    assert coverage(whole, choice, made).systems.whole


def _kind(cell: Cell) -> tuple[object, ...]:
    ends = cell.source.os, cell.target.os, cell.relation, cell.name_form
    return cell.family, *ends, cell.protocol, cell.size


def _asker(cell: Cell) -> tuple[str, str, str]:
    return cell.family, cell.source.kind, cell.source.os


LABS = st.tuples(
    st.integers(0, 2), st.integers(1, 2), st.integers(1, 3), st.sampled_from(["overlay", "ovn"])
)


@settings(max_examples=12)
@given(LABS, st.sampled_from(["node-pairs", "os-pairs"]), st.integers(0, 1 << 32))
def test_a_sample_of_any_lab_covers_what_it_reports(lab, strategy, seed):
    whole, choice = small(*lab), Choice(strategy, seed)
    every, made = tuple(whole.cells()), sample(whole, choice)
    assert made == sample(whole, choice)
    assert set(ids(made)) <= set(ids(every))
    for named in (_asker, _systems):
        assert set(map(named, made)) == set(map(named, every))
    if strategy == "node-pairs":
        assert set(map(_nodes, made)) == set(map(_nodes, every))
    told = coverage(whole, choice, made)
    assert told.cells == Part(len(made), len(every))
    assert told.node_pairs == share(_between, made, every)
    assert told.systems == share(_systems, made, every)
    assert told.askers == share(_asking_pod, made, every)


def small(linux: int, windows: int, pods: int, kind: str) -> Matrix:
    """A lab of a control plane and so many workers of each system."""
    scenario = load(find(kind))
    groups = {group.os: group for group in scenario.nodes if group.role == "worker"}
    workers = [
        groups[system].replace(name=f"{system[:3]}{number}", count=1, address=None, pod_cidr=None)
        for system, count in (("linux", linux), ("windows", windows))
        for number in range(count)
        if system in groups
    ]
    control = [group for group in scenario.nodes if group.role != "worker"]
    plan = make_plan(
        scenario.replace(nodes=(*control, *workers), pods_per_node=pods, services=Services())
    )
    return make_matrix(plan, registry.intent(plan))


def share(named: Callable[[Cell], object], made: Iterable[Cell], every: Iterable[Cell]) -> Part:
    """Of what all cells are called, how much a sample's are; None counts for nothing."""
    return Part(len(set(map(named, made)) - {None}), len(set(map(named, every)) - {None}))


def _systems(cell: Cell) -> object:
    return cell.family, cell.source.os, cell.target.os


def _nodes(cell: Cell) -> object:
    return cell.family, cell.source.node, cell.entry or cell.target.node


def _between(cell: Cell) -> object:
    source, target = cell.source.node, cell.entry or cell.target.node
    return (source, target) if source and target and source != target else None


def _asking_pod(cell: Cell) -> object:
    return cell.source.name if cell.source.kind == "pod" else None


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_sample_is_part_of_the_product_in_its_order(overlay, strategy):
    places = {cell.id: place for place, cell in enumerate(overlay.cells())}
    chosen = [places[cell] for cell in ids(sample(overlay, Choice(strategy)))]
    assert chosen == sorted(set(chosen))
    assert (len(chosen) == overlay.size) == (strategy == "full")


def test_a_sample_is_the_same_for_the_same_seed_and_on_every_machine(overlay):
    first = ids(sample(overlay, Choice("os-pairs")))
    assert first == ids(sample(overlay, Choice("os-pairs", 0)))
    assert first != ids(sample(overlay, Choice("os-pairs", 1)))
    between_pods = "\n".join(one for one in first if one.startswith("pod-pod/"))
    assert sha256(between_pods.encode()).hexdigest()[:16] == "fd8e7be5b8ca3d2c"


def test_what_there_is_room_for_is_filled(overlay):
    assert Choice().strategy_for(overlay) == "full"
    pairs = sum(len(grid.sources_by_node) * len(grid.targets_by_group) for grid in overlay.grids)
    made = sample(overlay, Choice(limit=1_500))
    assert 1_500 - pairs < len(made) <= 1_500
    assert len(set(ids(made))) == len(made)
    almost = Choice(limit=overlay.size - 1)  # is reached without end
    assert len(sample(overlay, almost)) < overlay.size
    assert almost.strategy_for(overlay) == "node-pairs"
    assert Choice("full").strategy_for(overlay) == "full"


def test_cells_that_are_named_are_asked_once_whatever_the_sample(overlay):
    usual = ids(sample(overlay, Choice("os-pairs")))
    absent = next(cell.id for cell in overlay.cells() if cell.id not in usual)
    named = Choice("os-pairs", named=(absent, usual[0], "no/such/cell/at-all", absent))
    assert ids(sample(overlay, named)) == [*usual, absent]


def test_a_partial_sample_has_its_figures(overlay):
    part = tuple(overlay.cells())[:8]
    found = coverage(overlay, Choice(), part)
    assert found.share == "8 of 2,300 cells"
    assert found.sentence == (
        "1 of 20 node pairs, 1 of 30 pairs of operating systems by family, "
        "1 of 10 pods as sources, 2 of 10 as targets"
    )


def test_more_cells_than_memory_are_refused_with_both_figures(hundred):
    with pytest.raises(PreflightError, match=r"need about [0-9,.]+ GiB of memory") as raised:
        require(100 * hundred.size, "full", "big")
    assert "--sample node-pairs" in raised.value.hint
    require(100 * hundred.size, "node-pairs", "big")
    require(2_300, "full", "small")


def test_a_sample_that_memory_cannot_hold_is_refused_and_a_smaller_one_is_not(
    monkeypatch,
):
    monkeypatch.setattr(session, "available", lambda: 300 << 20)
    with pytest.raises(PreflightError, match=r"probing a sample .*: 50,000 cells need") as raised:
        require(36_134_400, "node-pairs", "big")
    assert "--sample os-pairs" in raised.value.hint
    require(36_134_400, "os-pairs", "big")
