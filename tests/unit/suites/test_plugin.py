import errno
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from paper_lab import PaperLabs, blueprint
from processes import run_program
from simulation import Fault, silent

from lab._errors import BrokenError, PreflightError, StateError, Terminated
from lab.matrix.cell import Cell
from lab.matrix.cells import cells
from lab.matrix.judge import expect
from lab.matrix.sampling import Part
from lab.providers.provider import Outcome, Probe, ProbeSettings, ProbesInterrupted
from lab.reports.wording import closing_line
from lab.scenario.assertion import Assertion
from lab.state import files
from lab.state.failure import FullError
from lab.suites import plugin, session

SUITE = ("--lab", "paper", "--pyargs", "lab.suites")
DIRECTORY = str(Path(plugin.__file__).parent)
LAB_TEST = str(Path(plugin.__file__).with_name("pytest.ini"))
"""The configuration that `lab test` gives pytest."""
TOTAL = len(blueprint()[3])
BROKEN = "pod-pod/master-p1/win1-p1/tcp-large"


@pytest.fixture
def outer(pytester):
    """Run pytest in process with the plugin and a lab that exists on paper."""

    def run(*arguments, labs=None):
        return pytester.runpytest_inprocess(
            *("-p", "lab.suites.plugin"), *arguments, plugins=[labs or PaperLabs(pytester.path)]
        )

    return run


def known_limits() -> int:
    limits, made = blueprint()[2:]
    return sum(not expect(cell, limits).works for cell in made)


def silence(holds: Callable[[Cell], bool]) -> Fault:
    return lambda cell, _, outcome: silent(outcome) if holds(cell) else outcome


one_silent, all_silent = silence(lambda cell: cell.id == BROKEN), silence(lambda _: True)


def one_of_each(cell: Cell, attempt: int, outcome: Outcome) -> Outcome:
    """A failure, a flaky cell, a probe error and an unexpected pass."""
    if cell.id == BROKEN:
        return silent(outcome)
    if cell.id == "pod-pod/master-p1/win1-p2/tcp-large" and attempt == 1:
        return silent(outcome)
    if cell.id == "pod-pod/master-p2/win1-p1/tcp-large":
        return replace(outcome, status="error", detail="no such namespace")
    if cell.id == "node-service/win1/to-win1-p1/tcp-small":
        return replace(outcome, status="ok", source_seen="10.244.1.1", backends=("win1-p1",))
    return outcome


def test_green_lab_passes_and_skips_its_known_limits_with_their_reasons(outer, pytester):
    labs = PaperLabs(pytester.path)
    result = outer(*SUITE, "-rs", labs=labs)
    result.assert_outcomes(passed=TOTAL - known_limits(), skipped=known_limits())
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        [
            "lab 'paper': netns: *Windows node win1 is emulated",
            "*WIN-HOST-SERVICE: a Service address cannot be reached*",
        ]
    )
    assert labs.lab.provider.looked_at == [], "where nothing fails, no cause is looked for"


def test_verdicts_become_outcomes_and_exit_code_1(outer, pytester):
    labs = PaperLabs(pytester.path, one_of_each)
    result = outer(*SUITE, labs=labs)
    result.assert_outcomes(
        passed=TOTAL - known_limits() - 3, skipped=known_limits() - 1, failed=3, errors=1
    )
    assert result.ret == 1


@pytest.mark.parametrize("repeat_with", ["", "lab repro '/a night/overlay'"])
def test_failure_is_reported_in_clean_lines_without_a_traceback(repeat_with, outer, pytester):
    labs = PaperLabs(pytester.path, one_silent)
    labs.lab.repeat_with = repeat_with
    result = outer(*SUITE, "-k", BROKEN, labs=labs)
    result.stdout.fnmatch_lines(
        [
            f"fail: {BROKEN}",
            "expected: to work; K8S-POD-POD: every pod reaches every other pod without NAT",
            "actual:   expected to work, but timed out: connect: no reply in 1.0 s*",
            "observed: source unknown, backend none",
            "attempts: 2",
            "cause:    none found on its path",
            f"repeat:   {repeat_with or 'lab test paper -k'} {BROKEN}",
        ]
    )
    result.stdout.no_fnmatch_line("*Traceback*")
    result.stdout.no_fnmatch_line("*connectivity.py:*")
    (run,) = labs.lab.recorded
    assert run.temporary == bool(repeat_with)


def test_findings_on_the_path_are_reported_with_the_failure(outer, pytester):
    labs = PaperLabs(pytester.path, one_silent)
    labs.lab.provider.seen["win1"] = BrokenError("asking 'win1'", "no route to host")
    junit = pytester.path / "cells.xml"
    result = outer(*SUITE, "-k", BROKEN, f"--junitxml={junit}", labs=labs)
    unread = "its state cannot be read: asking 'win1': no route to host"
    cause = f"on win1, the machine itself: {unread}"
    result.stdout.fnmatch_lines([f"fail: {BROKEN}", f"cause:    {cause}*"])
    assert len(labs.lab.provider.looked_at) == 1
    (run,) = labs.lab.recorded
    (found,) = run.results
    assert found.finding is not None
    assert (found.finding.kind, found.finding.node) == ("machine-silent", "win1")
    suite = ET.parse(junit).getroot().find("testsuite")
    assert suite is not None
    told = {one.get("name"): one.get("value") for one in suite.iter("property")}
    assert told["cause"] == found.finding.line
    assert told["cause_1"] == f"{found.finding.line}: 1 cell"


@pytest.mark.parametrize(
    ("choice", "holds"),
    [
        (("-k", "win1 and tcp"), lambda c: "win1" in c.id and c.protocol == "tcp"),
        (("-k", BROKEN), lambda c: c.id == BROKEN),
        (("-k", "pod-pod and not udp"), lambda c: c.family == "pod-pod" and c.protocol != "udp"),
        (("-m", "node-pod"), lambda c: c.family == "node-pod"),
        (("-m", "pod-pod"), lambda c: c.family == "pod-pod"),
        (
            ("-m", "udp and large and windows"),
            lambda c: (
                (c.protocol, c.size) == ("udp", "large") and "windows" in {c.source.os, c.target.os}
            ),
        ),
        (
            ("-m", "windows and not linux"),
            lambda c: (c.source.os, c.target.os) == ("windows", "windows"),
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_choice_of_cells(choice, holds, outer, pytester):
    labs = PaperLabs(pytester.path)
    assert outer(*SUITE, *choice, "--strict-markers", labs=labs).ret == 0
    chosen = [result.cell for result in labs.taken[0][0].results]
    assert chosen == [cell for cell in blueprint()[3] if holds(cell)]


@pytest.mark.parametrize(
    ("place", "cells"),
    [
        (("--pyargs", "lab.suites.connectivity::pod-pod::master-p1/win1-p1/tcp-large"), 1),
        ((DIRECTORY, "-m", "hairpin", "-p", "no:cacheprovider"), 16),
    ],
    ids=["node id", "directory"],
)
def test_cells_can_be_chosen_by_place(place, cells, outer):
    outer("--lab", "paper", *place).assert_outcomes(passed=cells)


def test_last_failed_runs_the_red_cells_alone_and_failed_first_before_the_others(outer, pytester):
    outer(*SUITE, labs=PaperLabs(pytester.path, one_of_each))
    again = PaperLabs(pytester.path)
    outer(*SUITE, "--lf", labs=again).assert_outcomes(passed=3, skipped=1)
    assert len(again.taken[0][0].results) == 4
    whole = PaperLabs(pytester.path, one_silent)
    outer(*SUITE, "--lf", labs=whole)
    assert len(whole.taken[0][0].results) == TOTAL
    first = PaperLabs(pytester.path)
    outer(*SUITE, "--ff", labs=first)
    assert first.taken[0][0].results[0].cell.id == BROKEN
    assert len(first.taken[0][0].results) == TOTAL


@pytest.mark.parametrize(("option", "red"), [("-x", 1), ("--maxfail=2", 2)])
def test_x_stops_at_the_first_red_cell_in_every_report(option, red, outer, pytester):
    labs = PaperLabs(pytester.path, all_silent)
    result = outer(*SUITE, option, labs=labs)
    outcomes = result.parseoutcomes()
    assert outcomes["failed"] == red
    assert result.ret == 1
    run = labs.taken[0][0]
    outcomes.pop("warnings", None)  # those of pytest's plugins
    assert len(run.results) == sum(outcomes.values())
    assert run.count("fail") == red
    assert run.results[-1].verdict == "fail"
    assert run.coverage is not None
    assert run.coverage.share.endswith(f"of {TOTAL} cells")


def test_x_asks_little_beyond_the_red_cell_and_all_where_there_is_none(outer, pytester):
    plan = blueprint()[0]
    many = replace(plan, families=(*plan.families, "nodeport", "pod-service"))
    broken, green = PaperLabs(pytester.path, all_silent, plan=many), PaperLabs(pytester.path)
    outer(*SUITE, "-x", labs=broken)
    assert max(total for *_, total in broken.progress) < len(cells(many, blueprint()[1])) / 2
    result = outer(*SUITE, "-x", labs=green)
    assert result.ret == 0
    assert len(green.taken[0][0].results) == TOTAL


def test_collect_only_lists_cells_and_probes_nothing(outer, pytester):
    labs = PaperLabs(pytester.path, running=False)
    result = outer(*SUITE, "--collect-only", "-q", "-m", "hairpin", labs=labs)
    result.stdout.fnmatch_lines(["paper::hairpin::master-p1/to-master-p1/tcp-small"])
    assert result.ret == 0
    assert labs.lab.provider.asked == 0
    assert not labs.lab.recorded


def test_probing_is_done_in_bulk_before_the_first_item(outer, pytester):
    labs = PaperLabs(pytester.path, one_silent)
    outer(*SUITE, labs=labs)
    passes = [len(asked) for asked, _ in labs.lab.provider.network.sent]
    assert passes[1:] == [TOTAL, 1]
    assert labs.lab.held == 0
    begun = [(stage, total) for stage, done, total in labs.progress if done == 0 < total]
    ended = [(stage, total) for stage, done, total in labs.progress if done == total > 0]
    stages = ("probing", TOTAL), ("probing again", 1), ("looking for causes", 1)
    assert begun[1:] == [*stages, ("looking for lost packets", 1)]  # before: the first is awaited
    assert [*dict.fromkeys(ended)] == begun
    assert labs.progress[-1] == ("", 0, 0)


class Listener:
    """A plugin that keeps every report."""

    def __init__(self) -> None:
        self.reports: list[tuple[object, ...]] = []
        self.called: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        told = report.longrepr
        text = told[2] if isinstance(told, tuple) else None if told is None else str(told)
        noted = [(name, str(value)) for name, value in report.user_properties]
        self.reports.append(
            (report.nodeid, report.when, report.outcome, text, noted, sorted(report.keywords))
        )


class Hearer(Listener):
    """And one that wants to hear of the calls themselves."""

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        self.called.add(item.nodeid)


def test_reports_are_those_that_pytest_would_have_made_with_all_its_calls(pytester):
    quick, whole = Listener(), Hearer()
    for listener in (quick, whole):
        labs = PaperLabs(pytester.path, one_of_each)
        pytester.runpytest_inprocess("-p", "lab.suites.plugin", *SUITE, plugins=[labs, listener])
    assert len(whole.called) == TOTAL
    assert not quick.called
    assert {report[2] for report in quick.reports} == {"passed", "failed", "skipped"}
    assert without_seconds(quick) == without_seconds(whole)


def without_seconds(listener: Listener) -> list[tuple[object, ...]]:
    return [
        (*head, [one for one in noted if one[0] != "latency_ms"], keywords)  # type: ignore[attr-defined]
        for *head, noted, keywords in listener.reports
    ]


def test_junit_has_one_case_a_cell_with_its_record(outer, pytester):
    labs = PaperLabs(pytester.path, one_of_each)
    outer(*SUITE, "--junitxml", "out.xml", labs=labs)
    suite = ET.parse(pytester.path / "out.xml").getroot().find("testsuite")
    assert suite is not None
    counts = [suite.get(key) for key in ("tests", "failures", "errors", "skipped")]
    assert counts == [str(TOTAL), "3", "1", str(known_limits() - 1)]
    run = labs.taken[-1][0]
    assert suite.get("name") == f"hybridlab.{run.provider}.{run.scenario}"
    cases = {f"{c.get('classname')}/{c.get('name')}": c for c in suite.findall("testcase")}
    broken = cases["paper.pod-pod/master-p1/win1-p1/tcp-large"]
    failure = broken.find("failure")
    assert failure is not None
    assert "timed out" in str(failure.text)
    record = {p.get("name"): p.get("value") for p in broken.iter("property")}
    assert record["attempts"] == "2"
    assert record["rule"] == "K8S-POD-POD"
    assert record["repeat"] == f"lab test paper -k {BROKEN}"
    good = cases["paper.pod-pod/master-p1/win1-p1/tcp-small"]
    record = {p.get("name"): p.get("value") for p in good.iter("property")}
    assert record["source_seen"] == "10.244.0.4"
    assert record["backend"] == "win1-p1"
    assert record["latency_ms"] == "0.200"
    ids = {result.cell.id: result for result in run.results}
    spent = {name: sum(one.latency_ms for one in ids[name].attempts) for name in (BROKEN,)}
    assert float(str(broken.get("time"))) == pytest.approx(spent[BROKEN] / 1000, abs=0.001)
    assert spent[BROKEN] > 0
    error = cases["paper.pod-pod/master-p2/win1-p1/tcp-large"].find("error")
    assert error is not None
    assert "no such namespace" in str(error.text)
    skipped = cases["paper.node-service/win1/to-win1-p1/udp-small"].find("skipped")
    assert skipped is not None
    assert "WIN-HOST-SERVICE" in str(skipped.get("message"))


ASSERTIONS = (
    Assertion(name="said", node="*", command=("echo", "yes"), matches="yes"),
    Assertion(name="unsaid", pod="master-p2", command=("echo", "no"), matches="yes"),
    Assertion(name="slow", node="master", command=("hang",), timeout=7),
    Assertion(name="gone", node="master", command=("nonesuch",)),
)


def test_assertions_are_items_of_their_own_in_every_report(outer, pytester):
    labs = PaperLabs(pytester.path, assertions=ASSERTIONS)
    result = outer(*SUITE, "-k", "assertions or hairpin", "--junitxml", "out.xml", labs=labs)
    assert result.ret == 1
    (run,) = labs.lab.recorded
    verdicts = {result.id: (result.verdict, result.detail) for result in run.assertions}
    assert verdicts == {
        "said/master": ("pass", ""),
        "said/win1": ("known-limit", "'win1' is emulated: it has no programs of Windows"),
        "unsaid/master-p2": ("fail", "no match of 'yes' in the output: no"),
        "slow/master": ("fail", "the command did not end within 7 s"),
        "gone/master": ("probe-error", "entering 'master': it is gone"),
    }
    suite = ET.parse(pytester.path / "out.xml").getroot().find("testsuite")
    assert suite is not None
    cases = {f"{c.get('classname')}/{c.get('name')}": c for c in suite.findall("testcase")}
    prefix = "paper.assertions/"
    ends = {name: [e.tag for e in case if e.tag != "properties"] for name, case in cases.items()}
    assert ends[f"{prefix}said/master"] == []
    assert ends[f"{prefix}said/win1"] == ["skipped"]
    assert ends[f"{prefix}unsaid/master-p2"] == ends[f"{prefix}slow/master"] == ["failure"]
    assert ends[f"{prefix}gone/master"] == ["error"]
    record = {p.get("name"): p.get("value") for p in cases[f"{prefix}slow/master"].iter("property")}
    repeat = "lab test paper -k assertions/slow/master"
    assert record == {"verdict": "fail", "command": "hang", "repeat": repeat}


def test_an_assertion_is_made_only_where_it_is_chosen(outer, pytester):
    labs = PaperLabs(pytester.path, assertions=ASSERTIONS)
    result = outer(*SUITE, "-k", "assertions/said/master", labs=labs)
    assert result.ret == 0
    result.assert_outcomes(passed=1)
    (run,) = labs.lab.recorded
    assert [result.id for result in run.assertions] == ["said/master"]
    assert run.green()


def test_run_is_recorded_with_its_junit_and_handed_over(outer, pytester):
    labs = PaperLabs(pytester.path, windows_rules_off=("WIN-HOST-SERVICE",))
    result = outer(*SUITE, "--junitxml", "out.xml", labs=labs)
    (run,) = labs.lab.recorded
    ((directory, text),) = labs.lab.junits
    assert directory == pytester.path / run.run
    assert (pytester.path / "out.xml").read_text() == text
    result.stdout.fnmatch_lines([f"*generated xml file: {pytester.path / 'out.xml'}*"])
    assert "</testsuites>" in text
    assert labs.taken == [(run, pytester.path / run.run)]
    assert (run.lab, run.scenario, run.topology) == ("paper", "overlay", "overlay")
    assert (run.provider, run.emulated_nodes) == ("netns", ("win1",))
    assert run.windows_rules_off == ("WIN-HOST-SERVICE",)
    assert run.started.endswith("+00:00")
    result.stdout.fnmatch_lines([f"run stored in {pytester.path / run.run}"])


@pytest.mark.parametrize(("stop", "code"), [(KeyboardInterrupt, 130), (Terminated, 143)])
def test_what_was_judged_before_a_stop_is_kept(stop, code, outer, pytester, monkeypatch):
    labs = PaperLabs(pytester.path, one_silent)
    send = labs.lab.provider.network.send

    def send_and_stop(probes: Sequence[Probe], settings: ProbeSettings) -> Mapping[int, Outcome]:
        outcomes = send(probes, settings)
        if len(probes) < TOTAL:  # before the first pass
            return outcomes
        raise ProbesInterrupted({key: outcomes[key] for key in [*outcomes][:60]}) from stop()

    monkeypatch.setattr(labs.lab.provider.network, "send", send_and_stop)
    pytester.makepyfile(test_own="def test_own():\n    assert False\n")
    result = outer(*SUITE, "test_own.py", "--junitxml", "out.xml", labs=labs)
    assert result.ret == code
    result.stderr.fnmatch_lines([f"interrupted: {TOTAL - 60:,} cells not judged"])
    result.stdout.no_fnmatch_line("*test_own*FAILED*")
    (run,) = labs.lab.recorded
    assert (len(run.results), run.interrupted, run.green()) == (60, True, False)
    assert f"60 of {TOTAL:,} cells; interrupted: " in closing_line(run)
    assert {result.cause for result in run.results if result.verdict == "fail"} == {
        "not searched: interrupted"
    }
    suite = ET.parse(pytester.path / "out.xml").getroot().find("testsuite")
    assert suite is not None
    assert suite.get("tests") == "60"
    assert "interrupted" in [one.get("name") for one in suite.iter("property")]
    assert not labs.lab.provider.looked_at


def test_a_run_that_cannot_be_stored_is_still_handed_over(outer, pytester, monkeypatch):
    def refuse(*_: object) -> Path:
        raise FullError("writing the result", "'result.json': the disk is full")

    labs = PaperLabs(pytester.path, one_silent)
    monkeypatch.setattr(labs.lab, "record", refuse)
    result = outer(*SUITE, "-k", BROKEN, labs=labs)
    ((run, directory),) = labs.taken
    assert ([judged.verdict for judged in run.results], directory) == (["fail"], None)
    assert result.ret == FullError.exit_code
    result.stderr.fnmatch_lines(["error: writing the result: 'result.json': the disk is full"])


def test_a_run_is_stored_even_if_its_page_cannot_be_written(outer, pytester, monkeypatch):
    def refuse(*_: object) -> None:
        raise FullError("writing the report", "'report.html': the disk is full")

    labs = PaperLabs(pytester.path, one_silent)
    monkeypatch.setattr(labs.lab, "record_page", refuse)
    result = outer(*SUITE, "-k", BROKEN, "--junitxml=out.xml", labs=labs)
    (run,) = labs.lab.recorded
    directory = pytester.path / run.run
    assert labs.taken == [(run, directory)]
    assert [where for where, _ in labs.lab.junits] == [directory]
    assert result.ret == FullError.exit_code
    result.stderr.fnmatch_lines(
        [
            "error: writing the report: 'report.html': the disk is full",
            f"*the run is stored in '{directory}'",
        ]
    )


def test_a_run_is_stored_even_if_its_junit_cannot_be_written(outer, pytester):
    labs = PaperLabs(pytester.path, one_silent)
    result = outer(*SUITE, "--junitxml=/dev/full", labs=labs)
    (run,) = labs.lab.recorded
    assert labs.taken == [(run, pytester.path / run.run)]
    assert result.ret == FullError.exit_code
    result.stderr.fnmatch_lines(
        [
            "error: writing JUnit and pytest's cache for lab 'paper': *: the disk is full",
            f"*the run is stored in '{pytester.path / run.run}'",
        ]
    )
    result.stdout.fnmatch_lines([f"run stored in {pytester.path / run.run}"])
    result.stdout.no_fnmatch_line("*INTERNALERROR*")


def test_a_limit_that_is_reached_is_no_fault_of_the_junit_file(outer, pytester, monkeypatch):
    def refuse(path, _action):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), str(path))

    monkeypatch.setattr(files, "require_output", refuse)
    labs = PaperLabs(pytester.path)
    result = outer(*SUITE, "--junitxml=out.xml", labs=labs)
    assert result.ret == PreflightError.exit_code
    result.stderr.fnmatch_lines(["*this process may not open more files"])
    assert not labs.lab.recorded


# SECURITY.md: What root writes is not given away.
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a link away")
@pytest.mark.parametrize("leads_to", ["victim", "missing", "above"])
def test_junit_does_not_follow_another_users_link(leads_to, pytester, capfd):
    victim = pytester.path / "private"
    victim.mkdir()
    (victim / "victim").write_text("precious")
    link = pytester.path / "link"
    link.symlink_to(victim if leads_to == "above" else victim / leads_to)
    os.chown(link, 65534, 65534, follow_symlinks=False)
    junit = link / "new" / "out.xml" if leads_to == "above" else link
    labs = PaperLabs(pytester.path)
    arguments = ["-p", "lab.suites.plugin", *SUITE, f"--junitxml={junit}"]
    assert pytest.main(arguments, plugins=[labs]) == 2
    assert "the symbolic link 'link' belongs to user 65534" in capfd.readouterr().err
    assert os.listdir(victim) == ["victim"]  # noqa: PTH208
    assert (victim / "victim").read_text() == "precious"
    assert not labs.lab.recorded


# SECURITY.md: What root writes is not given away.
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a link away")
def test_junit_does_not_follow_a_link_that_another_user_makes_meanwhile(outer, pytester):
    victim, junit = pytester.path / "victim", pytester.path / "out.xml"
    victim.write_text("precious")

    def swap(_cell: Cell, _attempt: int, outcome: Outcome) -> Outcome:
        junit.unlink(missing_ok=True)
        junit.symlink_to(victim)
        os.chown(junit, 65534, 65534, follow_symlinks=False)
        return outcome

    labs = PaperLabs(pytester.path, swap)
    result = outer(*SUITE, "-k", BROKEN, f"--junitxml={junit}", labs=labs)
    assert result.ret == 2
    assert victim.read_text() == "precious"
    assert len(labs.lab.recorded) == len(labs.lab.junits) == 1
    result.stderr.fnmatch_lines(["*the symbolic link 'out.xml' belongs to user 65534*"])


def test_junit_is_written_to_a_pipe(outer, pytester):
    labs = PaperLabs(pytester.path)
    reader, writer = os.pipe()
    with os.fdopen(reader) as pipe:
        with os.fdopen(writer):
            assert outer(*SUITE, "-k", BROKEN, f"--junitxml=/dev/fd/{writer}", labs=labs).ret == 0
        text = pipe.read()
    assert [junit for _, junit in labs.lab.junits] == [text]
    assert "</testsuites>" in text


def test_a_damaged_cache_of_pytest_does_not_change_a_verdict(outer, pytester):
    failed = pytester.path / ".pytest_cache/v/cache/lastfailed"
    failed.parent.mkdir(parents=True)
    failed.write_text(r'{"a test named \ud800": true}')
    labs = PaperLabs(pytester.path, one_silent)
    result = outer(*SUITE, "--junitxml=out.xml", labs=labs)
    assert (len(labs.lab.recorded), len(labs.lab.junits), result.ret) == (1, 1, 1)
    result.stderr.fnmatch_lines(
        ["note: pytest's cache was damaged, so '--lf' does not know this run"]
    )
    result.stdout.no_fnmatch_line("*INTERNALERROR*")


def test_quiet_mode_prints_nothing_and_loses_nothing(outer, pytester):
    labs = PaperLabs(pytester.path, one_silent)
    quiet = (*SUITE, "--lab-quiet", "-o", f"cache_dir={pytester.path / 'kept'}", "-c", LAB_TEST)
    result = outer(*quiet, "--junitxml", "out.xml", labs=labs)
    assert result.ret == 1
    assert result.stdout.str() == ""
    assert result.stderr.str() == ""
    assert (pytester.path / "kept").is_dir()
    assert not (pytester.path / ".pytest_cache").exists()
    suite = ET.parse(pytester.path / "out.xml").getroot().find("testsuite")
    assert suite is not None
    assert suite.get("failures") == "1"
    again = PaperLabs(pytester.path, one_silent)
    assert outer(*quiet, "--lf", "-x", labs=again).ret == 1
    assert [result.cell.id for result in again.taken[0][0].results] == [BROKEN]


# Before pytest is configured, and afterwards: the exit code is the product's either way.
EARLY = {
    "no such lab": (
        ("--lab", "other", "--pyargs", "lab.suites"),
        ("error: opening lab 'other': there is no such lab\n  try: lab up overlay\n",),
    ),
    "no lab is named": (("--pyargs", "lab.suites"), ("error: collecting 'lab.suites': no lab is",)),
    "no lab, by directory": ((DIRECTORY,), ("error: collecting 'lab.suites': no lab is named\n",)),
    "processes of xdist": (
        ("-p", "xdist.plugin", *SUITE, "-n2"),
        ("error: testing lab 'paper': pytest-xdist would probe", "without -n"),
    ),
    "xdist by its other option": (("-p", "xdist.plugin", *SUITE, "--dist=load"), ("without -n",)),
    "no such strategy": (
        (*SUITE, "--lab-sample", "every-second"),
        ("one of full, node-pairs, os-pairs",),
    ),
    **{
        f"JUnit in {file}": (
            (*SUITE, f"--junitxml={file}"),
            (
                f"error: testing lab 'paper' into '{file}': '{file}' cannot be written: ",
                "nothing was probed",
            ),
        )
        for file in ("/proc/none/out.xml", "/proc/out.xml", "/dev/null/x")
    },
}


@pytest.mark.parametrize("case", EARLY)
def test_wrong_usage_is_refused_before_anything_is_asked(case, pytester, capfd):
    arguments, words = EARLY[case]
    plugins = [PaperLabs(pytester.path)]
    assert pytest.main(["-p", "lab.suites.plugin", *arguments], plugins=plugins) == 2
    output = capfd.readouterr()
    assert all(word in output.err for word in words)
    assert output.out == ""


def test_python_does_not_warn_of_threads_that_fork(pytester):
    pytester.makepyfile(
        """
        import threading, warnings
        def test_threads():
            text = "This process (pid=1) is multi-threaded, use of fork() may lead to deadlocks"
            warn = lambda: warnings.warn(text, DeprecationWarning)
            thread = threading.Thread(target=warn)
            thread.start()
            thread.join()
        """
    )
    done = pytester.runpytest_inprocess("-c", LAB_TEST, "--rootdir", pytester.path, pytester.path)
    done.assert_outcomes(passed=1, warnings=0)


NO_NFT = PreflightError("probing", "no nft", "apt install nftables")
NEWER = StateError("opening the journal", "it is from a newer version")
LATE: dict[str, tuple[tuple[str, ...], dict[str, Any], int, str]] = {
    "preflight": ((), {"error": NO_NFT}, 4, f"error: {NO_NFT}"),
    "state": ((), {"error": NEWER}, 4, f"error: {NEWER}"),
    "down": ((), {"running": False}, 3, "error: looking for the machines of lab 'paper': absent"),
    "breaks": ((), {"broken": True}, 3, "error: probing lab 'paper': the holder is gone"),
    "no cells": (
        (),
        {"plan": replace(blueprint()[0], families=())},
        3,
        "error: making the matrix*no cells at all",
    ),
    "none chosen": (("-k", "nobody"), {}, 3, "error: testing lab 'paper': no cell was chosen*"),
    "none chosen of a sample": (
        ("--lab-sample", "os-pairs", "-k", "nobody"),
        {},
        3,
        f"*which are a sample of {TOTAL:,}*",
    ),
    "wrong -k": (("-k", "(win1"), {}, 2, "error: *"),
    "wrong path": (("no/such/file",), {}, 2, "error: *"),
    "full disk": ((), {}, FullError.exit_code, "error: checking disk space in *MiB are needed*"),
}


@pytest.mark.parametrize("case", LATE)
def test_a_lab_that_cannot_be_tested_has_the_exit_code_of_its_error(
    case, outer, pytester, monkeypatch
):
    arguments, changes, code, words = LATE[case]
    labs = PaperLabs(pytester.path, **{k: v for k, v in changes.items() if k != "broken"})
    labs.lab.provider.broken = "broken" in changes
    if case == "full disk":
        monkeypatch.setattr(session, "_STORED_A_CELL", 1 << 50)
    result = outer(*SUITE, *arguments, labs=labs)
    assert result.ret == code
    result.stderr.fnmatch_lines(words.splitlines())
    for never in ("*passed*", "*INTERNALERROR*"):
        result.stdout.no_fnmatch_line(never)
    assert not labs.lab.recorded
    assert labs.lab.provider.asked == 0


def test_cells_of_a_lab_that_died_while_probed_are_no_failures_but_exit_code_3(outer, pytester):
    labs = PaperLabs(pytester.path, one_silent)
    labs.lab.provider.dies = True
    assert outer(*SUITE, labs=labs).ret == 3
    assert not labs.lab.recorded
    assert labs.lab.provider.looked_at == [], "causes are sought in a lab that is there"


def test_a_lab_that_died_while_probed_is_not_probed_on(outer, pytester, monkeypatch):
    monkeypatch.setattr(session, "SECONDS", 0.0)
    monkeypatch.setattr(session, "_SHARE", 0)
    labs = PaperLabs(pytester.path, one_silent)
    labs.lab.provider.dies = True
    assert outer(*SUITE, labs=labs).ret == 3
    assert labs.lab.provider.asked == 1


def test_without_a_lab_the_plugin_does_nothing(outer, pytester):
    pytester.makepyfile("def test_of_the_user(): pass")
    result = outer("--markers")
    assert "nodeport" not in result.stdout.str()
    outer().assert_outcomes(passed=1)


def test_tests_of_the_user_run_beside_the_cells(outer, pytester):
    path = pytester.makepyfile("def test_of_the_user(): pass")
    result = outer(*SUITE, str(path), "-k", f"{BROKEN} or of_the_user")
    result.assert_outcomes(passed=2)


def test_importing_the_plugin_costs_nothing_of_the_product():
    code = (
        "import sys, pytest; import lab.suites.plugin;"
        "print(sorted(m for m in sys.modules if m.startswith('lab.')))"
    )
    done = run_program([sys.executable, "-c", code])
    suites = [f"lab.suites{rest}" for rest in ("", ".plugin")]
    assert done.stdout.strip() == str(["lab._errors", "lab._log", *suites])


SAMPLED = (*SUITE, "--lab-sample", "os-pairs")


def asked(labs: PaperLabs) -> list[str]:
    """Ids of the cells of the last run."""
    return [result.cell.id for result in labs.taken[-1][0].results]


def test_a_sample_is_collected_and_its_run_has_its_share_of_the_matrix(outer, pytester):
    labs = PaperLabs(pytester.path)
    outer(*SAMPLED, f"--junitxml={pytester.path / 'junit.xml'}", labs=labs)
    coverage = labs.taken[-1][0].coverage
    assert coverage is not None
    assert (coverage.strategy, coverage.seed) == ("os-pairs", 0)
    assert coverage.cells == Part(len(asked(labs)), TOTAL)
    assert len(asked(labs)) < TOTAL
    root = ET.parse(pytester.path / "junit.xml").getroot()
    told = {one.get("name"): one.get("value") for one in root.findall("testsuite/properties/*")}
    provider, made_by = labs.taken[-1][0].banner, labs.taken[-1][0].provenance
    assert provider
    assert made_by is not None
    assert told == {
        "provider": provider,
        "made_by": made_by.tool,
        "made_on": made_by.surroundings,
        "cells": coverage.share,
        "coverage": coverage.sentence,
    }


def test_another_seed_is_another_sample(outer, pytester):
    labs = PaperLabs(pytester.path)
    for seed in ("0", "1", "0"):
        outer(*SAMPLED, "--lab-seed", seed, labs=labs)
    first, second, third = (
        {result.cell.id for result in run.results} for run, _ in labs.taken[-3:]
    )
    assert first == third != second


def test_a_cell_outside_of_the_sample_is_asked_where_it_is_named(outer, pytester):
    labs = PaperLabs(pytester.path)
    outer(*SAMPLED, labs=labs)
    absent = next(cell.id for cell in blueprint()[3] if cell.id not in asked(labs))
    result = outer(*SAMPLED, "-k", f"{absent} or {BROKEN}", labs=labs)
    assert result.ret == 0
    assert set(asked(labs)) == {absent, BROKEN}


def test_what_failed_is_asked_again_whatever_the_sample_is_now(outer, pytester):
    usual = PaperLabs(pytester.path)
    outer(*SAMPLED, labs=usual)
    absent = next(cell.id for cell in blueprint()[3] if cell.id not in asked(usual))

    labs = PaperLabs(pytester.path, silence(lambda cell: cell.id == absent))
    outer(*SUITE, labs=labs)
    outer(*SAMPLED, "--lf", labs=labs)
    assert asked(labs) == [absent]


@pytest.mark.parametrize(
    ("words", "streams"),
    [
        ((), 0),
        (("-m", "throughput"), 2),
        (("-m", "not throughput"), 0),
        (("-k", "throughput/master-p1/win1-p1/tcp-stream"), 1),
        (("-k", "throughputs"), 0),
    ],
)
def test_streams_are_asked_only_where_they_are_named(outer, pytester, words, streams):
    labs = PaperLabs(pytester.path)
    outer(*SUITE, *words, labs=labs)
    run = labs.taken[-1][0] if labs.taken else None
    results = (
        [result for result in run.results if result.cell.family == "throughput"] if run else []
    )
    assert len(results) == streams


def test_a_stream_that_failed_is_asked_again_by_last_failed(outer, pytester):
    labs = PaperLabs(pytester.path, silence(lambda cell: cell.family == "throughput"))
    outer(*SUITE, "-m", "throughput", labs=labs)
    outer(*SUITE, "--lf", labs=labs)
    assert {result.cell.family for result in labs.taken[-1][0].results} == {"throughput"}


def test_junit_has_what_a_stream_carried(outer, pytester):

    def measured(cell, _attempt, outcome):
        return replace(outcome, throughput=2.5e8) if cell.family == "throughput" else outcome

    labs = PaperLabs(pytester.path, measured)
    outer(*SUITE, "-m", "throughput", "--junitxml=j.xml", labs=labs)
    cases = ET.parse(pytester.path / "j.xml").iter("testcase")
    said = [{one.get("name"): one.get("value") for one in case.iter("property")} for case in cases]
    assert [one["throughput_bits"] for one in said] == ["250000000"] * 2
