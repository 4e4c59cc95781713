"""What changed between two runs or nights, cell by cell: text, JSON and exit code."""

from dataclasses import replace

import pytest
from unit.reports.made_runs import REACHED, SAMPLED, made_assertion, made_run

from lab._errors import UsageError
from lab.facts.difference import Difference
from lab.matrix.verdict import VERDICTS, RunResult, Verdict
from lab.providers.workloads import WorkloadResult
from lab.reports.difference import (
    VerdictChange,
    compare,
    comparison_json,
    difference,
    notes,
    plain_lines,
    text_lines,
    to_json,
)
from lab.state.provenance import Provenance

HEALTHY = made_run("healthy")
LISTED = ("failing", "passing", "changed", "gone", "new")


def with_verdicts(*verdicts: Verdict) -> RunResult:
    """A run of as many cells, the first ones of the healthy run."""
    cells = zip(HEALTHY.results, verdicts, strict=False)
    return replace(HEALTHY, results=tuple(replace(cell, verdict=one) for cell, one in cells))


KINDS = {
    ("pass", "fail"): "failing",
    ("pass", "unexpected-pass"): "failing",
    ("known-limit", "probe-error"): "failing",
    ("fail", "pass"): "passing",
    ("flaky", "known-limit"): "passing",
    ("pass", "known-limit"): "changed",
    ("fail", "flaky"): "changed",
    ("unexpected-pass", "fail"): "changed",
}


@pytest.mark.parametrize(("verdicts", "kind"), KINDS.items(), ids=str)
def test_a_change_is_described_by_its_meaning(verdicts, kind):
    found = difference(with_verdicts(verdicts[0]), with_verdicts(verdicts[1]))
    assert {name: len(changes) for name, changes in found.changes.items()} == {kind: 1}
    cell = HEALTHY.results[0].cell.id
    assert found.changes[kind] == (VerdictChange(cell, *verdicts),)


def test_every_cell_is_in_one_kind_at_most_and_only_if_it_changed():
    before, after = VERDICTS, tuple(reversed(VERDICTS))
    found = difference(with_verdicts(*before), with_verdicts(*after))
    cells = [change.cell for changes in found.changes.values() for change in changes]
    assert len(cells) == len(set(cells)) == len(VERDICTS)


def test_cells_that_came_and_went_are_neither_better_nor_worse():
    fewer, more = with_verdicts("pass"), with_verdicts("pass", "fail")
    second = HEALTHY.results[1].cell.id
    assert difference(fewer, more).changes["new"] == (VerdictChange(second, None, "fail"),)
    assert difference(more, fewer).changes["gone"] == (VerdictChange(second, "fail", None),)
    assert difference(fewer, more).worse == 0


def test_a_dead_node_is_one_sentence_and_the_way_back_is_another():
    dead = made_run("dead-node")
    worse, better = difference(HEALTHY, dead), difference(dead, HEALTHY)
    (pattern,) = worse.patterns["failing"]
    assert pattern.sentence.startswith("everything to and from win1 (")
    assert set(pattern.cells) == {change.cell for change in worse.changes["failing"]}
    assert [pattern.cells for pattern in better.patterns["passing"]] == [pattern.cells]
    lines = text_lines(worse)
    assert lines[0] == f"{len(worse.changes['failing']):,} cells newly failing"
    assert lines[1] == f"  * {pattern.sentence}"
    assert lines[2] == f"    example: {pattern.example.cell}: pass, now fail"
    assert lines[3].startswith("    because: ")
    assert lines[4].startswith("    repeat:  ")


def test_a_lost_hypervisor_is_one_sentence():
    lost_ones = {"win1", "worker1"}
    others = {"master", "worker2", "win2"}
    stands = (
        *((name, "hypervisor-02") for name in sorted(lost_ones)),
        *((name, "hypervisor-01") for name in sorted(others)),
    )

    def touches(cell):
        pods = {name.partition("-p")[0] for name in cell.backends}
        ends = {cell.source.node, cell.target.node, cell.source.name, cell.target.name, cell.entry}
        return bool(lost_ones & (ends | pods))

    lost = tuple(
        replace(result, verdict="fail")
        if result.verdict == "pass" and touches(result.cell)
        else result
        for result in HEALTHY.results
    )
    standing = replace(HEALTHY, hosts=stands)
    (pattern,) = difference(standing, replace(standing, results=lost)).patterns["failing"]
    assert pattern.sentence.startswith("everything on hypervisor-02 (")


def test_cells_that_were_red_already_do_not_stand_against_a_pattern():
    dead = made_run("dead-node")
    results = list(HEALTHY.results)
    places = [i for i, result in enumerate(dead.results) if result.verdict == "fail"][::2]
    for place in places:
        results[place] = dead.results[place]
    (pattern,) = difference(replace(HEALTHY, results=tuple(results)), dead).patterns["failing"]
    assert pattern.sentence.startswith("everything to and from win1 (")


def test_nodes_missing_from_one_run_are_named():
    fewer = replace(
        HEALTHY, results=tuple(result for result in HEALTHY.results if "win2" not in result.cell.id)
    )
    found = difference(HEALTHY, fewer)
    assert [pattern.sentence.partition(" (")[0] for pattern in found.patterns["gone"]] == [
        "everything to and from win2"
    ]
    assert found.unchanged == len(fewer.results)
    assert text_lines(found)[2].startswith("    example: ")
    assert difference(fewer, HEALTHY).patterns["new"]


def test_a_change_within_one_colour_names_both_verdicts():
    before = with_verdicts(*["pass"] * 4)
    found = difference(before, with_verdicts(*["known-limit"] * 4))
    assert found.patterns["changed"][0].sentence.endswith("4 pass, now known-limit)")


def test_changes_in_no_pattern_are_listed_up_to_a_number():
    several = [i for i, result in enumerate(HEALTHY.results) if result.verdict == "pass"][::97]
    results = list(HEALTHY.results)
    for place in several:
        results[place] = replace(results[place], verdict="fail")
    found = difference(HEALTHY, replace(HEALTHY, results=tuple(results)))
    lines = text_lines(found)
    assert sum(line.startswith("  * ") for line in lines) == min(len(several), 10)
    assert (f"  and {len(several) - 10:,} more" in lines) == (len(several) > 10)


def asked(run: RunResult, name: str) -> RunResult:
    """The run with one question to the DNS, asked as ``name``."""
    result = HEALTHY.results[0]
    cell = replace(
        result.cell,
        id=f"dns/worker1-p1/{name}/udp-small",
        family="dns",
        name_form="partial",
        target=replace(result.cell.target, name=name, kind="name"),
    )
    return replace(run, results=(*run.results, replace(result, cell=cell)))


def test_names_in_the_dns_are_the_same_cell_whatever_the_namespace():
    result, other = asked(HEALTHY, "to-p1.default"), asked(HEALTHY, "to-p1.probes")
    found = difference(result, other)
    assert not found.changes
    assert found.unchanged == len(HEALTHY.results) + 1
    assert difference(result, asked(HEALTHY, "to-p2.default")).changes["gone"]


def test_checks_of_a_cluster_count_as_cells():
    check = WorkloadResult("worker1", "secret", "pass", "")
    before = replace(HEALTHY, workloads=(check,))
    after = replace(HEALTHY, workloads=(replace(check, verdict="fail", detail="empty"),))
    found = difference(before, after)
    assert found.changes["failing"] == (VerdictChange("workloads/worker1/secret", "pass", "fail"),)
    assert text_lines(found)[1] == "  * workloads/worker1/secret: pass, now fail"


def test_assertions_count_as_cells():
    before = replace(HEALTHY, assertions=(made_assertion("pass"),))
    after = replace(HEALTHY, assertions=(made_assertion("fail"),))
    (change,) = difference(before, after).changes["failing"]
    assert change.words() == "assertions/forwarding/worker1: pass, now fail"


def test_json_has_every_change_and_every_pattern():
    document = to_json(difference(HEALTHY, made_run("dead-node")))
    assert list(document) == [*LISTED, "unasked", "patterns", "unchanged"]
    assert document["failing"][0]["after"] == "fail"
    assert document["patterns"]["failing"][0]["cells"] == [
        one["cell"] for one in document["failing"]
    ]


def sampled(run: RunResult, *places: int, pods: int = 2) -> RunResult:
    """So many cells of the run, as a sample of a lab with so many pods a node."""
    results = made_run("healthy", pods=pods).results
    return replace(
        run,
        coverage=SAMPLED,
        results=tuple(result for n, result in enumerate(results) if n in places),
    )


def test_what_only_the_other_sample_left_out_is_neither_gone_nor_new():
    made = replace(HEALTHY, scenario_text="name: overlay\n")
    found = difference(sampled(made, 0, 1, 2), sampled(made, 2, 3))
    first = [HEALTHY.results[place].cell.id for place in range(4)]
    assert [(change.cell, change.before, change.after) for change in found.unasked] == [
        (first[3], None, "pass"),
        (first[0], "pass", None),
        (first[1], "pass", None),
    ]
    assert (found.changes, found.unchanged) == ({}, 1)
    assert text_lines(found) == []
    assert to_json(found)["unasked"][0] == {"cell": first[3], "before": None, "after": "pass"}


def test_a_run_of_every_cell_has_left_none_out():
    made = replace(HEALTHY, scenario_text="name: overlay\n")
    part = sampled(made, 0, 1)
    missing = len(HEALTHY.results) - 2
    assert len(difference(made, part).unasked) == missing
    assert len(difference(part, made).unasked) == missing
    whole = replace(part, coverage=None)
    found = difference(made, whole)
    assert (len(found.changes["gone"]), found.unasked) == (missing, ())


def test_of_another_scenario_a_cell_is_gone_when_nothing_else_names_its_ends():
    fewer = replace(sampled(HEALTHY, *range(0, 2000, 7), pods=1), scenario_text="one pod")
    found = difference(replace(HEALTHY, scenario_text="two pods"), fewer)
    assert all("-p2/" in change.cell for change in found.changes["gone"])
    assert any("-p2/" in change.cell for change in found.changes["gone"])
    assert found.unasked
    assert not any("-p2/" in change.cell for change in found.unasked)


DEAD = made_run("dead-node")


def test_worse_cells_are_exit_code_one_and_nothing_else_is():
    made = compare(HEALTHY, DEAD)
    assert made.exit_code == 1
    unchanged = len(HEALTHY.results) - len(made.changes["failing"])
    assert plain_lines(made)[-1] == f"{unchanged:,} cells as before"
    assert compare(DEAD, HEALTHY).exit_code == 0
    assert compare(DEAD, DEAD).exit_code == 0


def test_two_runs_alike_are_one_line():
    lines = plain_lines(compare(HEALTHY, HEALTHY))
    assert lines[0].startswith("Before: run 20261121-101500-7f3a of lab 'overlay' on netns")
    assert lines[-1] == f"No cell differs, of {len(HEALTHY.results):,}."


def test_a_comparison_says_what_nodes_of_a_run_are() -> None:
    words = "Windows nodes are programs on Wine"
    compared = compare(HEALTHY, replace(HEALTHY, disclaimer=words))
    lines = plain_lines(compared)
    after = next(index for index, line in enumerate(lines) if line.startswith("After:"))
    assert [words in line for line in lines[: after + 2]] == [False] * (after + 1) + [True]
    document = comparison_json(compared)
    assert (document["before"]["disclaimer"], document["after"]["disclaimer"]) == ("", words)


def test_a_pattern_is_reported_with_its_cause():
    finding = Difference(
        "wrong-vni", "wrong-vni", "win1", "tunnel", "VNI 4096", "VNI 1", "", "", ""
    )
    results = tuple(
        replace(result, finding=finding) if result.verdict == "fail" else result
        for result in DEAD.results
    )
    made = compare(HEALTHY, replace(DEAD, results=results))
    line = "on win1, tunnel: VNI 1; it should be: VNI 4096 (wrong-vni)"
    lines = plain_lines(made)
    at = lines.index(f"  * {line}: 1,000 cells")
    assert lines[at + 1].startswith("    where:   everything to and from win1 (1,000 of ")
    (pattern,) = comparison_json(made)["patterns"]["failing"]
    assert pattern["cause"] == line


def test_two_causes_are_both_reported_and_share_no_cell():
    finding = Difference(
        "wrong-vni", "wrong-vni", "win1", "tunnel", "VNI 4096", "VNI 1", "", "", ""
    )
    rare = replace(finding, kind="link-down", fault="", node="master", object="card")
    results = [
        replace(result, finding=finding) for result in DEAD.results if result.verdict == "fail"
    ]
    results[7] = replace(results[7], finding=rare)
    results[9] = replace(results[9], finding=None)
    others = [result for result in DEAD.results if result.verdict != "fail"]
    made = compare(HEALTHY, replace(DEAD, results=(*others, *results)))
    patterns = comparison_json(made)["patterns"]["failing"]
    assert [(pattern["cause"], len(pattern["cells"])) for pattern in patterns] == [
        (finding.line, 998),
        (rare.line, 1),
    ]
    assert results[9].cell.id in "\n".join(plain_lines(made))


def test_runs_that_have_no_cell_in_common_are_refused():
    hairpin, pods = (made_run("healthy", families=(family,)) for family in ("hairpin", "pod-pod"))
    with pytest.raises(UsageError, match="no cell in common"):
        compare(hairpin, pods)


def test_json_names_its_runs():
    document = comparison_json(compare(HEALTHY, DEAD))
    assert document["before"]["run"] == HEALTHY.run
    assert document["before"]["green"] is True
    assert document["after"]["green"] is False
    assert document["worse"] == len(document["failing"])
    assert document["common"] == document["unchanged"] + document["worse"]


AGAIN = replace(HEALTHY, run="20261121-101600-1111", started="2026-11-21T10:16:00+00:00")
ELSEWHERE = replace(HEALTHY, provider="libvirt", only="linux", windows_rules_off=("WIN-X",))
MADE_BY = Provenance("0.1.0", "1f2e3d4c5b6a", "3.11.2", "Linux 6.1.0", "x86_64, 8 GiB")
NOTES = {
    "nothing": (AGAIN, []),
    "itself": (HEALTHY, [f"both are run {HEALTHY.run}: 'overlay~1' is the one before it"]),
    "the wrong way round": (
        replace(DEAD, started="2026-11-20T10:15:00+00:00"),
        ["by their clocks the first run is the later one, so the changes would be reversed"],
    ),
    "sample": (
        replace(HEALTHY, coverage=SAMPLED),
        ["different samples: none and 'node-pairs' with seed 7"],
    ),
    "an earlier version without provenance": (
        replace(HEALTHY, provenance=MADE_BY),
        [
            f"different versions of the tool: one that did not record it and {MADE_BY.tool}",
        ],
    ),
    "place": (
        ELSEWHERE,
        [
            "different providers: netns and libvirt",
            "different choices of nodes: all and linux alone",
            "different Windows rules switched off: none and WIN-X",
        ],
    ),
}


@pytest.mark.parametrize("case", NOTES)
def test_what_else_differs_is_noted(case):
    other, expected = NOTES[case]
    made = compare(HEALTHY, other)
    assert list(notes(made)) == expected
    assert (f"        {REACHED}" in plain_lines(made)) == (case == "sample")


PARTS = {
    "versions of the tool": {"version": "0.2.0"},
    "versions of Python": {"python": "3.14.0"},
    "kernels": {"kernel": "Linux 6.12.0"},
    "hosts": {"host": "aarch64, 4 GiB"},
}


@pytest.mark.parametrize("noun", PARTS)
def test_a_change_of_the_tool_or_of_the_machine_is_told_by_its_part(noun):
    after = replace(AGAIN, provenance=replace(MADE_BY, **PARTS[noun]))
    (line,) = notes(difference(replace(HEALTHY, provenance=MADE_BY), after))
    assert line.startswith(f"different {noun}: ")
    (new,) = PARTS[noun].values()
    assert new in line.partition(" and ")[2]


def test_runs_of_one_tool_on_one_machine_need_no_note():
    before, after = (replace(run, provenance=MADE_BY) for run in (HEALTHY, AGAIN))
    made = difference(before, after)
    assert list(notes(made)) == []
    assert comparison_json(made)["after"]["provenance"]["commit"] == "1f2e3d4c5b6a"


AUTUMN, SPRING = "2026-11-21T10:15:00+00:00", "2026-03-01T00:00:00+00:00"


@pytest.mark.parametrize(
    ("first", "second", "lab", "said"),
    [
        ((1, AUTUMN), (2, SPRING), "overlay", ""),
        ((2, SPRING), (1, AUTUMN), "overlay", "the first run is the later one"),
        ((1, AUTUMN), (2, SPRING), "other", "by their clocks the first run is the later one"),
        ((0, AUTUMN), (2, SPRING), "overlay", "by their clocks the first run is the later one"),
        ((0, SPRING), (0, AUTUMN), "overlay", ""),
    ],
    ids=["clock set back", "reversed", "other labs", "without a number", "by the clock"],
)
def test_which_run_is_the_later_one_is_a_matter_of_their_numbers(first, second, lab, said):
    before, after = (
        replace(HEALTHY, run=f"run-{number}", number=number, started=started)
        for number, started in (first, second)
    )
    found = " ".join(notes(difference(replace(before, lab="overlay"), replace(after, lab=lab))))
    assert (said in found) if said else ("later" not in found)


def test_a_copy_of_a_run_is_the_same_run_though_no_number_is_known_of_it():
    assert "both are run" in " ".join(notes(difference(replace(HEALTHY, number=3), HEALTHY)))
