"""One line explains a group: on the terminal, in the page, and nothing where nobody knows."""

from __future__ import annotations

from dataclasses import replace

from unit.reports.made_runs import intent_of, made_run

from lab.matrix.explain.finding import Finding, by_hand
from lab.matrix.verdict import RunResult
from lab.reports.cause import cause
from lab.reports.html import to_html
from lab.reports.picture import picture_of
from lab.reports.terminal import plain_lines, summarise

DOWN = Finding(
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
    failed = [one.cell.id for one in run.results if one.verdict == "fail"][::every]
    results = tuple(
        replace(one, finding=DOWN) if one.cell.id in failed else one for one in run.results
    )
    return replace(run, results=results)


def test_a_cause_that_all_cells_have_met_is_told_alone() -> None:
    failed = [one for one in explained().results if one.verdict == "fail"]
    assert cause(failed) == LINE
    assert cause([replace(one, finding=None) for one in failed]) == ""


def test_the_commonest_cause_is_told_with_its_share() -> None:
    failed = [one for one in explained(every=2).results if one.verdict == "fail"]
    other = replace(failed[1], finding=replace(DOWN, node="worker1"))
    assert cause([failed[0], other, failed[2]]) == f"{LINE}; met by 2 of 3 cells"


def test_a_cause_met_at_several_hops_is_one_cause() -> None:
    first = next(one for one in explained().results if one.finding)
    again = replace(first, finding=replace(DOWN, hop=9))
    assert cause([first, again]) == LINE


def test_the_terminal_tells_the_cause_of_a_group() -> None:
    text = "\n".join(plain_lines(summarise(explained())))
    assert text.count(f"    cause:    {LINE}\n") == 1
    without = plain_lines(summarise(made_run("dead-node", families=("pod-pod",))))
    assert not [line for line in without if "cause:" in line]


def test_the_page_tells_the_cause_of_a_group() -> None:
    page = to_html(explained(), picture_of(intent_of()))
    assert page.count("<dt>Cause</dt><dd>on worker2, card &lt;eth0&gt;: set down") == 1
    without = to_html(made_run("dead-node", families=("pod-pod",)), picture_of(intent_of()))
    assert "<dt>Cause</dt>" not in without


def test_a_command_is_told_as_it_is_typed_and_words_stay_words() -> None:
    assert DOWN.shown_by("mine") == "lab exec mine worker2 -- ip link show dev eth0"
    assert DOWN.mended_by("mine").startswith("lab exec mine worker2 -- sh -c 'ip link set dev eth0")
    assert by_hand("mine", "p1", "in the pod: ip route") == "lab exec mine p1 -- ip route"
    assert by_hand("mine", "p1", "lab down, then lab up") == "lab down, then lab up"
    assert by_hand("mine", "p1", "") == ""
