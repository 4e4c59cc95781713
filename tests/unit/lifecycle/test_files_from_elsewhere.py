"""Results that others have sent: checked as a whole before anything is done."""

import json
import random
from dataclasses import replace
from functools import cache

import pytest
from broken_json import COUNT, SEED, broken
from unit.reports.made_runs import FAILOVER, SAMPLED, intent_of, made_run

from lab._errors import UsageError
from lab.cli.main import main
from lab.facts.difference import Difference
from lab.matrix.verdict import RunResult
from lab.providers.workloads import WorkloadResult
from lab.reports.result import to_json, to_text
from lab.scenario.loader import find

CELL = "pod-pod/worker1-p1/win1-p1/tcp-small"
FINDING = Difference(
    "link-down", "node-link-down", "worker2", "card eth0", "up", "down", "x", "y", "worker2", 7
)


@cache
def a_run() -> RunResult:
    """Of everything that a result has, a little."""
    run = made_run("mixed")
    cells = [result for result in run.results if result.cell.id == CELL] + list(run.results[::400])
    return replace(
        run,
        results=tuple(replace(cell, finding=FINDING) for cell in cells[:6]),
        scenario_text=find("overlay").read_text(),
        failover=FAILOVER,
        coverage=SAMPLED,
        workloads=(WorkloadResult("win1", "secret", "fail", "no"),),
        hosts=(("worker1", "hypervisor-01"),),
    )


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("HYBRIDLAB_STATE", str(tmp_path / "above" / "state"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.json").write_text(to_text(a_run(), intent_of()))
    return tmp_path


@pytest.fixture
def ended(capsys):
    """The exit code of a command, whose words have nothing in them that paints."""

    def run(*words):
        with pytest.raises(SystemExit) as end:
            main(words)
        told = "".join(capsys.readouterr())
        assert not {letter for letter in told if letter < " " or "\x7f" <= letter < "\xa0"} - {"\n"}
        assert end.value.code != 70, told
        assert isinstance(end.value.code, int)
        return end.value.code

    return run


# SECURITY.md: A result file is data.
@pytest.mark.parametrize("stored", [False, True], ids=["whole cells", "as stored"])
def test_a_broken_result_is_wrong_usage_and_writes_nothing_elsewhere(place, ended, *, stored):
    text = to_text(a_run(), intent_of())
    tree = json.loads(text) if stored else to_json(a_run(), intent_of())
    mutations = broken(json.loads(json.dumps(tree)), random.Random(SEED))
    codes = set()
    for number in range(COUNT // 2):
        (place / "bad.json").write_text(next(mutations), errors="surrogatepass")
        if number % 4:
            two = ("good.json", "bad.json")[:: 1 if number % 2 else -1]
            codes.add(ended("diff", *two))
        else:
            codes.add(ended("repro", "bad.json", CELL, "--dry-run"))
        assert {path.name for path in place.iterdir()} <= {"good.json", "bad.json", "above"}
        assert {path.name for path in place.glob("above/*")} <= {"state"}
    assert codes <= {0, 1, 2}
    assert 2 in codes


# SECURITY.md: A result file is data.
@pytest.mark.parametrize("dry", [True, False])
def test_no_path_is_taken_from_a_result(place, ended, *, dry):
    for scenario in ("/../../../../victim", "../x", "/etc/x", "a/b", "x\n"):
        text = to_text(replace(a_run(), scenario=scenario, provider="fake"), intent_of())
        (place / "bad.json").write_text(text)
        assert ended("repro", "bad.json", CELL, *(["--dry-run"] if dry else [])) == 2
    assert not list(place.rglob("*.yaml"))


def test_a_scenario_in_a_result_is_read_before_anything_is_written(place, ended):
    text = to_text(replace(a_run(), scenario_text="name: [\n"), intent_of())
    (place / "bad.json").write_text(text)
    assert ended("repro", "bad.json", CELL, "--dry-run") == 2
    assert not list(place.rglob("*.yaml"))


@pytest.mark.parametrize("name", ["x\n0 cells changed", "x\u202egnp"])
def test_a_name_that_could_pass_for_lines_of_ours_is_refused(tmp_path, capsys, name):
    run = a_run()
    first = run.results[0]
    cells = (replace(first, cell=replace(first.cell, id=name)),)
    file = tmp_path / "odd.json"
    for forged in (replace(run, results=cells), replace(run, run=name)):
        file.write_text(to_text(forged, intent_of()))
        with pytest.raises(SystemExit) as ended:
            main(["diff", str(file), str(file)])
        assert ended.value.code == UsageError.exit_code
        refusal = capsys.readouterr().err
        assert "has a name that no" in refusal
        assert name not in refusal
