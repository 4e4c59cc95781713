"""Every entry of the table has a line that has it, and a near miss that has not."""

import json
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from lab.facts.signatures import SignatureMatch, in_log, match, table

OBSERVERS = Path(__file__).parents[2] / "cases/observers"
CASES: dict[str, dict[str, str]] = json.loads((OBSERVERS / "signatures.json").read_text())


def test_every_signature_has_its_case_and_no_case_is_left_over():
    assert [signature.id for signature in table()] == list(CASES)


def test_a_line_matches_only_its_own_signature():
    told = {name: [match.id for match in match([case["line"]])] for name, case in CASES.items()}
    assert told == {name: [name] for name in CASES}


def test_a_near_miss_is_left_alone():
    for name, case in CASES.items():
        assert name not in {match.id for match in match([case["near_miss"]])}


def test_every_entry_is_complete_and_cause_and_hint_have_no_unfilled_fields():
    for signature in table():
        assert all(
            (
                signature.of,
                signature.pattern,
                signature.cause,
                signature.hint,
                signature.source,
                signature.versions,
            )
        ), signature.id
        assert not signature.cause.endswith("."), signature.id
        assert not signature.hint.endswith("."), signature.id
        (found,) = match([CASES[signature.id]["line"]])
        for group in re.compile(signature.pattern).groupindex:
            assert f"{{{group}}}" not in found.cause + found.hint, signature.id


def test_a_line_is_named_once_with_its_last_place_in_the_order_of_the_table():
    full, swap = (CASES[name]["line"] for name in ("disk-full", "kubelet-swap"))
    matches = match([full, swap, "nothing", swap])
    assert [(match.id, match.times, match.number) for match in matches] == [
        ("kubelet-swap", 2, 3),
        ("disk-full", 1, 0),
    ]


@pytest.mark.parametrize("log", sorted(OBSERVERS.glob("healthy-*.log")), ids=lambda log: log.stem)
def test_a_healthy_log_has_none(log):
    assert match(log.read_text().splitlines()) == ()


def test_what_is_found_in_a_log_has_its_place_and_how_often():
    line = CASES["kubelet-swap"]["line"]
    (entry,) = in_log("worker1/kubelet.log", f"fine\n{line}\n{line}\n")
    assert entry.place == "worker1/kubelet.log, line 3 and 1 more"
    assert str(entry) == f"{entry.place}: {entry.match}\n  {line}\n"


def test_values_of_the_line_appear_in_cause_and_hint():
    (found,) = match([CASES["node-name-forbidden"]["line"]])
    assert found.cause == "kubelet calls itself WIN1, but its certificate is for win1"
    assert str(found) == f"{found.cause}; try: {found.hint}"
    assert isinstance(found, SignatureMatch)


def test_no_signature_begins_with_something_that_fits_everything():
    """From every character of a long line such a pattern would look to its end."""
    greedy = re.compile(r"(\(\?P<\w+>|\(\?:)*(\\S|\\w|\.|\[[^]]*\])[+*]")
    assert [signature.id for signature in table() if greedy.match(signature.pattern)] == []


def test_the_end_of_an_endless_line_is_not_looked_at():
    text = "Running with swap on is not supported"
    assert match([text + "x" * 100_000])
    assert not match(["x" * 100_000 + text])


def test_a_line_from_before_the_lab_worked_is_left_out():
    line = CASES["kubelet-swap"]["line"]
    day = "2026-11-28T01"
    lines = [
        f"{day}:20:36+0000 w kubelet[3]: {line}",
        f"  {line}",
        f"{day}:20:37.465475123Z stderr F {line}",
        f"{day}:30:00+0000 w kubelet[3]: {line}",
        f"  {line}",
    ]
    since = datetime(2026, 11, 28, 1, 25, tzinfo=UTC).timestamp()
    (entry,) = in_log("w/kubelet.log", "\n".join(lines), since)
    assert (entry.match.times, entry.match.number) == (2, 4)
    assert in_log("w/kubelet.log", "\n".join(lines[:3]), since) == ()
    assert in_log("w/kubelet.log", line, since)  # its time is unknown


@pytest.mark.parametrize(
    ("second_life", "times"),
    [
        (
            ["I1129 14:01:00.000001     312 a.go:1] up", "I1129 14:02:00.000002     312 a.go:2] b"],
            0,
        ),
        (
            ["I1129 14:01:00.000001     312 a.go:1] up", "I1129 14:01:59.000002     312 a.go:2] b"],
            1,
        ),
        (
            [
                "I1129 14:01:00.000001     308 a.go:1] same",
                "I1129 14:09:00.000002     308 a.go:2] b",
            ],
            1,
        ),
        ([], 1),
    ],
)
def test_a_line_of_an_earlier_process_is_left_out_once_the_present_one_runs_steadily(
    second_life, times
):
    line = CASES["kubelet-swap"]["line"]
    first = f"E1129 14:00:00.123456     308 run.go:72] {line}"
    entries = in_log("win/kubelet.log", "\n".join([first, *second_life]))
    assert sum(entry.match.times for entry in entries) == times
