from dataclasses import replace

import pytest

from lab._errors import BrokenError, StateError, UsageError
from lab.lifecycle import down
from lab.state.directory import open_unlinked
from lab.state.rows import RunRow


def test_down_takes_everything_away_and_the_next_up_is_a_new_lab(desk):
    desk.up()
    token = desk.row().token
    result = desk.down()
    assert result.changed
    assert result.removed == ("entry 1 (holder)",)
    assert desk.provider.world == {}
    assert desk.store.labs() == ()
    assert desk.store.steps("overlay") == ()
    assert {row.state for row in desk.store.resources("overlay")} == {"gone"}
    assert desk.files() == set()
    assert not desk.down().changed
    assert desk.said[-1] == "lab 'overlay' is already down: nothing to do"
    assert desk.files() == set()
    assert desk.up(scenario="host-gateway").changed
    assert desk.row().token != token
    assert desk.row().scenario == "host-gateway"


# SECURITY.md: Secrets are each lab's own.
def test_reports_of_runs_stay(desk):
    desk.up()
    reports = desk.store.run_directory("overlay", "r1")
    reports.mkdir(parents=True)
    (reports / "report.html").write_text("")
    (desk.store.lab_directory("overlay") / "sockets").mkdir()
    run = RunRow("r1", "overlay", "t", "overlay", "fake", "2026", 1.0, True, {})
    desk.store.record_run(run)
    desk.down()
    assert desk.files() == {
        "overlay",
        "overlay/runs",
        "overlay/runs/r1",
        "overlay/runs/r1/report.html",
    }
    assert [row.id for row in desk.store.runs("overlay")] == [run.id]


def test_a_lab_known_by_its_marks_alone_goes(desk):
    desk.up()
    desk.lose_state_file()
    (desk.store.lab_directory("overlay") / "scenario.yaml").unlink()
    (desk.store.lab_directory("overlay") / "lock").unlink()
    desk.store.lab_directory("overlay").rmdir()
    assert desk.down().changed
    assert desk.provider.world == {}


def test_an_unknown_name_is_refused_with_the_nearest_and_the_list(desk):
    with pytest.raises(UsageError, match="no lab named") as caught:
        desk.down()
    assert "there are no labs" in caught.value.hint
    desk.up()
    desk.up("second")
    with pytest.raises(UsageError, match="there is no lab named 'overlya'") as caught:
        desk.down("overlya")
    assert "did you mean 'overlay'?" in caught.value.hint
    assert "'overlay', 'second'" in caught.value.hint
    assert len(desk.provider.world) == 2


def test_a_lab_of_another_state_directory_is_reported_and_left_alone(desk, tmp_path):
    desk.up()
    (token,) = desk.provider.world
    other = tmp_path / "other"
    desk.provider.world[token] = replace(
        desk.provider.world[token], directory=other / "labs" / "theirs", name="theirs"
    )
    with pytest.raises(UsageError, match="in the state directory") as caught:
        desk.down("theirs")
    assert f"HYBRIDLAB_STATE={other} lab down theirs" in caught.value.hint
    assert len(desk.provider.world) == 1


def test_a_failed_down_is_reported_and_can_be_repeated(desk, monkeypatch):
    desk.up()

    def fail(*_, **__):
        raise BrokenError("ending the holder", "it is still there")

    monkeypatch.setattr(desk.provider, "destroy", fail)
    with pytest.raises(BrokenError):
        desk.down()
    assert "'lab down overlay' again" in desk.said[-1]
    assert desk.row().status == "going"
    assert {row.state for row in desk.store.resources("overlay")} == {"made"}
    monkeypatch.undo()
    assert desk.down().changed
    assert desk.provider.world == {}


def test_a_lab_on_a_provider_that_this_version_lacks_is_refused(desk):
    desk.up()
    desk.providers = {}
    with pytest.raises(UsageError, match="no provider of that name"):
        desk.down()
    assert desk.row().status == "up"


@pytest.fixture
def victim(tmp_path):
    """A directory that is no lab's, with a file in it."""
    directory = tmp_path / "victim"
    directory.mkdir()
    (directory / "kept").touch()
    return directory


def test_links_in_a_labs_directory_go_and_what_they_lead_to_stays(desk, victim):
    desk.up()
    lab = desk.store.lab_directory("overlay")
    (lab / "sockets").mkdir()
    for link in (lab / "link", lab / "sockets" / "link"):
        link.symlink_to(victim)
    desk.down()
    assert desk.files() == set()
    assert (victim / "kept").exists()


@pytest.mark.parametrize("linked", ["labs", "labs/overlay"])
def test_a_labs_directory_that_is_a_link_is_refused_before_anything_is_done(desk, victim, linked):
    desk.up()
    link = desk.store.directory / linked
    link.rename(desk.store.directory / "moved")
    (victim / "overlay").mkdir()
    link.symlink_to(victim)
    with pytest.raises(StateError, match=f"{linked}': it is a link, or not a directory"):
        desk.down()
    assert sorted(path.name for path in victim.rglob("*")) == ["kept", "overlay"]
    assert len(desk.provider.world) == 1


# SECURITY.md: Files are found by the lab's name.
@pytest.mark.parametrize("swapped", ["labs", "labs/overlay", "labs/overlay/sockets"])
def test_a_link_that_is_put_in_the_way_meanwhile_leads_nowhere(desk, victim, swapped, monkeypatch):
    desk.up()
    (desk.store.lab_directory("overlay") / "sockets").mkdir()
    for name in ("overlay", "overlay/sockets"):
        (victim / name).mkdir()
        (victim / name / "kept").touch()

    def swap(*paths):
        opened = open_unlinked(*paths)
        path = desk.store.directory / swapped
        path.rename(desk.store.directory / "moved")
        path.symlink_to(victim)
        return opened

    monkeypatch.setattr(down, "open_unlinked", swap)
    desk.down()
    assert len([path for path in victim.rglob("kept") if path.is_file()]) == 3


def test_a_lock_that_is_a_link_is_not_followed(desk, victim):
    desk.up()
    lock = desk.store.lab_directory("overlay") / "lock"
    lock.unlink()
    lock.symlink_to(victim / "made")
    with pytest.raises(StateError, match="locking 'overlay'"):
        desk.down()
    assert not (victim / "made").exists()
