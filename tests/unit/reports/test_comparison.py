"""Two runs held against each other: text, JSON and exit code."""

from __future__ import annotations

from dataclasses import replace

import pytest
from unit.reports.made_runs import REACHED, SAMPLED, made_run

from lab._errors import UsageError
from lab.matrix.verdict import Finding
from lab.reports.difference import compare, comparison_json, notes, plain_lines

HEALTHY, DEAD = made_run("healthy"), made_run("dead-node")


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


def test_the_cause_of_a_pattern_is_told_with_it():
    finding = Finding("wrong-vni", "wrong-vni", "win1", "tunnel", "VNI 4096", "VNI 1", "", "", "")
    results = tuple(
        replace(one, finding=finding) if one.verdict == "fail" else one for one in DEAD.results
    )
    made = compare(HEALTHY, replace(DEAD, results=results))
    line = "on win1, tunnel: VNI 1; it should be: VNI 4096 (wrong-vni)"
    lines = plain_lines(made)
    at = lines.index(f"  * {line}: 1,000 cells")
    assert lines[at + 1].startswith("    where:   everything to and from win1 (1,000 of ")
    (pattern,) = comparison_json(made)["patterns"]["failing"]
    assert pattern["cause"] == line


def test_of_two_causes_both_are_told_and_no_cell_belongs_to_both():
    finding = Finding("wrong-vni", "wrong-vni", "win1", "tunnel", "VNI 4096", "VNI 1", "", "", "")
    rare = replace(finding, kind="link-down", fault="", node="master", object="card")
    results = [replace(one, finding=finding) for one in DEAD.results if one.verdict == "fail"]
    results[7] = replace(results[7], finding=rare)
    results[9] = replace(results[9], finding=None)
    others = [one for one in DEAD.results if one.verdict != "fail"]
    made = compare(HEALTHY, replace(DEAD, results=(*others, *results)))
    patterns = comparison_json(made)["patterns"]["failing"]
    assert [(one["cause"], len(one["cells"])) for one in patterns] == [
        (finding.line, 998),
        (rare.line, 1),
    ]
    assert results[9].cell.id in "\n".join(plain_lines(made))


def test_runs_that_have_no_cell_in_common_are_refused():
    hairpin, pods = (made_run("healthy", families=(family,)) for family in ("hairpin", "pod-pod"))
    with pytest.raises(UsageError, match="no cell in common"):
        compare(hairpin, pods)


def test_json_says_of_which_runs_it_is():
    document = comparison_json(compare(HEALTHY, DEAD))
    assert document["before"]["run"] == HEALTHY.run
    assert document["before"]["green"] is True
    assert document["after"]["green"] is False
    assert document["worse"] == len(document["failing"])
    assert document["common"] == document["unchanged"] + document["worse"]


AGAIN = replace(HEALTHY, run="20261121-101600-1111", started="2026-11-21T10:16:00+00:00")
ELSEWHERE = replace(HEALTHY, provider="libvirt", only="linux", windows_rules_off=("WIN-X",))
NOTES = {
    "nothing": (AGAIN, []),
    "itself": (HEALTHY, [f"both are run {HEALTHY.run}: 'overlay~1' is the one before it"]),
    "the wrong way round": (
        replace(DEAD, started="2026-11-20T10:15:00+00:00"),
        ["note: the first run is the later one, so the changes are reversed"],
    ),
    "sample": (
        replace(HEALTHY, coverage=SAMPLED),
        ["different samples: none and 'node-pairs' with seed 7"],
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
