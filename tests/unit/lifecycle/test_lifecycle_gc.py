"""``lab gc``: labs that are old or orphaned, and runs and nights that are kept no longer."""

import errno
import json
import os
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from lab_desk import Desk

from lab._errors import BrokenError, StateError, UsageError
from lab.cli.main import main
from lab.lifecycle import api
from lab.lifecycle.gc import Collected, GcRequest, GcResult, Kept, Surplus, gc, prune, surplus
from lab.lifecycle.names import in_words, parse_age
from lab.lifecycle.night_report import FoundNight, make_output
from lab.providers.fake.provider import FakeLab
from lab.providers.provider import LabHandle
from lab.state.directory import nights_directory
from lab.state.lock import lab_lock
from lab.state.rows import RunRow
from lab.state.stamps import FORMAT
from lab.state.store import Store

DAY = 86_400.0


def collect(
    desk: Desk, older_than: float | None = None, *, yes: bool = True, all_users: bool = False
) -> GcResult:
    wanted = GcRequest(older_than, yes, all_users)
    return gc(wanted, desk.providers, desk.store, desk.said.append)


def plant(
    desk: Desk, directory: Path, name: str = "far", token: str = "far", owner: str = ""
) -> None:
    """A lab of another process or user, which says that it has that directory."""
    desk.provider.world[token] = FakeLab(name, token, directory, 7, desk.now, owner=owner)


def theirs(desk, directory, name="far"):
    plant(desk, directory, name, "theirs", "mallory")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("2d", 172_800), ("36h", 129_600), ("90m", 5400), ("45s", 45), ("1w", 604_800), ("1.5H", 5400)]
    + [(wrong, None) for wrong in ("", "2", "d", "-1d", "2 days", "2y", "1e9d")],
)
def test_an_age_is_a_number_and_a_unit(text, seconds):
    if seconds is not None:
        assert parse_age(text) == seconds
        return
    with pytest.raises(UsageError, match="a number and a unit") as caught:
        parse_age(text)
    assert "36h" in caught.value.hint


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 s"), (-1, "0 s"), (59, "59 s"), (60, "1 min"), (7200, "2 h"), (300_000, "3 d")],
)
def test_an_age_is_shown_in_its_largest_unit(seconds, words):
    assert in_words(seconds) == words


def test_a_lab_in_use_or_brought_up_again_stays(desk):
    desk.up()
    desk.now += 10 * DAY
    assert collect(desk).found == ()
    desk.up()
    assert collect(desk, 2 * DAY).found == ()
    assert len(desk.provider.world) == 1


def test_only_older_labs_are_removed_and_a_dry_run_lists_them(desk):
    desk.up()
    desk.now += 3 * DAY
    desk.up("young")
    desk.said.clear()
    result = collect(desk, 2 * DAY, yes=False)
    assert result.dry_run
    assert [item.lab for item in result.found] == ["overlay"]
    assert result.removed == ()
    assert desk.said == ["would remove lab 'overlay': last used 3 d ago"]
    assert len(desk.provider.world) == 2
    assert desk.row().status == "up"
    result = collect(desk, 2 * DAY)
    assert result.removed == ("entry 1 (holder)",)
    assert [row.name for row in desk.store.labs()] == ["young"]
    assert [lab.name for lab in desk.provider.world.values()] == ["young"]
    assert desk.files() == {"young", "young/lock", "young/scenario.yaml"}


def test_a_lab_of_a_night_that_was_killed_is_named_and_one_of_a_running_night_is_not(desk):
    desk.up("nightly-overlay")
    (left,) = collect(desk).left
    assert left.startswith("lab 'nightly-overlay' is left alone: it has the name of a night's lab")
    assert left.endswith("lab down nightly-overlay")
    with lab_lock(nights_directory(desk.store.directory), "lab nightly"):
        assert collect(desk).left == ()
    desk.now += 3 * DAY
    assert collect(desk, 2 * DAY, yes=False).left == ()


def test_an_orphan_goes_with_its_files(desk):
    desk.up()
    desk.lose_state_file()
    result = collect(desk)
    assert [item.why for item in result.found] == ["entry 1 (holder) is in no journal, 0 s old"]
    assert desk.provider.world == {}
    assert desk.files() == set()


def test_the_lock_of_an_up_that_was_killed_early_goes(desk):
    shelf = desk.store.lab_directory("early")
    with lab_lock(shelf, "lab up early"):
        assert collect(desk, yes=False).found == ()
        content = (shelf / "lock").read_bytes()
    assert not shelf.exists()
    shelf.mkdir()
    (shelf / "lock").write_bytes(content)
    assert [item.lab for item in collect(desk, yes=False).found] == ["early"]
    assert collect(desk).removed == (f"files in '{shelf}'",)
    assert not shelf.exists()


def test_files_of_a_lab_that_neither_journal_nor_mark_knows_go(desk):
    desk.up()
    desk.lose_state_file()
    desk.provider.world.clear()
    shelf = desk.store.lab_directory("overlay")
    (shelf / "runs/1").mkdir(parents=True)
    assert collect(desk, yes=False).found[0].why == f"the files in '{shelf}' are in no journal"
    assert "overlay/scenario.yaml" in desk.files()
    with lab_lock(shelf, "lab up overlay"):
        assert collect(desk).left[0].startswith("lab 'overlay' is skipped: ")
    assert "overlay/scenario.yaml" in desk.files()
    assert collect(desk).removed == (f"files in '{shelf}'",)
    assert (shelf / "runs/1").is_dir()
    assert "overlay/scenario.yaml" not in desk.files()
    assert collect(desk).found == ()


def test_files_of_a_lab_that_is_brought_up_meanwhile_stay(desk):
    desk.up()
    desk.lose_state_file()
    desk.provider.world.clear()
    gc(GcRequest(None, yes=True), desk.providers, desk.store, lambda _: desk.up())
    assert "overlay/scenario.yaml" in desk.files()
    assert desk.row().status == "up"


def test_an_orphan_beside_a_lab_of_its_name_goes_and_the_lab_stays(desk):
    desk.up()
    ((token, lab),) = desk.provider.world.items()
    desk.provider.world["old"] = replace(lab, token="old", holder=9)
    assert collect(desk).removed == ("entry 9 (holder)",)
    assert desk.provider.world.keys() == {token}
    assert "overlay/scenario.yaml" in desk.files()


def test_an_orphan_goes_if_its_state_directory_is_gone_and_stays_if_it_is_there(desk, tmp_path):
    desk.up()
    (token,) = desk.provider.world
    gone, there = (tmp_path / name / "labs" / "far" for name in ("gone", "there"))
    there.mkdir(parents=True)
    plant(desk, there)
    assert collect(desk, 0.0, yes=False).found == ()
    plant(desk, gone)
    collect(desk)
    assert desk.provider.world.keys() == {token}
    assert not (tmp_path / "gone").exists()


# SECURITY.md: A mark is a claim.
@pytest.mark.parametrize("token", ["", ".", "..", "x/../../y", "/y", "x\n"])
def test_a_mark_with_a_token_that_no_lab_has_is_passed_over(desk, tmp_path, token):
    plant(desk, tmp_path / "gone" / "labs" / "far", token=token, owner="somebody")
    assert collect(desk, all_users=True).found == ()
    assert token in desk.provider.world


def test_a_lab_whose_state_directory_cannot_be_looked_at_stays(desk, tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    for hidden in (tmp_path / ("x" * 300), tmp_path / "loop"):
        plant(desk, hidden / "state" / "labs" / "far")
        result = collect(desk)
        assert result.found == ()
        assert f"'{hidden / 'state'}' cannot be inspected from here" in result.left[0]
        assert desk.said[-1] == result.left[0]


def test_a_mark_with_a_link_that_may_not_be_read_does_not_end_the_command(
    desk, tmp_path, monkeypatch
):
    """As /proc/1/root is to root in a container."""

    def refuse(path, **_):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    (tmp_path / "locked").symlink_to("locked")
    theirs(desk, tmp_path / "locked" / "state" / "labs" / "overlay", "overlay")
    monkeypatch.setattr(os, "readlink", refuse)
    result = collect(desk, all_users=True)
    assert (result.found, len(result.left), "theirs" in desk.provider.world) == ((), 1, True)


def test_a_lab_whose_state_directory_may_only_be_hidden_stays(desk, tmp_path, monkeypatch):
    """As in a service with ProtectHome: homes are not there, or empty directories are instead."""
    covered = tmp_path / "home"
    covered.mkdir()
    monkeypatch.setattr(Path, "is_mount", lambda path: path == covered)
    for state in (covered / "state", covered / "user" / "state"):
        plant(desk, state / "labs" / "far")
        assert (collect(desk).found, "far" in desk.provider.world) == ((), True)
    (covered / "somebody").mkdir()
    plant(desk, covered / "state" / "labs" / "far")
    assert [item.lab for item in collect(desk).found] == ["far"]


def test_a_lab_that_a_command_holds_is_left_alone_by_name(desk):
    desk.up()
    desk.now += 3 * DAY
    with lab_lock(desk.store.lab_directory("overlay"), "lab up overlay"):
        result = collect(desk, 2 * DAY)
    assert len(result.left) == 1
    assert "'lab up overlay' (process" in result.left[0]
    assert len(desk.provider.world) == 1
    assert desk.row().status == "up"


def test_a_lab_that_is_just_being_made_is_no_orphan(desk, monkeypatch):
    """Its objects are there before its steps are done: the journal had its token first."""
    furnish = desk.provider._furnish
    found: list[tuple[Collected, ...]] = []

    def look(lab, names):
        found.append(collect(desk).found)
        furnish(lab, names)

    monkeypatch.setattr(desk.provider, "_furnish", look)
    desk.up()
    assert found == [()]
    assert len(desk.provider.world) == 1


def test_a_lab_used_between_the_look_and_the_lock_stays(desk):
    desk.up()
    desk.now += 3 * DAY
    sentences = []

    def use_it(sentence):
        sentences.append(sentence)
        desk.up()

    gc(GcRequest(2 * DAY, yes=True), desk.providers, desk.store, use_it)
    assert len(sentences) == 1
    assert len(desk.provider.world) == 1
    assert desk.row().status == "up"


def test_one_that_cannot_go_does_not_keep_the_others(desk, monkeypatch):
    desk.up("first")
    desk.up("second")
    desk.now += 3 * DAY
    destroy = desk.provider.destroy

    def fail(lab, **_):
        if lab.name == "first":
            raise BrokenError("ending the holder", "it is still there")
        return destroy(lab)

    monkeypatch.setattr(desk.provider, "destroy", fail)
    with pytest.raises(BrokenError, match="lab 'first': ending the holder: it is still there"):
        collect(desk, 2 * DAY)
    assert [lab.name for lab in desk.provider.world.values()] == ["first"]


# SECURITY.md: A mark is a claim.
@pytest.mark.parametrize(
    ("name", "directory"),
    [
        ("..", "{state}/labs/.."),
        ("../victim", "{state}/labs/../victim"),
        ("../../victim", "{state}/none/../victim"),
        ("victim", "{state}/labs/../victim"),
        ("victim", "{state}/labs/victim/../victim"),
        ("victim", "{state}/labs/overlay"),
        ("victim", "labs/victim"),
        ("", "{state}/labs"),
        ("Victim", "{state}/labs/Victim"),
        ("a\x1b[2J", "{state}/labs/a\x1b[2J"),
    ],
)
def test_a_mark_that_no_lab_can_have_is_passed_over(desk, name, directory):
    desk.up()
    victim = desk.store.directory / "victim"
    victim.mkdir()
    before = desk.files()
    path = Path(directory.format(state=desk.store.directory))
    desk.provider.world["t"] = FakeLab(name, "t", path, 7, desk.now)
    assert collect(desk, 0.0, all_users=True).found == ()
    assert "t" in desk.provider.world
    assert victim.is_dir()
    assert desk.files() == before


def test_another_users_orphan_goes_only_with_all_users_and_without_its_files(desk, tmp_path):
    theirs(desk, tmp_path / "gone" / "labs" / "far")
    assert collect(desk, -1.0) == GcResult(dry_run=False, found=(), removed=(), left=())
    assert (desk.said, "theirs" in desk.provider.world) == ([], True)
    (item,) = collect(desk, all_users=True).found
    assert item.why == "entry 7 (holder) of user 'mallory' is in no journal, 0 s old"
    assert desk.provider.world == {}


def test_another_users_lab_that_names_a_directory_of_mine_takes_no_file_of_mine(desk):
    desk.up()
    before = desk.files()
    desk.store.lab_directory("far").mkdir()
    (desk.store.lab_directory("far") / "mine").touch()
    for name in ("overlay", "far"):
        theirs(desk, desk.store.lab_directory(name), name)
        collect(desk, all_users=True)
        assert "theirs" not in desk.provider.world
    assert desk.files() == before | {"far", "far/mine"}
    assert desk.row().status == "up"


def test_another_users_lab_whose_state_directory_is_there_goes_only_by_its_age(desk, tmp_path):
    directory = tmp_path / "other" / "labs" / "far"
    directory.mkdir(parents=True)
    theirs(desk, directory)
    desk.now += 3 * DAY
    assert collect(desk, all_users=True).found == ()
    assert collect(desk, 4 * DAY, all_users=True).found == ()
    assert collect(desk, 2 * DAY, all_users=True).removed == ("entry 7 (holder)",)
    assert directory.is_dir()


def test_a_lab_that_has_passed_its_makers_expiry_goes_wherever_its_directory_is(desk, monkeypatch):
    theirs(desk, Path("/a/machine/far/away/labs/far"))
    marks = desk.provider.marks

    def expired(*, all_users=False):
        return tuple(replace(mark, expired=True) for mark in marks(all_users=all_users))

    assert collect(desk, all_users=True).found == ()
    monkeypatch.setattr(desk.provider, "marks", expired)
    assert [item.lab for item in collect(desk, all_users=True).found] == ["far"]


# SECURITY.md: Files are found by the lab's name.
def test_an_orphan_of_another_state_directory_is_never_opened(desk, tmp_path, monkeypatch):
    """Whoever wrote its mark could name a directory with a record of hypervisors in it."""
    plant(desk, tmp_path / "gone" / "labs" / "far")
    lab_handles: list[LabHandle] = []
    monkeypatch.setattr(desk.provider, "destroy", lambda lab: lab_handles.append(lab) or ())
    collect(desk)
    assert [handle.directory for handle in lab_handles] == [desk.store.lab_directory("far")]


@pytest.fixture
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("HYBRIDLAB_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(api, "collect", lambda _age, yes, *_: GcResult(not yes, (), (), ()))
    return tmp_path / "state"


def add_run(state: Path, lab: str, run: str) -> Path:
    with Store(state) as store:
        store.record_run(RunRow(run, lab, "t", "overlay", "netns", run, 1.0, True, {}))
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


def pruned(
    state: Path, runs: int = 20, nights: int = 30, evidence: int = 20, *, yes: bool = True
) -> Surplus:
    with Store(state) as store:
        return prune(store, Kept(runs, nights, evidence), lambda _: None, yes=yes)


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


def test_the_oldest_evidence_of_all_labs_goes(state, capsys):
    for lab, made in (("a", "20261125-000001"), ("b", "20261125-000000"), ("a", "20261125-000002")):
        shelf = state / "labs" / lab / "evidence"
        shelf.mkdir(parents=True, exist_ok=True)
        (shelf / f"{lab}-evidence-{made}.tar.gz").write_bytes(b"x")
    (state / "labs" / "b" / "evidence" / "mine.tar.gz").write_bytes(b"x")
    old = {"b": ("b-evidence-20261125-000000.tar.gz",)}
    surplus = pruned(state, evidence=2, yes=False)
    assert (surplus.evidence, list(surplus.words())) == (old, ["1 evidence archive"])
    assert pruned(state, evidence=2).evidence == old
    assert directories(state / "labs" / "b" / "evidence") == ["mine.tar.gz"]
    with pytest.raises(SystemExit):
        main(["gc", "--yes", "--keep-evidence", "1", "--json"])
    names = ["a-evidence-20261125-000001.tar.gz"]
    assert json.loads(capsys.readouterr().out)["evidence"] == {"a": names}
    assert directories(state / "labs" / "a" / "evidence") == ["a-evidence-20261125-000002.tar.gz"]


def test_the_oldest_runs_of_each_lab_and_the_oldest_nights_go():
    nights = [FoundNight(Path("b"), 2), FoundNight(Path("c"), 3), FoundNight(Path("a"), 1)]
    found = surplus({"x": ["1", "2", "3"], "y": ["4"]}, nights, 2, 1)
    assert found == Surplus({"x": ("1",)}, ("a", "b"))
    assert list(found.words()) == ["1 run", "2 nights"]


def test_a_run_that_a_kept_night_refers_to_stays():
    nights = [
        FoundNight(Path("old"), 1, {"scenarios": [{"lab": "x", "run": "1"}]}),
        FoundNight(Path("new"), 2, {"scenarios": [{"lab": "x", "run": "2"}]}),
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
        main(["gc", "--keep-runs=21"])
    told = capsys.readouterr()
    assert told.out == "would remove 11 runs, 2 nights; 'lab gc --keep-runs 21 --yes' removes it\n"
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
    surplus = pruned(state, runs=1, nights=2, yes=False)
    assert surplus.nights == ("before-there-were-ids", first.name, whole.name)
    assert surplus.runs == {"it": (whole.name, "x")}
    assert pruned(state, nights=1).nights[-1] == killed.name
    assert directories(state / "nightly") == [last.name]


CLOCKS = ("99991231-235959", "20261121-101500", "19700101-000000", "99991231-235959")
"""Times of successive runs and nights, as clocks that are wrong and set again give them."""


def test_the_run_recorded_last_is_kept_when_the_clock_jumps(state):
    ids = [f"{moment}-{suffix}" for moment, suffix in zip(CLOCKS, "dcba", strict=True)]
    for run in ids:
        add_run(state, "it", run)
    with Store(state) as store:
        assert [run.id for run in store.runs("it")] == ids
    assert pruned(state, runs=2).runs == {"it": tuple(ids[:2])}
    add_run(state, "it", "20261121-101500-e")
    assert pruned(state, runs=1).runs == {"it": tuple(ids[2:])}


def test_the_night_made_last_is_kept_when_the_clock_jumps(state):
    nights = []
    for moment in CLOCKS:
        night = make_output(None, state, datetime.strptime(moment, FORMAT).replace(tzinfo=UTC))
        nights.append(night.name)
    assert nights == ["9999-12-31", "2026-11-21", "1970-01-01", "9999-12-31-4"]
    assert pruned(state, nights=2).nights == tuple(nights[:2])


@pytest.mark.parametrize("damage", ["", "20261125", "99999999-999999", "x 20261125-000000", "\xff"])
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
            store.record_run(RunRow(each, lab, "t", "o", "netns", each, 1.0, True, {}))
    with suppress(StateError):  # of a lab's name; what a run is called is passed over
        pruned(state, runs=1)
    assert directories(victim) == ["runs"]


def test_a_failed_removal_is_reported_and_stays_in_the_journal(state, monkeypatch, capsys):
    for run in ("1", "2"):
        add_run(state, "it", run)

    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "rmdir", refuse)
    with pytest.raises(SystemExit) as ended:
        main(["gc", "--yes", "--keep-runs", "1"])
    assert ended.value.code == 3
    output = capsys.readouterr()
    assert "'labs/it/runs/1': Permission denied" in output.err
    assert "1 run" not in output.out
    assert runs_of(state, "it") == ["1", "2"]


@pytest.mark.parametrize("scenarios", [None, 7, [7], [{"lab": [], "run": {}}], [{}]], ids=str)
def test_a_malformed_summary_refers_to_no_run(state, scenarios):
    night = add_night(state, "n", "no date")
    summary = {"format": 1, "started": [], "scenarios": scenarios}
    (night / "summary.json").write_text(json.dumps(summary))
    assert pruned(state, nights=1) == Surplus({}, ())
