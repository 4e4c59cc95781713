"""``lab gc`` and the runs and nights that are kept no longer."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest

from lab._errors import StateError
from lab.cli.main import main
from lab.lifecycle import api
from lab.lifecycle.gc import GcResult, Surplus, prune, surplus
from lab.lifecycle.night_report import FoundNight, make_output
from lab.state.rows import CellRow, RunRow
from lab.state.store import Store


@pytest.fixture
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("HYBRIDLAB_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(api, "collect", lambda _age, yes, *_: GcResult(not yes, (), (), ()))
    return tmp_path / "state"


def add_run(state: Path, lab: str, run: str) -> Path:
    with Store(state) as store:
        row = RunRow(run, lab, "t", "overlay", "netns", run, 1.0, True, {})
        store.record_run(row, [CellRow("a/b", "pod-pod", "pass", 1.0, "")])
    return add_run_files(state, lab, run)


def add_run_files(state: Path, lab: str, run: str) -> Path:
    directory = state / "labs" / lab / "runs" / run
    directory.mkdir(parents=True)
    (directory / "result.json").write_text("{}")
    return directory


def add_night(state: Path, name: str, started: str, **runs: str) -> Path:
    directory = state / "nightly" / name
    directory.mkdir(parents=True, exist_ok=True)
    scenarios = [{"lab": lab, "run": run} for lab, run in runs.items()]
    summary = {"format": 1, "started": started, "provider": "netns", "scenarios": scenarios}
    (directory / "summary.json").write_text(json.dumps(summary))
    return directory


def pruned(state: Path, runs: int = 20, nights: int = 30, *, yes: bool = True) -> Surplus:
    with Store(state) as store:
        return prune(store, runs, nights, lambda _: None, yes=yes)


def runs_of(state: Path, lab: str) -> list[str]:
    with Store(state) as store:
        return [run.id for run in store.runs(lab)]


def directories(parent: Path) -> list[str]:
    return sorted(path.name for path in parent.iterdir())


def test_the_oldest_captures_of_a_lab_go_and_do_not_count_as_runs(state):
    add_run(state, "x", "20261125-000000-aaaa")
    captures = [f"20261125-00000{number}-capture" for number in (1, 2, 2)]
    captures[2] += "-2"
    shelf = state / "labs" / "x" / "runs"
    for name in (*captures, "notes-capture"):
        (shelf / name).mkdir()
    assert pruned(state, runs=2, yes=False).captures == {"x": (captures[0],)}
    assert list(pruned(state, runs=2).words()) == ["1 capture"]
    assert directories(shelf) == ["20261125-000000-aaaa", *captures[1:], "notes-capture"]


def test_the_oldest_runs_of_each_lab_and_the_oldest_nights_go():
    nights = [FoundNight(Path("b"), "2"), FoundNight(Path("c"), "3"), FoundNight(Path("a"), "1")]
    found = surplus({"x": ["1", "2", "3"], "y": ["4"]}, nights, 2, 1)
    assert found == Surplus({"x": ("1",)}, ("a", "b"))
    assert list(found.words()) == ["1 run", "2 nights"]


def test_a_run_that_a_kept_night_refers_to_stays():
    nights = [
        FoundNight(Path("old"), "1", {"scenarios": [{"lab": "x", "run": "1"}]}),
        FoundNight(Path("new"), "2", {"scenarios": [{"lab": "x", "run": "2"}]}),
    ]
    assert surplus({"x": ["1", "2", "3"]}, nights, 1, 1).runs == {"x": ("1",)}
    assert surplus({"x": ["1", "2", "3"]}, nights, 1, 2).runs == {}
    assert surplus({"y": ["1", "2", "3"]}, nights, 1, 2).runs == {"y": ("1", "2")}


def test_files_and_the_journal_of_old_runs_go(state):
    for run in ("1", "2", "3"):
        add_run(state, "it", run)
    pruned(state, runs=2)
    assert directories(state / "labs" / "it" / "runs") == ["2", "3"]
    assert runs_of(state, "it") == ["2", "3"]
    with Store(state) as store:
        assert store.cells("1") == ()
        assert len(store.cells("2")) == 1


def test_the_last_20_runs_and_30_nights_are_kept_by_default(state, capsys):
    for number in range(1, 33):
        add_night(state, f"n{number:02}", f"2026-01-01T00:00:{number:02}+00:00")
        add_run(state, "it", f"{number:02}")
    with pytest.raises(SystemExit) as ended:
        main(["gc"])
    assert ended.value.code == 0
    told = capsys.readouterr()
    assert told.out == "would remove 12 runs, 2 nights; 'lab gc --yes' removes it\n"
    assert "would remove 12 runs of lab 'it'" in told.err
    assert "would remove 2 nights: n01, n02" in told.err
    assert len(directories(state / "nightly")) == len(runs_of(state, "it")) == 32
    with pytest.raises(SystemExit):
        main(["gc", "--yes", "--keep-runs", "21"])
    assert capsys.readouterr().out == "removed 0 objects, 11 runs, 2 nights\n"
    assert directories(state / "nightly")[0] == "n03"
    assert runs_of(state, "it")[0] == "12"


def test_runs_that_the_journal_has_lost_are_the_oldest(state):
    add_run(state, "it", "1")
    add_run_files(state, "it", "9")
    add_run_files(state, "lost", "5")
    pruned(state, runs=1)
    assert directories(state / "labs" / "it" / "runs") == ["1"]
    assert directories(state / "labs" / "lost" / "runs") == ["5"]


def test_what_is_no_run_and_no_night_stays(state):
    add_run(state, "it", "1")
    (state / "labs" / "it" / "runs" / "0-mine").mkdir()
    add_night(state, "last", "2026-01-02T00:00:00+00:00")
    (state / "nightly" / "mine").mkdir()
    os.utime(state / "nightly" / "mine", (0, 0))
    assert pruned(state, runs=1, nights=1) == Surplus({}, ())
    assert directories(state / "labs" / "it" / "runs") == ["0-mine", "1"]


def test_a_night_that_was_killed_goes_in_its_turn(state):
    killed = state / "nightly" / "killed" / "overlay"
    killed.mkdir(parents=True)
    (killed / "up.log").write_text("")
    os.utime(killed.parent, (0, 0))
    add_night(state, "last", "2026-01-02T00:00:00+00:00")
    assert pruned(state, nights=1).nights == ("killed",)
    assert directories(state / "nightly") == ["last"]


def test_the_last_night_is_kept_though_the_clock_went_back(state):
    add_night(state, "before-there-were-ids", "2026-11-24T02:00:00+00:00")
    first = make_output(None, state, datetime(2026, 11, 25, 2, tzinfo=UTC))
    back = datetime(2025, 1, 1, 2, tzinfo=UTC)
    whole, killed, last = (make_output(None, state, back) for _ in range(3))
    for night in (first, whole, last):
        add_night(state, night.name, back.isoformat(), it=night.name)
    for run in (whole.name, last.name, "x", "y"):
        add_run(state, "it", run)
    for at, night in enumerate((killed, last, whole, first)):
        os.utime(night, (at, at))
    found = pruned(state, runs=1, nights=2, yes=False)
    assert found.nights == ("before-there-were-ids", first.name, whole.name)
    assert found.runs == {"it": (whole.name, "x")}
    assert pruned(state, nights=1).nights[-1] == killed.name
    assert directories(state / "nightly") == [last.name]


@pytest.mark.parametrize("damage", ["", "20261125", "99999999-999999", "\xff"])
def test_a_night_whose_id_is_damaged_has_the_place_of_its_summary(state, damage):
    for name, day in (("b", 1), ("a", 2), ("c", 3)):
        add_night(state, name, f"2026-01-0{day}T00:00:00+00:00")
    (state / "nightly" / "a" / "night.id").write_bytes(damage.encode("latin-1"))
    assert pruned(state, nights=1).nights == ("b", "a")


@pytest.mark.parametrize("where", ["labs/it/runs/1", "labs/it/runs", "labs/it", "labs"])
def test_a_link_on_the_way_to_a_run_is_not_followed(state, where):
    for run in ("1", "2"):
        add_run(state, "it", run)
    elsewhere = state.parent / "elsewhere"
    (state / where).rename(elsewhere)
    (state / where).symlink_to(elsewhere)
    before = sorted(elsewhere.rglob("*"))
    pruned(state, runs=1)
    assert sorted(elsewhere.rglob("*")) == before


def test_links_in_a_run_are_removed_and_not_followed(state):
    victim = state.parent / "victim"
    victim.mkdir()
    (victim / "file").write_text("")
    (add_run(state, "it", "1") / "link").symlink_to(victim)
    add_run(state, "it", "2")
    pruned(state, runs=1)
    assert directories(victim) == ["file"]
    assert directories(state / "labs" / "it" / "runs") == ["2"]


@pytest.mark.parametrize(("lab", "run"), [("../..", "victim"), ("it", "../../../../victim")])
def test_a_name_in_the_journal_leads_nowhere_else(state, lab, run):
    victim = state.parent / "victim"
    (victim / "runs").mkdir(parents=True)
    (state / "labs" / "it" / "runs").mkdir(parents=True)
    for each in (run, "zz"):
        with Store(state) as store:
            store.record_run(RunRow(each, lab, "t", "o", "netns", each, 1.0, True, {}), [])
    with suppress(StateError):  # of a lab's name; what a run is called is passed over
        pruned(state, runs=1)
    assert directories(victim) == ["runs"]


def test_what_cannot_be_removed_is_said_and_stays_in_the_journal(state, monkeypatch, capsys):
    for run in ("1", "2"):
        add_run(state, "it", run)

    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "rmdir", refuse)
    with pytest.raises(SystemExit) as ended:
        main(["gc", "--yes", "--keep-runs", "1"])
    assert ended.value.code == 3
    said = capsys.readouterr()
    assert "'labs/it/runs/1': Permission denied" in said.err
    assert "1 run" not in said.out
    assert runs_of(state, "it") == ["1", "2"]


@pytest.mark.parametrize("scenarios", [None, 7, [7], [{"lab": [], "run": {}}], [{}]], ids=str)
def test_a_malformed_summary_refers_to_no_run(state, scenarios):
    night = add_night(state, "n", "no date")
    summary = {"format": 1, "started": [], "scenarios": scenarios}
    (night / "summary.json").write_text(json.dumps(summary))
    assert pruned(state, nights=1) == Surplus({}, ())
