import itertools
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from unit.reports.made_runs import (
    FAILOVER,
    SAMPLED,
    intent_of,
    made_assertion,
    made_run,
    many_nodes,
)

from lab._errors import BrokenError
from lab.facts.difference import Difference
from lab.matrix.verdict import CellResult, RunResult
from lab.providers.provider import Outcome
from lab.providers.workloads import WorkloadResult
from lab.reports.result import expanded_text, from_json, to_json, to_text
from lab.reports.topology import picture_of
from lab.state.provenance import Provenance
from lab.topology.observed import NodeVersion

AMOUNTS = st.floats(min_value=0, allow_infinity=False)
OUTCOMES = st.lists(st.builds(Outcome, latency_ms=AMOUNTS), max_size=2).map(tuple)
RESULTS = st.lists(st.builds(CellResult, attempts=OUTCOMES), max_size=3).map(tuple)
RUNS = st.builds(RunResult, seconds=AMOUNTS, results=RESULTS)


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(RUNS)
def test_any_run_survives_being_written_and_read(run):
    for written in (json.dumps(to_json(run, intent_of())), to_text(run, intent_of())):
        assert from_json(json.loads(written)) == (run, picture_of(intent_of()))


def test_the_same_run_gives_the_same_bytes():
    run = made_run("mixed")
    addresses = ["10.0.0.2", "10.0.0.1", "9.9.9.9"]
    first, second = (
        [
            replace(result, cell=replace(result.cell, sources=frozenset(order)))
            for result in run.results
        ]
        for order in (addresses, addresses[::-1])
    )
    written = [
        json.dumps(to_json(replace(run, results=tuple(cells)), intent_of()))
        for cells in (first, second)
    ]
    assert written[0] == written[1]


def test_runs_of_formats_1_and_2_are_read_without_what_they_lack():
    run = made_run("mixed")
    document = to_json(replace(run, scenario_text="name: overlay", only="linux"), intent_of())
    assert from_json(document)[0].scenario_text == "name: overlay"
    for cell in document["cells"]:
        del cell["refusal"], cell["sticky"], cell["expectation"]["promised"]
    whole = replace(run, scenario_text="name: overlay", only="linux")
    assert from_json({**document, "format": 2})[0] == whole
    for key in ("scenario_text", "only", "nodes", "workloads", "assertions", "provenance"):
        del document[key]
    assert from_json({**document, "format": 1})[0] == run


def test_what_made_a_run_survives():
    made_by = Provenance("0.1.0", "1f2e3d4c5b6a", "3.11.2", "Linux 6.1.0", "x86_64, 8 processors")
    run = replace(made_run("healthy"), provenance=made_by)
    for written in (json.dumps(to_json(run, intent_of())), to_text(run, intent_of())):
        assert from_json(json.loads(written))[0].provenance == made_by


def test_a_clusters_facts_about_nodes_survive_and_a_failed_check_is_not_green():
    run = replace(
        made_run("healthy"),
        nodes=(NodeVersion("win1", "v1.36.3", "Windows", "10.0.20348.2762", "containerd://2.3.7"),),
        workloads=(WorkloadResult("win1", "secret", "pass", ""),),
    )
    assert run.green()
    failed = replace(run, workloads=(WorkloadResult("win1", "secret", "fail", "no value"),))
    assert not failed.green()
    assert from_json(json.loads(json.dumps(to_json(failed, intent_of()))))[0] == failed


def test_assertions_survive():
    run = replace(made_run("healthy"), assertions=(made_assertion("fail"),))
    for written in (json.dumps(to_json(run, intent_of())), to_text(run, intent_of())):
        assert from_json(json.loads(written))[0] == run


def test_a_failover_survives_and_one_that_went_wrong_is_not_green():
    run = replace(made_run("healthy"), failover=FAILOVER)
    assert run.green()
    assert from_json(json.loads(json.dumps(to_json(run, intent_of()))))[0] == run
    wrong = replace(FAILOVER, back=replace(FAILOVER.back, wrong=("a route is missing",)))
    assert not replace(run, failover=wrong).green()
    document = to_json(replace(run, failover=wrong), intent_of())
    assert document["failover"]["trouble"] == "while master1 is back: a route is missing"
    assert document["failover"]["longest_seconds"] == {"away": 2.75, "back": 0.0}


@pytest.mark.parametrize("case", ["healthy", "mixed", "dead-node"])
def test_a_stored_run_is_expanded_to_one_line_per_cell(case):
    run = made_run(case)
    text = expanded_text(to_text(run, intent_of()))
    assert list(json.loads(text).items()) == list(
        json.loads(json.dumps(to_json(run, intent_of()))).items()
    )
    assert sum(line.startswith(' {"id":') for line in text.splitlines()) == len(run.results)
    assert expanded_text(text) == text


@pytest.mark.parametrize("case", ["healthy", "mixed", "dead-node"])
def test_a_cell_is_stored_in_at_most_150_bytes(case):
    run = made_run(case, many_nodes(6))
    stored = to_text(run, intent_of(many_nodes(6)))
    assert len(stored.encode()) <= 150 * len(run.results)


def test_texts_that_repeat_more_than_a_file_holds_are_not_made():
    run = made_run("healthy")
    document = json.loads(to_text(run, intent_of()))
    document["cells"]["values"]["id"][0] = "x" * 900
    document["cells"]["rows"][0][0] = [0] * 1_000
    with pytest.raises(BrokenError, match="900999 characters"):
        from_json(document)


def set_latency(document: dict[str, Any]) -> None:
    document["cells"][0]["attempts"][0]["latency_ms"] = -1.0


def set_answered(document: dict[str, Any]) -> None:
    document["failover"]["back"]["silences"][0]["answered"] = -1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda document: document.update(seconds=-5), "seconds is -5,"),
        (lambda document: document.update(number=-1), "number is -1,"),
        (lambda document: document["coverage"]["askers"].update(of=-2), "coverage: of is -2,"),
        (set_latency, "attempts: latency_ms is -1,"),
        (set_answered, "silences: answered is -1,"),
    ],
)
def test_negative_counts_and_times_are_malformed(change, message):
    run = replace(made_run("healthy"), coverage=SAMPLED, failover=FAILOVER)
    document = json.loads(json.dumps(to_json(run, intent_of())))
    assert from_json(document)[0] == run
    change(document)
    with pytest.raises(BrokenError, match=f"malformed: {message} and cannot be negative"):
        from_json(document)


def test_long_ids_and_commands_survive():
    run = made_run("healthy")
    result = run.results[0]
    cell = replace(result.cell, id="/".join(["pod-pod"] * 500))
    results = (replace(result, cell=cell, repeat=f"lab test overlay -k {cell.id}"),)
    run = replace(run, results=results)
    assert from_json(json.loads(to_text(run, intent_of())))[0] == run


def test_the_keys_of_format_3_are_these_in_this_order():
    document = to_json(made_run("mixed"), intent_of())
    cell = document["cells"][0]
    assert document["format"] == 3
    assert list(document) == [
        "format", "run", "number", "lab", "scenario", "summary", "topology", "provider", "banner",
        "emulated_nodes", "disclaimer", "windows_rules_off", "only", "scenario_text", "version",
        "started", "seconds", "green", "interrupted", "temporary", "provenance", "counts",
        "coverage", "nodes", "workloads", "assertions", "failover", "hosts", "picture", "findings",
        "cells",
    ]  # fmt: skip
    assert list(cell) == [
        "id", "family", "verdict", "detail", "source", "target", "protocol", "size", "relation",
        "entry", "name_form", "backends", "sources", "answer", "mtu", "refusal",
        "sticky", "entry_os", "min_throughput", "unreachable", "expectation", "attempts", "retried",
        "repeat", "finding", "searched",
    ]  # fmt: skip
    assert list(cell["source"]) == ["name", "kind", "os", "node", "address", "port"]
    assert list(cell["expectation"]) == [
        *("works", "rule", "reason", "source", "refusal", "promised", "exception")
    ]
    assert list(cell["attempts"][0]) == [
        "key", "status", "detail", "source_seen", "backends", "answer", "latency_ms",
        "other_sources", "throughput",
    ]  # fmt: skip
    assert list(document["picture"]["machines"][0]) == [
        "name", "kind", "os", "attachments", "pods", "tunnel", "routes", "host", "gateways",
    ]  # fmt: skip


def test_counts_are_of_every_verdict_and_of_the_families_that_occur():
    run = made_run("dead-node", families=("pod-pod", "nodeport"))
    counts = to_json(run, intent_of())["counts"]
    assert counts["cells"] == len(run.results)
    assert counts["verdicts"]["fail"] == run.count("fail") > 0
    assert counts["verdicts"]["flaky"] == 0
    assert list(counts["families"]) == ["pod-pod", "nodeport"]
    assert sum(counts["families"]["nodeport"].values()) == 960


FINDING = Difference(
    kind="link-down",
    fault="node-link-down",
    node="worker2",
    object="card eth0",
    intended="up",
    observed="set down",
    shows="ip link show dev eth0",
    mends="ip link set dev eth0 up",
    place="worker2",
    hop=7,
)


def test_what_was_found_on_the_paths_is_written_once_and_survives():
    run = made_run("dead-node", families=("pod-pod",))
    results = tuple(
        replace(result, finding=FINDING) if result.verdict == "fail" else result
        for result in run.results
    )
    run = replace(run, results=results)
    document = json.loads(json.dumps(to_json(run, intent_of())))
    assert [finding["kind"] for finding in document["findings"]] == ["link-down"]
    assert {cell["finding"] for cell in document["cells"]} == {0, None}
    assert from_json(document)[0] == run
    document["findings"] = []
    with pytest.raises(BrokenError):
        from_json(document)
    del document["findings"]
    for cell in document["cells"]:
        del cell["finding"]
    assert {result.finding for result in from_json(document)[0].results} == {None}


def test_how_much_was_asked_survives():
    run = replace(made_run("mixed"), coverage=SAMPLED)
    document = json.loads(json.dumps(to_json(run, intent_of())))
    assert document["coverage"]["cells"] == {"found": 1_234, "of": 36_134_400}
    assert from_json(document)[0] == run
    del document["coverage"]
    assert from_json(document)[0].coverage is None


WHOLE = to_json(made_run("healthy", families=("hairpin",)), intent_of())
STORED = json.loads(to_text(made_run("healthy", families=("hairpin",)), intent_of()))
MALFORMED = "missing or malformed"
UNREADABLE: list[tuple[dict[str, Any], str]] = [
    ({}, "its format is None, and this version of lab reads 4"),
    ({"format": 5}, "its format is 5"),
    ({"format": 1}, "there is no 'cells'"),
    ({"format": "word " * 3000}, "its format is"),
    ({"format": 1, "cells": {"word " * 3000: []}}, MALFORMED),
    ({**WHOLE, "cells": 7}, "TypeError"),
    ({**WHOLE, "picture": {"segments": [{}]}}, "segments.0.name: field required"),
    *(({**WHOLE, "format": odd}, "its format is") for odd in ([], {})),
    *(({**WHOLE, "seconds": odd}, MALFORMED) for odd in ("x", None)),
    ({**WHOLE, "started": None}, MALFORMED),
    ({**WHOLE, "windows_rules_off": [None]}, MALFORMED),
    *(
        ({**WHOLE, "cells": [{**WHOLE["cells"][0], **odd}]}, MALFORMED)
        for odd in ({"id": []}, {"verdict": None}, {"verdict": "x"})
    ),
    *(({**STORED, "cells": odd}, MALFORMED) for odd in (None, [], 7, {})),
    *(
        ({**STORED, "cells": {**STORED["cells"], **odd}}, MALFORMED)
        for odd in (
            {"rows": 7},
            {"rows": [[]]},
            {"rows": [[[-1], *[0] * 11]]},
            {"rows": [[["0"], *[0] * 11]]},
            {"rows": [[[0], *[9_999] * 10, []]]},
            {"rows": [[[0], True, *[0] * 9, []]]},
            {"values": {}},
            {"values": []},
            {"columns": ["id", "id"]},
            {"columns": None},
            {"fields": ["no such"]},
            {"attempt_columns": []},
        )
    ),
]


@pytest.mark.parametrize(("document", "words"), UNREADABLE, ids=itertools.count())
def test_unreadable_json_is_reported_briefly_with_a_hint(document, words):
    with pytest.raises(BrokenError) as caught:
        from_json(document)
    assert words in str(caught.value)
    assert len(str(caught.value)) < 600
    assert "lab test" in caught.value.hint
