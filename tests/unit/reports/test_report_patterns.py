"""Red cells in the fewest sentences, and the one line that explains a group of them."""

import shlex
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from unit.reports.made_runs import intent_of, made_run

from lab.facts.command_lines import in_powershell, lab_exec_line
from lab.facts.difference import Difference, in_cluster
from lab.facts.questions import ENTER_POD, WITH_PROXY
from lab.matrix.cell import Cell
from lab.matrix.verdict import CellResult, RunResult
from lab.reports.explanation import red_causes
from lab.reports.html import to_html
from lab.reports.patterns import limit_groups, machine_of, red_groups
from lab.reports.terminal import plain_lines
from lab.reports.topology import picture_of
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


@pytest.mark.parametrize(
    ("red", "total", "is_group"), [(9, 10, True), (18, 20, True), (17, 20, False), (8, 10, False)]
)
def test_a_group_has_nine_red_cells_in_ten_at_least(red, total, is_group):
    result = healthy().results[0]
    alike = [replace(result, verdict="fail" if at < red else "pass") for at in range(total)]
    findings = red_groups(alike)
    assert [len(group.cells) for group in findings.groups] == [red] * is_group
    assert len(findings.singles) == (0 if is_group else red)


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
    sentences = [group.sentence for group in red_groups(results).groups]
    back = [group.sentence for group in red_groups(results[::-1]).groups]
    assert sentences == back


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
        replace(result, verdict="fail") if result.verdict == "pass" and where(result) else result
        for result in results
    ]


def is_on_it(result: CellResult) -> bool:
    return "hypervisor-02" in hosts_of(result)


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
    assert [group.phrase for group in with_it.groups] == [group.phrase for group in without.groups]


DOWN = Difference(
    kind="link-down",
    fault="node-link-down",
    node="worker2",
    object="card <eth0>",
    intended="up",
    observed="set down",
    shows="ip link show dev eth0",
    mends="ip link set dev eth0 up && ip route replace default via 10.0.0.1",
    place="worker2",
)
LINE = "on worker2, card <eth0>: set down; it should be: up (node-link-down)"


def explained(every: int = 1) -> RunResult:
    run = made_run("dead-node", families=("pod-pod",))
    failed = [result.cell.id for result in run.results if result.verdict == "fail"][::every]
    results = tuple(
        replace(result, finding=DOWN) if result.cell.id in failed else result
        for result in run.results
    )
    return replace(run, results=results)


RARE = replace(DOWN, node="worker1", object="card eth0", kind="wrong-vni", fault="wrong-vni")
RARE_LINE = "on worker1, card eth0: set down; it should be: up (wrong-vni)"


def two_faults() -> RunResult:
    """Nearly all red cells have met one thing, one has met another, and one has met nothing."""
    run = explained()
    red = [place for place, result in enumerate(run.results) if result.verdict == "fail"]
    results = list(run.results)
    results[red[5]] = replace(results[red[5]], finding=RARE)
    results[red[9]] = replace(results[red[9]], finding=None)
    return replace(run, results=tuple(results))


def test_every_red_cell_belongs_to_one_cause_or_to_none_found():
    run = two_faults()
    causes = red_causes(run.results)
    red = [result.cell.id for result in run.results if result.verdict == "fail"]
    assert [(cause.line, len(cause.cells)) for cause in causes] == [
        (LINE, len(red) - 2),
        (RARE_LINE, 1),
        ("", 1),
    ]
    assert sorted(cell.cell.id for cause in causes for cell in cause.cells) == sorted(red)


def test_cells_of_another_cause_do_not_spoil_what_those_of_one_have_in_common():
    (common, *_) = red_causes(two_faults().results)
    (whole,) = red_causes(explained().results)
    assert [group.phrase for group in common.groups] == [group.phrase for group in whole.groups]
    assert not common.singles


def test_a_cause_met_at_several_hops_is_one_cause():
    run = explained()
    red = next(place for place, result in enumerate(run.results) if result.finding)
    again = replace(run.results[red], finding=replace(DOWN, hop=9))
    (cause,) = red_causes((*run.results[:red], again, *run.results[red + 1 :]))
    assert cause.line == LINE


def test_the_terminal_shows_each_cause_once_and_the_rare_one_too():
    lines = plain_lines(two_faults())
    text = "\n".join(lines)
    red = sum(1 for result in two_faults().results if result.verdict == "fail")
    heading = f"Not as expected: {red} cells; 2 causes found, none for 1 cell"
    assert heading in lines
    in_common, first = lines[lines.index(heading) + 1 :][:2]
    assert in_common == f"  all of them: everything to and from win1 ({red} of {red} cells)"
    assert first == f"  * {LINE}: {red - 2} cells"
    assert f"  * {RARE_LINE}: 1 cell" in lines
    assert text.count(LINE) == text.count(RARE_LINE) == 1
    assert text.count("    cause:    none found on its path") == 1


def test_the_page_shows_each_cause_once_and_the_rare_one_too():
    page = to_html(two_faults(), picture_of(intent_of()))
    red = sum(1 for result in two_faults().results if result.verdict == "fail")
    assert page.count("n worker2, card &lt;eth0&gt;: set down; it should be: up") == 1
    assert f"(node-link-down): {red - 2} cells</h3>" in page
    assert "(wrong-vni): 1 cell</h3>" in page
    assert page.count("<dt>Cause</dt><dd>none found on its path</dd>") == 1


def unexpected(exception: int) -> RunResult:
    """Failures with a cause, and all cells of one limit working; also found on the same path."""
    run = explained()
    limited = [result for result in healthy().results if result.verdict == "known-limit"]
    passes = tuple(
        replace(
            result,
            verdict="unexpected-pass",
            finding=DOWN,
            expectation=replace(result.expectation, exception=exception, source="mine.yaml:47"),
        )
        for result in limited
    )
    return replace(run, results=(*run.results, *passes))


@pytest.mark.parametrize(
    ("exception", "sentence"),
    [
        (
            2,
            (
                "exception 2 (mine.yaml:47) no longer holds: 24 cells work; "
                "remove it or narrow its 'when'"
            ),
        ),
        (0, "known limit WIN-NODEPORT-SELF no longer holds: 24 cells work"),
    ],
)
def test_unexpected_passes_are_one_group_a_rule_that_names_it(exception, sentence):
    run = unexpected(exception)
    failed, passed = red_causes(run.results)
    assert (failed.line, passed.sentence) == (LINE, sentence)
    assert {result.verdict for result in failed.cells} == {"fail"}
    assert len(passed.cells) == 24
    assert f"  * {sentence}" in plain_lines(run)
    page = to_html(run, picture_of(intent_of()))
    title = f"{sentence[0].upper()}{sentence[1:]}".replace("'", "&#39;")
    assert page.count(f"{title}</h3>") == 1


def test_a_command_is_shown_as_lab_exec_and_a_sentence_unchanged():
    assert DOWN.shown_by("mine") == "lab exec mine worker2 -- ip link show dev eth0"
    assert DOWN.fixed_by("mine").startswith("lab exec mine worker2 -- sh -c 'ip link set dev eth0")
    assert lab_exec_line("mine", "p1", "in the pod: ip route") == "lab exec mine p1 -- ip route"
    assert lab_exec_line("mine", "p1", "lab down, then lab up") == "lab down, then lab up"
    assert lab_exec_line("mine", "p1", "") == ""
    script = in_powershell("Get-Service -Name kubelet | Start-Service")
    assert lab_exec_line("mine", "win", script) == (
        "lab exec mine win -- powershell -Command 'Get-Service -Name kubelet | Start-Service'"
    )


@pytest.mark.parametrize(
    ("advised", "on_a_node"),
    [
        ("in the pod: ip route", f"{ENTER_POD} p1 sh -c 'ip route'"),
        ("in the pod: give eth0 of p1 its own MAC", "give eth0 of p1 its own MAC"),
        ("iptables -t nat -F", f"{WITH_PROXY} iptables -t nat -F"),
        ("nft list tables; iptables-save", f"nft list tables; {WITH_PROXY} iptables-save"),
        ("ip link set dev cni0 up", "ip link set dev cni0 up"),
    ],
)
def test_what_is_advised_on_a_cluster_are_programs_that_its_nodes_have(advised, on_a_node):
    difference = Difference("kind", "", "worker1", "it", "a", "b", advised, advised, "p1")
    assert (in_cluster(difference).shows, in_cluster(difference).mends) == (on_a_node, on_a_node)


def test_a_command_in_a_pod_of_a_cluster_is_typed_for_its_node():
    command = f"{ENTER_POD} p1 sh -c 'nft delete table ip x'"
    difference = replace(DOWN, place="p1", mends=command)
    assert shlex.split(difference.fixed_by("mine")) == [
        "lab", "exec", "mine", "worker2", "--", "sh", "-c", command,
    ]  # fmt: skip
