"""A night over labs on paper: every end that a scenario can come to, and none ends the night."""

import html
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from unit.reports.made_runs import intent_of, made_run

from lab._deadline import Deadline
from lab._errors import PreflightError, UsageError
from lab.inventory.inventory import Hypervisor, Inventory
from lab.lifecycle import night_report, nightly
from lab.lifecycle.names import check_name
from lab.lifecycle.nightly import (
    EMULATED_SECONDS,
    REAL_SECONDS,
    Job,
    NightOperations,
    NightRequest,
    cause,
    find_last_line,
    jobs_of,
    run_night,
)
from lab.lifecycle.open_lab import JUNIT, REPORT, RESULT
from lab.lifecycle.providers import Providers, choose, chosen
from lab.providers.netns import preflight as netns_capacity
from lab.reports.night import FORMAT, Done, Night, judge, plain_lines, summary_json
from lab.reports.result import to_json


@dataclass
class Paper:
    """Labs on paper; ``codes`` are what a command of a lab ends with, 0 if nothing is said."""

    directory: Path
    codes: dict[tuple[str, str], int | Exception | None] = field(default_factory=dict)
    causes: dict[tuple[str, str], str] = field(default_factory=dict)
    runs: dict[str, list[Path]] = field(default_factory=dict)
    up: set[str] = field(default_factory=set)
    calls: list[tuple[str, ...]] = field(default_factory=list)
    most: int = 0
    meanwhile: Callable[[str, Callable[[], bool]], None] = lambda *_: None

    def run(
        self, words: Sequence[str], log: Path, _: Deadline, stopped: Callable[[], bool]
    ) -> int | None:
        self.calls.append(tuple(words))
        verb = words[0]
        lab = words[2] if verb == "up" else words[1]
        log.write_text(f"{verb} {lab}\n  try: something\n")
        if (verb, lab) in self.causes:
            nightly.cause_file(log).write_text(self.causes[verb, lab])
        code = self.codes.get((verb, lab), 0)
        if isinstance(code, Exception):
            raise code
        if verb == "up" and code not in {2, 4}:
            self.up.add(lab)
            self.most = max(self.most, len(self.up))
        self.meanwhile(verb, stopped)
        if stopped():
            return None
        if verb == "down" and not code:
            self.up.discard(lab)
        if verb == "test" and code in {0, 1}:
            self._leave_run(lab, "dead-node" if code else "healthy")
        return code

    def _leave_run(self, lab: str, trouble: str) -> None:
        folder = self.directory / lab / f"r{len(self.runs.get(lab, []))}"
        folder.mkdir(parents=True)
        run = made_run(trouble, families=("dns",))
        (folder / "result.json").write_text(json.dumps(to_json(run, intent_of())))
        (folder / "report.html").write_text("<html>")
        (folder / "junit.xml").write_text("<testsuites><testsuite/></testsuites>")
        self.runs.setdefault(lab, []).append(folder)

    def operations(self) -> NightOperations:
        return NightOperations(
            self.run, self.up.__contains__, lambda lab: {p.name: p for p in self.runs.get(lab, [])}
        )


@pytest.fixture
def paper(tmp_path):
    return Paper(tmp_path / "runs")


def request(tmp_path: Path, *names: str, parallel: int = 1) -> NightRequest:
    output = tmp_path / "night"
    output.mkdir()
    jobs = tuple(Job(name, name) for name in names)
    return NightRequest(jobs, "netns", output, parallel, 60.0)


def held(paper: Paper, request: NightRequest) -> Night:
    night, ended_by = run_night(request, paper.operations(), lambda _: None)
    assert ended_by is None
    return night


def outcomes(night: Night) -> dict[str, str]:
    return {scenario.scenario: scenario.outcome for scenario in night.scenarios}


def test_a_failure_of_any_kind_ends_its_scenario_and_not_the_night(paper, tmp_path):
    paper.codes = {
        ("up", "nightly-refused"): 4,
        ("up", "nightly-broken"): 3,
        ("up", "nightly-late"): None,
        ("up", "nightly-crash"): OSError("no more processes"),
        ("test", "nightly-red"): 1,
        ("test", "nightly-dead"): 3,
        ("down", "nightly-stays"): 3,
    }
    names = ("refused", "broken", "late", "crash", "red", "dead", "stays", "well")
    night = held(paper, request(tmp_path, *names))
    assert outcomes(night) == {
        "refused": "refused",
        "broken": "broken",
        "late": "broken",
        "crash": "broken",
        "red": "red",
        "dead": "broken",
        "stays": "broken",
        "well": "green",
    }
    assert paper.up == {"nightly-stays"}
    assert night.exit_code == 3
    assert night.scenarios[3].detail == "OSError: no more processes"
    assert night.scenarios[0].detail == "up nightly-refused"
    commands = {
        name: [call[0] for call in paper.calls if f"nightly-{name}" in call] for name in names
    }
    assert commands["refused"] == ["up"]
    assert commands["red"] == ["up", "test", "gather", "down"], "evidence before its lab goes"
    assert commands["well"] == ["up", "test", "down"]


def test_a_lab_that_an_earlier_night_left_is_swept_away_first(paper, tmp_path):
    paper.up.add("nightly-a")
    night = held(paper, request(tmp_path, "a"))
    assert [done.stage for done in night.scenarios[0].stages] == ["sweep", "up", "test", "down"]
    assert outcomes(night) == {"a": "green"}


def test_a_run_of_an_earlier_night_is_not_taken_for_this_ones(paper, tmp_path):
    paper._leave_run("nightly-a", "healthy")
    paper.codes = {("test", "nightly-a"): 3}
    (night,) = held(paper, request(tmp_path, "a")).scenarios
    assert (night.outcome, night.run, night.report) == ("broken", None, None)


def test_no_more_labs_are_up_than_fit(paper, tmp_path):
    both = threading.Barrier(2, timeout=20)
    paper.meanwhile = lambda verb, _: both.wait() if verb == "test" else None
    held(paper, request(tmp_path, "a", "b", "c", "d", parallel=2))
    assert paper.most == 2


def told(number: signal.Signals) -> None:
    """Signal the main thread, before it does anything else.

    Sent to the process, it may be another thread's to take, which may do so after the test.
    """
    main = threading.main_thread().ident
    assert main is not None
    signal.pthread_kill(main, number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_night_that_is_stopped_takes_its_labs_down_and_begins_no_other(paper, tmp_path, number):
    def stop(verb, stopped):
        if verb == "test":
            told(number)
            Deadline(20).wait("the night to stop", stopped)
            told(number)  # a second time changes nothing

    paper.meanwhile = stop
    said: list[str] = []
    night, ended_by = run_night(request(tmp_path, "a", "b"), paper.operations(), said.append)
    assert isinstance(ended_by, KeyboardInterrupt)
    assert outcomes(night) == {"a": "stopped", "b": "stopped"}
    assert paper.up == set()
    assert [call[0] for call in paper.calls] == ["up", "test", "down"]
    assert "stopping: taking down the labs that are up first" in said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_night_that_is_stopped_while_it_begins_begins_nothing_twice(
    paper, tmp_path, number, monkeypatch
):
    submit = ThreadPoolExecutor.submit
    jobs: list[str] = []

    def stopped(pool, do, job, *rest):
        future = submit(pool, do, job, *rest)
        jobs.append(job.name)
        if len(jobs) == 1:
            signal.raise_signal(number)
        return future

    monkeypatch.setattr(ThreadPoolExecutor, "submit", stopped)
    said: list[str] = []
    night, ended_by = run_night(
        request(tmp_path, "a", "b", parallel=2), paper.operations(), said.append
    )
    assert isinstance(ended_by, KeyboardInterrupt)
    assert jobs == ["a", "b"]
    assert set(outcomes(night)) == {"a", "b"}
    assert paper.up == set()


@pytest.fixture
def no_inventory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("HYBRIDLAB_INVENTORY", raising=False)


@pytest.mark.room
@pytest.mark.usefixtures("no_inventory")
def test_the_embedded_provider_is_refused_without_consent():
    with pytest.raises(PreflightError, match="says nothing about real machines") as raised:
        nightly.choose_provider(None)
    assert raised.value.exit_code == 4
    assert "--provider netns" in raised.value.hint
    assert nightly.choose_provider("netns").name == "netns"
    assert nightly.choose_provider("nspawn").name == "nspawn"
    host = Hypervisor(name="here", uri="qemu:///system")
    assert chosen(None, Inventory(hypervisors={host.name: host})) == "libvirt"
    assert chosen(None, Inventory()) == "netns"


@pytest.mark.room
@pytest.mark.usefixtures("no_inventory")
def test_real_machines_have_more_time_than_emulated_ones():
    found = {name: nightly.deadline(choose(Providers(), name)) for name in ("netns", "nspawn")}
    assert found == {"netns": EMULATED_SECONDS, "nspawn": REAL_SECONDS}


def test_a_job_is_named_by_its_scenario_or_its_file():
    assert jobs_of((), ("a", "b")) == (Job("a", "a"), Job("b", "b"))
    (job,) = jobs_of(("dir/My lab.yaml",), ("a",))
    assert (job.name, job.lab) == ("my-lab", "nightly-my-lab")
    with pytest.raises(UsageError, match="two of them would be called 'a'"):
        jobs_of(("a", "x/a.yaml"), ())


def test_the_lab_of_a_long_spec_string_has_a_name_that_labs_can_have():
    long = "k8s-libvirt-3-9-9," + ",".join(f"compute-0{n}.vcpus=2" for n in range(1, 10))
    one, other = jobs_of((long, f"{long},compute.os=linux"), ())
    for job in (one, other):
        check_name(job.lab)
        assert job.lab.startswith("nightly-k8s-libvirt-3-9-9-compute-01")
    assert one.lab != other.lab
    (job,) = jobs_of(("what is this?.yaml",), ())
    check_name(job.lab)


@pytest.mark.parametrize(("cores", "jobs"), [(1, 1), (2, 1), (8, 4)])
def test_labs_at_once_on_namespaces_are_bounded_by_cores(cores, jobs):
    assert netns_capacity.labs_at_once(cores) == jobs


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ""),
        ("a\nb: c\n  try: d\n\n", "b: c"),
        ("  try: d\n", ""),
        ("network\ninterrupted\n", "network"),
    ],
)
def test_the_last_line_is_what_happened_not_what_to_try(tmp_path, text, words):
    (tmp_path / "log").write_text(text)
    assert find_last_line(tmp_path / "log") == words


NIGHT = datetime(2026, 11, 21, 2, 0, 7, tzinfo=UTC)


def write_night(
    tmp_path: Path, paper: Paper, name: str, *, trouble: bool, now: datetime | None = None
) -> Path:
    paper.codes = {("test", "nightly-a"): 1} if trouble else {}
    now = now or datetime.now(UTC)
    output = night_report.make_output(tmp_path / "nights" / name, tmp_path, now)
    request = NightRequest((Job("a", "a"),), "netns", output, 1, 60.0)
    earlier = night_report.find_earlier(output, "netns", None)
    night = night_report.compare_night(held(paper, request), earlier)
    night_report.write(night, output, earlier)
    return output


def test_a_night_is_compared_with_the_latest_one_on_the_same_provider(paper, tmp_path):
    first = write_night(tmp_path, paper, "z-first", trouble=False)
    second = write_night(tmp_path, paper, "second", trouble=True)
    summary = json.loads((second / "summary.json").read_text())
    assert summary["before"] == first.name
    changed = json.loads((second / "difference.json").read_text())["scenarios"]["a"]
    assert changed["failing"]
    assert not changed["passing"]
    assert f"Compared with '{first.name}' (a):" in (second / "difference.txt").read_text()
    assert (second / "index.html").is_file()
    assert night_report.find_earlier(second, "libvirt", None) == ()


@pytest.mark.parametrize("by_id", [True, False], ids=["with ids", "by their summaries"])
def test_the_latest_night_is_the_one_run_last_when_the_clock_jumps(paper, tmp_path, *, by_id):
    days = (24, 25, 23, 22) if by_id else (22, 24, 23, 25)
    made = []
    for name, day in zip("bdac", days, strict=True):
        made.append(write_night(tmp_path, paper, name, trouble=False, now=NIGHT.replace(day=day)))
        summary = json.loads((made[-1] / "summary.json").read_text())
        summary["started"] = NIGHT.replace(day=day).isoformat()
        summary["format"] = FORMAT if by_id else 1  # ids are younger
        (made[-1] / "summary.json").write_text(json.dumps(summary))
        if not by_id:
            (made[-1] / "night.id").unlink()
    nights = night_report.find_earlier(tmp_path / "nights" / "next", "netns", None)
    names = [night.directory.name for night in nights]
    assert names == (["c", "a", "d", "b"] if by_id else ["c", "d", "a", "b"])


def test_a_regression_is_named_after_a_cancelled_night(paper, tmp_path):
    first = write_night(tmp_path, paper, "first", trouble=False)
    paper.codes = {}
    paper.meanwhile = lambda verb, stopped: (
        (told(signal.SIGINT), Deadline(20).wait("the night to stop", stopped))
        if verb == "test"
        else None
    )
    request = NightRequest((Job("a", "a"),), "netns", first.parent / "second", 1, 60.0)
    night, ended_by = run_night(request, paper.operations(), lambda _: None)
    assert ended_by is not None
    night_report.write(night, request.output, ())
    paper.meanwhile = lambda *_: None
    third = write_night(tmp_path, paper, "third", trouble=True)
    (scenario,) = json.loads((third / "summary.json").read_text())["scenarios"]
    assert scenario["before"] == "first"
    assert "Compared with 'first' (a):\na: " in (third / "difference.txt").read_text()
    assert "cells newly failing" in (third / "difference.txt").read_text()


# SECURITY.md: What root writes is not given away.
@pytest.mark.parametrize("file", ["summary.json", "a/result.json"])
@pytest.mark.parametrize(
    "spoil",
    [lambda path: path.write_text("{"), os.mkfifo, lambda path: os.truncate(path, 1 << 28)],
    ids=["broken", "pipe", "giant"],
)
def test_a_night_whose_run_is_damaged_gives_way_to_the_one_before(paper, tmp_path, file, spoil):
    write_night(tmp_path, paper, "first", trouble=False)
    second = write_night(tmp_path, paper, "second", trouble=True)
    spoiled = second / file
    spoiled.unlink()
    if spoil is not os.mkfifo:
        spoiled.touch()
    spoil(spoiled)
    third = write_night(tmp_path, paper, "third", trouble=True)
    assert "Compared with 'first' (a):" in (third / "difference.txt").read_text()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_a_night_of_another_user_beside_this_one_is_not_compared(paper, tmp_path):
    write_night(tmp_path, paper, "first", trouble=False)
    theirs = write_night(tmp_path, paper, "theirs", trouble=True)
    os.chown(theirs, 65534, 65534)
    third = write_night(tmp_path, paper, "third", trouble=True)
    assert "Compared with 'first' (a):" in (third / "difference.txt").read_text()
    (named,) = night_report.find_earlier(third, "netns", theirs)
    assert named.directory == theirs


def test_a_night_that_is_named_is_the_only_one_compared_with(paper, tmp_path):
    first = write_night(tmp_path, paper, "first", trouble=False)
    second = write_night(tmp_path, paper, "second", trouble=False)
    (found,) = night_report.find_earlier(second, "netns", first)
    assert (found.directory, found.complete) == (first, {"a"})
    (first / "a" / "result.json").unlink()
    request = NightRequest((Job("a", "a"),), "netns", tmp_path / "third", 1, 60.0)
    night = night_report.compare_night(held(paper, request), [found])
    assert (night.before, night.alone) == ({}, ("a",))


@pytest.mark.parametrize(
    "part",
    [
        {"scenarios": 7},
        {"scenarios": [7, {"stages": 7}]},
        {"scenarios": [{"scenario": "a", "stages": [{"stage": "test", "code": []}]}]},
    ],
    ids=str,
)
def test_a_malformed_summary_has_no_complete_run(paper, tmp_path, part):
    first = write_night(tmp_path, paper, "first", trouble=False)
    summary = json.loads((first / "summary.json").read_text())
    (first / "summary.json").write_text(json.dumps({**summary, **part}))
    (night,) = night_report.find_earlier(tmp_path / "nights" / "second", "netns", None)
    assert night.complete == frozenset()


def test_the_cause_of_a_broken_lab_is_in_every_report(paper, tmp_path):
    why = "bringing up lab 'nightly-a': BIRD did not start"
    paper.codes = {("up", "nightly-a"): 3}
    paper.causes = {("up", "nightly-a"): f"{why}\n"}
    output = night_report.make_output(tmp_path / "nights" / "one", tmp_path, datetime.now(UTC))
    said: list[str] = []
    request = NightRequest((Job("a", "a"),), "netns", output, 1, 60.0)
    night, _ = run_night(request, paper.operations(), said.append)
    night_report.write(night, output, ())
    assert any(why in line for line in said)
    assert any(why in line for line in plain_lines(night))
    assert why in html.unescape((output / "index.html").read_text())
    assert why in (output / "junit.xml").read_text()
    assert json.loads((output / "summary.json").read_text())["scenarios"][0]["detail"] == why
    assert not list(output.rglob("*.cause"))


def test_a_night_keeps_what_a_scenario_left_and_repeats_its_cells_from_that(paper, tmp_path):
    asked = request(tmp_path, "a")
    (night,) = held(paper, asked).scenarios
    assert (night.report, night.junit, night.evidence) == ("a/report.html", "a/junit.xml", None)
    assert night.run is not None
    assert night.run.scenario == "overlay"
    (test,) = [call for call in paper.calls if call[0] == "test"]
    assert test[2:] == ("--repeat-with", f"lab repro {asked.output / 'a'}")


def test_a_file_is_no_option_of_lab_up(paper, tmp_path):
    asked = replace(request(tmp_path), jobs=(Job("a", "--only=windows.yaml"),), only="linux")
    held(paper, asked)
    assert paper.calls[0][-4:] == ("--only", "linux", "--", "--only=windows.yaml")


def test_a_named_night_that_cannot_be_read_is_refused(paper, tmp_path):
    first = write_night(tmp_path, paper, "first", trouble=False)
    (first / "summary.json").write_text("[]")
    assert night_report.find_earlier(tmp_path / "nights" / "third", "netns", None) == ()
    with pytest.raises(UsageError, match="there is no 'summary"):
        night_report.find_earlier(tmp_path / "nights" / "third", "netns", first)


def test_two_nights_of_one_date_have_a_directory_each_and_none_is_written_over(tmp_path):
    now = datetime(2026, 11, 21, 2, 0, 7, tzinfo=UTC)
    first = night_report.make_output(None, tmp_path, now)
    second = night_report.make_output(None, tmp_path, now)
    assert (first.name, second.name) == ("2026-11-21", "2026-11-21-2")
    (first / "file").touch()
    with pytest.raises(UsageError, match="it is not empty"):
        night_report.make_output(first, tmp_path, now)


# SECURITY.md: What root writes is not given away.
@pytest.mark.parametrize(
    ("mode", "words"), [(0o777, "everyone may write '{}'"), (0o1777, "'{}' is shared by all users")]
)
def test_a_night_is_not_written_where_another_user_may_put_links(tmp_path, mode, words):
    output = tmp_path / "night"
    output.mkdir()
    output.chmod(mode)
    with pytest.raises(UsageError, match=words.format(output)):
        night_report.make_output(output, tmp_path, datetime.now(UTC))


# SECURITY.md: What root writes is not given away.
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
@pytest.mark.parametrize("link", [True, False])
def test_a_night_is_not_written_where_another_user_may_lead_it_elsewhere(tmp_path, *, link):
    mine, theirs = tmp_path / "mine", tmp_path / "theirs"
    mine.mkdir()
    if link:
        theirs.symlink_to(mine)
    else:
        theirs.mkdir()
    os.chown(theirs, 65534, 65534, follow_symlinks=False)
    for output in (theirs / "night", theirs) if link else (theirs / "night",):
        with pytest.raises(UsageError, match="belongs to "):
            night_report.make_output(output, tmp_path, datetime.now(UTC))
    assert not list(mine.iterdir())
    assert not list(theirs.iterdir())


def test_a_night_follows_no_link_in_its_directory(paper, tmp_path, monkeypatch):
    precious = tmp_path / "precious"
    precious.write_text("precious")
    make = nightly.make_private

    def make_with_links(directory):
        make(directory)
        for name in (RESULT, REPORT, JUNIT):
            (directory / name).symlink_to(precious)

    monkeypatch.setattr(nightly, "make_private", make_with_links)
    write_night(tmp_path, paper, "one", trouble=False)
    assert precious.read_text() == "precious"
    (tmp_path / "up.log").symlink_to(precious)
    with pytest.raises(OSError, match="symbolic links"):
        run_python(monkeypatch, tmp_path / "up.log", "echo hello", 30)
    assert precious.read_text() == "precious"


def run_python(
    monkeypatch: pytest.MonkeyPatch, log: Path, program: str, seconds: float, stop: bool = False
) -> int | None:
    monkeypatch.setattr(sys, "executable", str(log.parent / "python"))
    stub = log.parent / "python"
    stub.write_text(f"#!/bin/sh\n{program}\n")
    stub.chmod(0o755)
    return nightly.run_lab(("up", "x"), log, Deadline(seconds), lambda: stop)


def test_a_command_returns_its_exit_code_and_all_output(monkeypatch, tmp_path):
    log = tmp_path / "up.log"
    assert run_python(monkeypatch, log, 'echo "$@"; echo oh >&2; exit 3', 30) == 3
    assert log.read_text() == "-P -m lab up x\noh\n"


def test_a_command_ends_when_the_night_is_killed(tmp_path):
    stub, log = tmp_path / "python", tmp_path / "up.log"
    stub.write_text("#!/bin/sh\necho $$\nexec sleep 600\n")
    stub.chmod(0o755)
    program = (
        "import sys; from pathlib import Path; from lab._deadline import Deadline; "
        "from concurrent.futures import ThreadPoolExecutor; from lab.lifecycle import nightly; "
        "sys.executable = sys.argv[1]; "
        "run = lambda: nightly.run_lab(('up', 'x'), Path(sys.argv[2]), Deadline(600), lambda: 0); "
        "ThreadPoolExecutor(1).submit(run).result()"
    )
    command = [sys.executable, "-c", program, str(stub), str(log)]
    with subprocess.Popen(
        command, env={**os.environ, "PYTHONPATH": str(Path(nightly.__file__).parents[2])}
    ) as night:
        said = Deadline(60).wait(
            "the command to start",
            lambda: log.read_text() if log.exists() else "",
            until=lambda text: text.endswith("\n"),
        )
        night.kill()
    status = Path(f"/proc/{int(said)}/stat")
    Deadline(60).wait(
        "the command to end", lambda: not status.exists() or ") Z " in status.read_text()
    )


def test_a_command_leaves_the_first_line_of_the_cause_of_its_failure(tmp_path):
    scenario, log = tmp_path / "it.yaml", tmp_path / "up.log"
    scenario.write_text("name: it\nnodez: 3\n")
    never = lambda: False  # noqa: E731
    assert nightly.run_lab(("plan", str(scenario)), log, Deadline(60), never) == 2
    assert cause(log).startswith(f'{scenario}:1:1: the scenario has no "summary"')
    assert cause(log) == ""
    assert nightly.run_lab(("plan",), log, Deadline(60), never) == 2
    assert cause(log) == "lab plan: Missing argument 'SCENARIO'"


@pytest.mark.parametrize("deaf", [False, True], ids=["hears SIGTERM", "does not"])
@pytest.mark.parametrize("stop", [False, True], ids=["late", "stopped"])
def test_a_command_that_is_late_or_stopped_is_ended_with_all_it_started(
    monkeypatch, tmp_path, deaf, stop
):
    monkeypatch.setattr(nightly, "_GRACE_SECONDS", 0.3)
    trap = "trap '' TERM;" if deaf else "trap 'echo heard; exit 143' TERM;"
    program = f"{trap} echo $$; while :; do sleep 0.05; done"
    log = tmp_path / "up.log"
    seconds = 30.0 if stop else 0.3
    assert run_python(monkeypatch, log, program, seconds, stop) is None
    words = log.read_text().split()
    assert ("heard" in words) <= (not deaf)
    if words:
        assert not Path(f"/proc/{words[0]}").exists()


def test_a_night_hands_pytest_the_choice_of_cells_and_own_tests(paper, tmp_path):
    made = replace(request(tmp_path, "a"), expression="pod-pod", tests=("mine.py",))
    night = held(paper, made)
    (words,) = [words for words in paper.calls if words[0] == "test"]
    assert words[-3:] == ("-k", "pod-pod", "mine.py")
    assert summary_json(night)["expression"] == "pod-pod"


def test_a_night_of_chosen_cells_is_not_what_later_nights_are_compared_with(paper, tmp_path):
    def complete(output: Path) -> frozenset[str]:
        night = night_report.night_in(output)
        assert night is not None
        return night.complete

    output = write_night(tmp_path, paper, "first", trouble=False)
    summary = json.loads((output / "summary.json").read_text())
    assert complete(output) == {"a"}
    (output / "summary.json").write_text(json.dumps({**summary, "expression": "pod-pod"}))
    assert complete(output) == frozenset()


def test_own_tests_that_fail_are_the_reason_of_a_red_scenario():
    done = (
        Done("up", 0, 1.0, "log"),
        Done("test", 1, 1.0, "log", "1 of 2 own tests failed"),
        Done("down", 0, 1.0, "log"),
    )
    outcome = judge(done, made_run("healthy"), stopped=False, left=False)
    assert outcome == ("red", "1 of 2 own tests failed")


@pytest.mark.room
def test_errors_in_a_scenario_file_are_kept_with_their_lines(tmp_path):
    file = tmp_path / "bad.yaml"
    file.write_text("name: bad\nnodes: []\n")
    named = (Job("bad", str(file)), Job("overlay", "overlay"))
    (bad, shipped), _ = nightly.select_jobs(named, choose(Providers(), "netns"), None, None)
    assert bad.file == str(file)
    assert (2, 1) in {(finding.line, finding.col) for finding in bad.findings}
    assert (shipped.file, shipped.findings) == ("", ())
