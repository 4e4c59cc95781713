from __future__ import annotations

import tomllib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from unit.reports.made_runs import made_run

from lab.matrix.cell import Cell
from lab.matrix.verdict import CellResult, RunResult
from lab.reports.patterns import limit_groups, machine_of, red_groups
from lab.reports.wording import RED

CASES = tomllib.loads((Path(__file__).parent / "cases" / "patterns.toml").read_text())["case"]


@cache
def healthy() -> RunResult:
    return made_run("healthy")


def ends(cell: Cell) -> set[str | None]:
    return {machine_of(cell.source), machine_of(cell.target), cell.entry} - {None}


def nodes(cell: Cell) -> set[str | None]:
    return {cell.source.node, cell.target.node, cell.entry} - {None}


def last_leg(cell: Cell) -> set[str | None]:
    """Nodes between which the pod network carries a cell; empty where it stays on one."""
    if cell.family in {"pod-node", "pod-external"}:
        return set()
    answering = {name.rsplit("-", 1)[0] for name in cell.backends} or {cell.target.node}
    legs = {cell.entry or cell.source.node, *answering} - {None}
    return legs if len(legs) > 1 else set()


MATCHERS = {
    "tunnel": lambda cell, value: value in last_leg(cell),
    "touches": lambda cell, value: value in ends(cell),
    "crosses": lambda cell, value: value in ends(cell) and len(ends(cell)) > 1,
    "between-nodes": lambda cell, value: (len(nodes(cell)) > 1) is value,
    "from": lambda cell, value: cell.source.node == value,
    "to": lambda cell, value: cell.target.node == value,
    "pair": lambda cell, value: {cell.source.node, cell.target.node} == set(value),
    "from-os": lambda cell, value: cell.source.node and cell.source.os == value,
    "to-os": lambda cell, value: cell.target.node and cell.target.os == value,
    "entry": lambda cell, value: cell.entry == value,
    "pod-to": lambda cell, value: cell.backends == (value,),
    "pod": lambda cell, value: value in {cell.source.name, *cell.backends},
    "source": lambda cell, value: cell.source.name == value,
    "target": lambda cell, value: cell.target.name == value,
    "family": lambda cell, value: cell.family == value,
    "protocol": lambda cell, value: cell.protocol == value,
    "size": lambda cell, value: cell.size == value,
}


def reddened(results: list[CellResult], trouble: dict[str, Any]) -> list[CellResult]:
    keys = {key: value for key, value in trouble.items() if key in MATCHERS}
    assert set(trouble) - set(keys) <= {"verdict", "first", "limit"}
    changed, left = [], trouble.get("first", len(results))
    for result in results:
        limit = result.verdict == "known-limit"
        hit = (
            left > 0
            and limit == trouble.get("limit", False)
            and all(MATCHERS[key](result.cell, value) for key, value in keys.items())
        )
        left -= hit
        changed.append(replace(result, verdict=trouble.get("verdict", "fail")) if hit else result)
    return changed


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_red_cells_are_explained_by_the_fewest_sentences(case):
    results = list(healthy().results)
    for trouble in case["red"]:
        results = reddened(results, trouble)
    findings = red_groups(results)
    assert [group.sentence for group in findings.groups] == case["sentences"]
    assert len(findings.singles) == case["singles"]


@pytest.mark.parametrize("trouble", ["dead-node", "mtu-hole", "mixed"])
def test_every_red_cell_is_in_a_group_or_single_and_no_green_one_is(trouble):
    results = made_run(trouble).results
    findings = red_groups(results)
    grouped = {cell.cell.id for group in findings.groups for cell in group.cells}
    single = {result.cell.id for result in findings.singles}
    assert grouped | single == {each.cell.id for each in results if each.verdict in RED}
    assert not grouped & single


def test_an_example_is_a_cell_that_no_earlier_group_explains():
    seen: set[str] = set()
    for group in red_groups(made_run("mixed").results).groups:
        assert group.example.cell.id not in seen
        seen |= {result.cell.id for result in group.cells}


def test_the_order_of_cells_does_not_change_the_sentences():
    results = made_run("mixed").results
    there = [group.sentence for group in red_groups(results).groups]
    back = [group.sentence for group in red_groups(results[::-1]).groups]
    assert there == back


def test_known_limits_are_gathered_by_rule_with_their_count():
    (group,) = limit_groups(healthy().results)
    assert group.sentence == (
        "24 cells: a Windows node cannot reach a NodePort on itself; other nodes and outside "
        "clients can (WIN-NODEPORT-SELF)"
    )


def test_known_limits_that_a_broken_path_hid_are_counted():
    (first, *others) = (r for r in healthy().results if r.verdict == "known-limit")
    hidden = replace(first, detail=f"{first.expectation.reason}; not tested: a reason")
    (group, *_) = limit_groups([hidden, *(o for o in others if o.expectation == first.expectation)])
    assert group.sentence.endswith(f"({group.rule}); 1 of them not tested")


HOSTS = {
    "master": "hypervisor-01",
    "worker1": "hypervisor-01",
    "win2": "hypervisor-01",
    "worker2": "hypervisor-02",
    "win1": "hypervisor-02",
}


def machines_of(result: CellResult) -> set[str]:
    cell = result.cell
    ends = {machine_of(cell.source), machine_of(cell.target), cell.entry}
    pods = {name.rpartition("-p")[0] or name for name in cell.backends}
    return {end for end in ends | pods if end}


def hosts_of(result: CellResult) -> set[str]:
    return {HOSTS[name] for name in machines_of(result) if name in HOSTS}


def failing(results: Sequence[CellResult], where: Callable[[CellResult], bool]) -> list[CellResult]:
    return [
        replace(one, verdict="fail") if one.verdict == "pass" and where(one) else one
        for one in results
    ]


def is_on_it(one: CellResult) -> bool:
    return "hypervisor-02" in hosts_of(one)


@pytest.mark.parametrize(
    ("lost", "sentence"),
    [
        (is_on_it, "everything on hypervisor-02"),
        (
            lambda one: is_on_it(one) and len(machines_of(one)) > 1,
            "everything to and from the machines on hypervisor-02",
        ),
        (lambda one: len(hosts_of(one)) > 1, "everything between hypervisors"),
    ],
    ids=["the hypervisor", "its switch", "what joins it to others"],
)
def test_what_a_hypervisor_loses_is_one_sentence(lost, sentence):
    findings = red_groups(failing(healthy().results, lost), HOSTS)
    assert [group.phrase for group in findings.groups] == [sentence]
    assert not findings.singles


def test_one_node_of_a_hypervisor_is_called_by_its_own_name():
    alone = {name: host for name, host in HOSTS.items() if name != "worker2"}
    results = made_run("dead-node").results
    with_it, without = red_groups(results, alone), red_groups(results)
    assert [one.phrase for one in with_it.groups] == [one.phrase for one in without.groups]
