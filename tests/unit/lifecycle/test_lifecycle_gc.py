from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path

import pytest
from lab_desk import Desk

from lab._errors import BrokenError, UsageError
from lab.lifecycle.gc import Collected, GcRequest, GcResult, gc
from lab.lifecycle.names import in_words, parse_age
from lab.providers.fake.provider import FakeLab
from lab.providers.provider import LabHandle
from lab.state.lock import lab_lock

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
def test_an_age_is_said_in_its_largest_unit(seconds, words):
    assert in_words(seconds) == words


def test_a_lab_in_use_or_brought_up_again_stays(desk):
    desk.up()
    desk.now += 10 * DAY
    assert collect(desk).found == ()
    desk.up()
    assert collect(desk, 2 * DAY).found == ()
    assert len(desk.provider.world) == 1


def test_only_labs_that_are_older_go_and_a_dry_run_says_which(desk):
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


def test_an_orphan_goes_with_its_files(desk):
    desk.up()
    desk.lose_state_file()
    result = collect(desk)
    assert [item.why for item in result.found] == ["entry 1 (holder) is in no journal, 0 s old"]
    assert desk.provider.world == {}
    assert desk.files() == set()


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
        return tuple(replace(one, expired=True) for one in marks(all_users=all_users))

    assert collect(desk, all_users=True).found == ()
    monkeypatch.setattr(desk.provider, "marks", expired)
    assert [item.lab for item in collect(desk, all_users=True).found] == ["far"]


# SECURITY.md: Files are found by the lab's name.
def test_an_orphan_of_another_state_directory_is_never_opened(desk, tmp_path, monkeypatch):
    """Whoever wrote its mark could name a directory with a record of hypervisors in it."""
    plant(desk, tmp_path / "gone" / "labs" / "far")
    asked: list[LabHandle] = []
    monkeypatch.setattr(desk.provider, "destroy", lambda lab: asked.append(lab) or ())
    collect(desk)
    assert [one.directory for one in asked] == [desk.store.lab_directory("far")]
