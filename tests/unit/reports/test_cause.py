"""One line explains a group: on the terminal, in the page, and nothing where nobody knows."""

from __future__ import annotations

import shlex
from dataclasses import replace

from unit.reports.made_runs import intent_of, made_run

from lab.matrix.verdict import Finding, RunResult, by_hand
from lab.providers.node import files
from lab.reports.explanation import red_causes
from lab.reports.html import to_html
from lab.reports.terminal import plain_lines
from lab.reports.topology import picture_of

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


RARE = replace(DOWN, node="worker1", object="card eth0", kind="wrong-vni", fault="wrong-vni")
RARE_LINE = "on worker1, card eth0: set down; it should be: up (wrong-vni)"


def two_faults() -> RunResult:
    """Nearly all red cells have met one thing, one has met another, and one has met nothing."""
    run = explained()
    red = [place for place, one in enumerate(run.results) if one.verdict == "fail"]
    results = list(run.results)
    results[red[5]] = replace(results[red[5]], finding=RARE)
    results[red[9]] = replace(results[red[9]], finding=None)
    return replace(run, results=tuple(results))


def test_every_red_cell_belongs_to_one_cause_or_to_none_found():
    run = two_faults()
    causes = red_causes(run.results)
    red = [one.cell.id for one in run.results if one.verdict == "fail"]
    assert [(one.line, len(one.cells)) for one in causes] == [
        (LINE, len(red) - 2),
        (RARE_LINE, 1),
        ("", 1),
    ]
    assert sorted(cell.cell.id for one in causes for cell in one.cells) == sorted(red)


def test_cells_of_another_cause_do_not_spoil_what_those_of_one_have_in_common():
    (common, *_) = red_causes(two_faults().results)
    (whole,) = red_causes(explained().results)
    assert [group.phrase for group in common.groups] == [group.phrase for group in whole.groups]
    assert not common.singles


def test_a_cause_met_at_several_hops_is_one_cause():
    run = explained()
    red = next(place for place, one in enumerate(run.results) if one.finding)
    again = replace(run.results[red], finding=replace(DOWN, hop=9))
    (cause,) = red_causes((*run.results[:red], again, *run.results[red + 1 :]))
    assert cause.line == LINE


def test_the_terminal_tells_each_cause_once_and_the_rare_one_too():
    lines = plain_lines(two_faults())
    text = "\n".join(lines)
    red = sum(1 for one in two_faults().results if one.verdict == "fail")
    heading = f"Not as expected: {red} cells; 2 causes found, none for 1 cell"
    assert heading in lines
    in_common, first = lines[lines.index(heading) + 1 :][:2]
    assert in_common == f"  all of them: everything to and from win1 ({red} of {red} cells)"
    assert first == f"  * {LINE}: {red - 2} cells"
    assert f"  * {RARE_LINE}: 1 cell" in lines
    assert text.count(LINE) == text.count(RARE_LINE) == 1
    assert text.count("    cause:    none found on its path") == 1


def test_the_page_tells_each_cause_once_and_the_rare_one_too():
    page = to_html(two_faults(), picture_of(intent_of()))
    red = sum(1 for one in two_faults().results if one.verdict == "fail")
    assert page.count("n worker2, card &lt;eth0&gt;: set down; it should be: up") == 1
    assert f"(node-link-down): {red - 2} cells</h3>" in page
    assert "(wrong-vni): 1 cell</h3>" in page
    assert page.count("<dt>Cause</dt><dd>none found on its path</dd>") == 1


def test_a_command_is_told_as_it_is_typed_and_words_stay_words():
    assert DOWN.shown_by("mine") == "lab exec mine worker2 -- ip link show dev eth0"
    assert DOWN.fixed_by("mine").startswith("lab exec mine worker2 -- sh -c 'ip link set dev eth0")
    assert by_hand("mine", "p1", "in the pod: ip route") == "lab exec mine p1 -- ip route"
    assert by_hand("mine", "p1", "lab down, then lab up") == "lab down, then lab up"
    assert by_hand("mine", "p1", "") == ""


def test_a_command_in_a_pod_of_a_cluster_is_typed_for_its_node():
    command = f"{files.ENTER} p1 sh -c 'nft delete table ip x'"
    found = replace(DOWN, place="p1", mends=command)
    assert shlex.split(found.fixed_by("mine")) == [
        "lab", "exec", "mine", "worker2", "--", "sh", "-c", command,
    ]  # fmt: skip
