"""The cells of scenarios, and the product that the matrix promises, spelt out beside its code."""

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from golden_files import check_golden
from shipped import cell_of, cells_of, intent_of, matrix_of, plan_of

from lab._errors import MatrixError
from lab.matrix.cell import Cell, is_id
from lab.matrix.cells import cells, counts, families
from lab.plan.planner import make_plan
from lab.scenario.families import services_node_families, usual_families
from lab.scenario.loader import find, load, shipped
from lab.scenario.terms import Os
from lab.topology import registry

CELLS = cells_of("overlay")
CASES = Path(__file__).parents[2] / "cases" / "matrix"
SOURCES = json.loads((CASES / "sources.json").read_text())

OVERLAY = plan_of("overlay"), intent_of("overlay")


def of_family(made: tuple[Cell, ...], family: str) -> list[Cell]:
    return [cell for cell in made if cell.family == family]


def test_shipped_scenarios_have_their_golden_numbers_of_cells_in_each_family():
    rows = (f"  {json.dumps(name)}: {json.dumps(counts(cells_of(name)))}" for name in shipped())
    check_golden(CASES / "counts.json", "{\n" + ",\n".join(rows) + "\n}\n")


@pytest.mark.parametrize("name", shipped())
def test_ids_are_unique_without_spaces_and_in_a_fixed_order(name):
    made = cells_of(name)
    ids = [cell.id for cell in made]
    assert len(set(ids)) == len(ids)
    assert all(map(is_id, ids))
    plan = make_plan(load(find(name)))
    assert [cell.id for cell in cells(plan, registry.intent(plan))] == ids


@pytest.mark.parametrize("name", shipped())
def test_every_cell_is_counted_and_found_without_making_the_others(name):
    whole, made = matrix_of(name), cells_of(name)
    assert (whole.size, whole.counts()) == (len(made), counts(made))
    for cell in made[:: len(made) // 100]:
        assert whole.find(cell.id) == cell


@pytest.mark.parametrize(
    "strange",
    [
        "",
        "pod-pod",
        "pod-pod/master-p1/master-p1/tcp-small",
        "pod-pod/master-p1/nobody/tcp-small",
        "pod-pod/nobody/master-p1/tcp-small",
        "pod-pod/master-p1/win1-p1/tcp-huge",
        "strange/master-p1/win1-p1/tcp-small",
        "pod-pod/master-p1/win1-p1/tcp-small/more",
    ],
)
def test_what_is_no_cell_is_not_found(strange):
    assert matrix_of("overlay").find(strange) is None


@pytest.mark.parametrize("name", ["kubeinit", "services"])
def test_cells_come_family_by_family_in_their_order(name):
    order = list(dict.fromkeys(cell.family for cell in cells_of(name)))
    assert order == [family for family in families() if family in order]
    wanted = services_node_families() if name == "kubeinit" else special_families()
    assert set(wanted) <= set(order)


def special_families() -> list[str]:
    return [name for name, cell_family in families().items() if cell_family.special]


def test_only_what_the_plan_asks_for_is_made():
    plan, intent = OVERLAY
    asked = replace(plan, families=("pod-pod", "nodeport"), protocols=("udp",), sizes=("large",))
    made = cells(asked, intent)
    assert set(counts(made)) == {"pod-pod", "nodeport"}
    assert {(cell.protocol, cell.size) for cell in made} == {("udp", "large")}


def test_names_and_shared_services_stay_small_when_only_large_is_asked_for():
    plan, intent = OVERLAY
    made = cells(replace(plan, sizes=("large",), families=("pod-service", "dns")), intent)
    small = [cell for cell in made if cell.size == "small"]
    assert {cell.family for cell in small} == {"pod-service", "dns"}
    assert all(cell.family == "dns" or len(cell.backends) > 1 for cell in small)


def test_family_that_is_asked_for_but_empty_is_a_broken_matrix():
    plan, _ = OVERLAY
    lonely = tuple(
        replace(node, pods=node.pods[:1] if node.name == "master" else ()) for node in plan.nodes
    )
    services = tuple(s for s in plan.services if s.backends == ("master-p1",))
    bare = replace(plan, nodes=lonely, services=services)
    with pytest.raises(MatrixError, match="family 'pod-pod'") as raised:
        cells(bare, registry.intent(bare))
    assert raised.value.exit_code == 3


def test_matrix_without_any_family_is_broken():
    plan, intent = OVERLAY
    with pytest.raises(MatrixError, match="no cells at all"):
        cells(replace(plan, families=()), intent)


def test_every_ordered_pair_of_different_pods_is_asked():
    names = [pod.name for pod in OVERLAY[0].pods() if pod.role == "probe"]
    pairs = {(cell.source.name, cell.target.name) for cell in of_family(CELLS, "pod-pod")}
    assert pairs == {(a, b) for a in names for b in names if a != b}


def test_relation_distinguishes_the_own_node_from_others():
    assert cell_of("overlay", "pod-pod/win1-p1/win1-p2/tcp-small").relation == "same-node"
    assert cell_of("overlay", "pod-pod/win1-p1/win2-p1/tcp-small").relation == "other-node"
    assert cell_of("overlay", "hairpin/win1-p1/to-win1-p1/tcp-small").relation == "self"
    assert cell_of("overlay", "pod-external/win1-p1/client/tcp-small").relation == "outside"
    assert cell_of("overlay", "node-pod/win1/win1-p1/tcp-small").relation == "same-node"
    assert cell_of("overlay", "dns/win1-p1/to-master-p1/tcp-small").relation == "other-node"
    assert cell_of("overlay", "dns/master-p1/to-master-p1/tcp-small").relation == "same-node"


def test_shared_service_asks_for_all_its_backends():
    cell = cell_of("overlay", "pod-service/win2-p2/everyone/udp-small")
    assert cell.backends == ("master-p1", "win1-p1", "worker1-p1", "win2-p1")
    assert cell.target.node is None
    assert cell.relation == "other-node"


def test_node_port_is_asked_at_the_entry_nodes_address():
    cell = cell_of("overlay", "nodeport/client/win1:to-master-p1/tcp-small")
    service = next(s for s in OVERLAY[0].services if s.name == "to-master-p1")
    assert (cell.target.address, cell.target.port) == ("10.9.176.94", service.ports[0].node_port)
    assert (cell.entry, cell.target.node, cell.target.os) == ("win1", "master", "linux")


def test_node_port_never_leads_a_pod_back_to_itself_where_another_pod_can_be_had():
    for cell in of_family(CELLS, "nodeport"):
        assert cell.backends != (cell.source.name,), cell.id


def test_node_port_leads_a_pod_to_itself_where_there_is_no_other():
    plan, _ = OVERLAY
    one_each = replace(
        plan,
        nodes=tuple(
            replace(node, pods=tuple(p for p in node.pods if not p.name.endswith("-p2")))
            for node in plan.nodes
        ),
        services=tuple(s for s in plan.services if not s.name.endswith("-p2")),
        families=("nodeport",),
    )
    made = {cell.id: cell for cell in cells(one_each, registry.intent(one_each))}
    assert made["nodeport/win1-p1/win1:to-win1-p1/tcp-small"].relation == "self"


def test_node_asks_one_local_service_and_one_remote_of_each_system():
    asked: dict[str, list[str]] = {}
    for cell in of_family(CELLS, "node-service"):
        if (cell.protocol, cell.size) == ("tcp", "small"):
            asked.setdefault(cell.source.name, []).append(cell.target.name)
    assert asked == {
        "master": ["to-master-p1", "to-worker1-p1", "to-win1-p1"],
        "worker1": ["to-worker1-p1", "to-worker2-p1", "to-win1-p1"],
        "worker2": ["to-worker2-p1", "to-master-p1", "to-win1-p1"],
        "win1": ["to-win1-p1", "to-master-p1", "to-win2-p1"],
        "win2": ["to-win2-p1", "to-master-p1", "to-win1-p1"],
    }


def test_node_without_kubelet_answers_pods_but_asks_nothing_and_is_no_entry():
    made = cells_of("hard-way")
    assert any(cell.target.name == "controller-0" for cell in of_family(made, "pod-node"))
    assert not any(cell.source.name.startswith("controller") for cell in made)
    assert not any(cell.entry and cell.entry.startswith("controller") for cell in made)


def test_dns_is_asked_by_short_partial_and_full_name():
    asked = {
        (cell.name_form, cell.target.name, cell.answer)
        for cell in of_family(CELLS, "dns")
        if cell.source.name == "win1-p1"
    }
    assert asked == {
        ("short", "to-master-p1", "10.96.0.20"),
        ("partial", "to-master-p1.default", "10.96.0.20"),
        ("full", "to-master-p1.default.svc.cluster.local.", "10.96.0.20"),
    }


@pytest.mark.parametrize("case", SOURCES, ids=lambda case: case["says"])
def test_source_that_the_backend_may_see(case):
    sources = case["sources"]
    assert isinstance(sources, list)
    assert cell_of("overlay", case["cell"]).sources == frozenset(sources)


def test_pod_keeps_its_address_to_nodes_where_the_node_network_is_spared():
    for cell in of_family(cells_of("host-gateway"), "pod-node"):
        assert cell.sources == {cell.source.address}, cell.id


def test_windows_pod_may_be_known_by_either_address_at_its_own_node():
    cell = cell_of("overlay", "pod-node/win1-p1/win1/tcp-small")
    assert {"10.244.3.4", "10.9.176.94"} <= cell.sources


@pytest.mark.parametrize("name", shipped())
def test_every_path_carries_the_pods_mtu(name):
    assert {cell.mtu for cell in cells_of(name)} == {intent_of(name).pod_mtu}


Kind = tuple[object, ...]

SYSTEMS: tuple[Os, ...] = ("linux", "windows")
BOTH_SIZES = tuple(product(("tcp", "udp"), ("small", "large")))
ONLY_SMALL = (("tcp", "small"), ("udp", "small"))
BETWEEN_NODES = ("same-node", "other-node")

WHOLE = [name for name in shipped() if set(usual_families()) <= set(plan_of(name).families)]
"""Scenarios that ask for every usual family."""
WINDOWS = frozenset(
    node.name for name in shipped() for node in plan_of(name).nodes if node.os == "windows"
)


class Possible:
    """What the nodes of a scenario allow: a pair on different nodes needs two of them."""

    def __init__(self, name: str) -> None:
        plan = plan_of(name)
        self.nodes = plan.nodes
        self.serves = plan.services_node() is not None
        self.workers = {
            system: [node for node in self.nodes if node.os == system and node.pod_cidr]
            for system in SYSTEMS
        }
        self.systems = tuple(system for system in SYSTEMS if self.workers[system])

    def pairs(self, relation: str) -> Iterator[tuple[Os, Os]]:
        for source, target in product(self.systems, self.systems):
            if relation == "other-node":
                if source != target or len(self.workers[source]) > 1:
                    yield source, target
            elif source == target:
                yield source, target


def promised(possible: Possible) -> Iterator[Kind]:
    """Every combination that must have a cell: family first, protocol and size last."""
    for relation in BETWEEN_NODES:
        for pair in possible.pairs(relation):
            for variant in BOTH_SIZES:
                yield ("pod-pod", relation, *pair, *variant)
                yield ("pod-service", relation, *pair, *variant)
                yield ("node-service", relation, *pair, *variant)
                yield ("node-pod", relation, *pair, *variant)
                yield ("pod-node", relation, *pair, *variant)
    for system in possible.systems:
        for variant in BOTH_SIZES:
            yield ("hairpin", system, *variant)
            yield ("pod-external", system, *variant)
        for variant in ONLY_SMALL:
            yield ("pod-service, shared", system, *variant)
            for form in ("short", "partial", "full"):
                yield ("dns", form, system, *variant)
    yield from _node_ports(possible)
    if possible.serves:
        yield from _of_services_node(possible)


def _of_services_node(possible: Possible) -> Iterator[Kind]:
    for kind, system in product(("pod", "node"), possible.systems):
        yield ("api", kind, system, "tcp", "small")
        for variant in ONLY_SMALL:
            yield ("node-names", kind, system, *variant)
    yield ("api", "client", "linux", "tcp", "small")


def _node_ports(possible: Possible) -> Iterator[Kind]:
    askers = (
        ("client", "outside"),
        *product(("pod", "node"), possible.systems, ("own", "other")),
    )
    for place, relation in (("local", "same-node"), ("remote", "other-node")):
        for entry, backend in possible.pairs(relation):
            for asker, variant in product(askers, BOTH_SIZES):
                yield ("nodeport", *asker, entry, place, backend, *variant)


def kinds(cell: Cell) -> Kind:
    """The combination that a cell stands for."""
    if cell.family in services_node_families():
        return (cell.family, cell.source.kind, cell.source.os, cell.protocol, cell.size)
    return _kind_of_others(cell)


def _kind_of_others(cell: Cell) -> Kind:
    variant = (cell.protocol, cell.size)
    source, target = cell.source, cell.target
    if cell.family == "nodeport":
        place = "local" if cell.entry == target.node else "remote"
        entry = "windows" if cell.entry in WINDOWS else "linux"
        if source.kind == "client":
            return ("nodeport", "client", "outside", entry, place, target.os, *variant)
        own = "own" if cell.entry == source.node else "other"
        return ("nodeport", source.kind, source.os, own, entry, place, target.os, *variant)
    if cell.family in {"hairpin", "pod-external"}:
        return (cell.family, source.os, *variant)
    if cell.family == "dns":
        return ("dns", cell.name_form, source.os, *variant)
    if len(cell.backends) > 1:
        return ("pod-service, shared", source.os, *variant)
    return (cell.family, cell.relation, source.os, target.os, *variant)


def _can_be(kind: Kind, possible: Possible) -> bool:
    """A NodePort asked on one's own node has that node's system; on another's takes two nodes."""
    if kind[0] != "nodeport" or kind[1] == "client":
        return True
    _, _, source, own, entry, *_ = kind
    if own == "own":
        return source == entry
    return source != entry or len(possible.workers[source]) > 1  # type: ignore[index]


@pytest.mark.parametrize("name", WHOLE)
def test_every_promised_combination_has_a_cell(name):
    possible = Possible(name)
    made = {kinds(cell) for cell in cells_of(name)}
    wanted = {kind for kind in promised(possible) if _can_be(kind, possible)}
    asked = {*usual_families(), *(services_node_families() if possible.serves else ())}
    assert {kind[0] for kind in wanted} >= asked
    assert sorted(map(str, wanted - made)) == []


@pytest.mark.parametrize("name", WHOLE)
def test_every_node_port_is_asked_at_every_node_by_every_pod_node_and_the_client(name):
    plan = plan_of(name)
    hosts = [node.name for node in plan.nodes if node.pod_cidr]
    sources = [*(pod.name for pod in plan.pods() if pod.role == "probe"), *hosts, "client"]
    asked = {(c.source.name, c.entry) for c in cells_of(name) if c.family == "nodeport"}
    assert asked == set(product(sources, hosts))
