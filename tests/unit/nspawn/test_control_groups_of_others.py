"""Which control groups are taken away with a lab of system containers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lab.inventory.inventory import Inventory
from lab.providers.nspawn import cgroups
from lab.providers.nspawn.provider import NspawnProvider
from lab.providers.provider import LabHandle


# SECURITY.md: A mark is a claim.
def test_a_token_that_another_user_has_written_takes_no_control_group_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cgroups, "ROOT", tmp_path)
    outside = tmp_path / "pids" / "hybridlab-abc" / "master" / "outside"
    outside.mkdir(parents=True)
    (tmp_path / "pids" / "cgroup.procs").touch()
    lab = LabHandle("small", tmp_path / "state" / "labs" / "small", "abc")
    provider = NspawnProvider(Inventory())
    assert provider.destroy(lab, owner="somebody") == ()
    assert outside.is_dir()
    assert provider.destroy(lab) == ()
    assert not outside.exists()


# SECURITY.md: A mark is a claim.
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a group away")
def test_a_group_of_another_user_is_no_labs_whatever_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cgroups, "ROOT", tmp_path)
    (tmp_path / "cgroup.controllers").touch()
    theirs = tmp_path / "user.slice" / "hybridlab-abc"
    (theirs / "busy").mkdir(parents=True)
    (theirs.parent / "holder").mkdir()
    os.chown(theirs, 65534, 65534)
    assert cgroups.tokens() == set()
    assert cgroups.remove("abc")
    assert (theirs / "busy").is_dir()
    assert (theirs.parent / "holder").is_dir()


def test_on_version_1_no_group_beside_the_labs_is_taken_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cgroups, "ROOT", tmp_path)
    for group in ("hybridlab-abc", "holder"):
        (tmp_path / "pids" / group).mkdir(parents=True)
    (tmp_path / "pids" / "cgroup.procs").touch()
    assert cgroups.remove("abc")
    assert [path.name for path in (tmp_path / "pids").iterdir() if path.is_dir()] == ["holder"]


@pytest.mark.parametrize("scope", ["system.slice/hybridlab-small-abc.scope", "session", ""])
def test_the_groups_of_a_lab_whose_holder_has_gone_are_found_on_version_2(
    scope: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cgroups, "ROOT", tmp_path)
    (tmp_path / "cgroup.controllers").touch()
    place = tmp_path / scope
    for group in ("hybridlab-abc/master/inside/hybridlab-fff", "holder"):
        (place / group).mkdir(parents=True)
    other = tmp_path / "user.slice" / "hybridlab-def" / "worker"
    other.mkdir(parents=True)
    assert cgroups.tokens() == {"abc", "def"}
    lab = LabHandle("small", tmp_path / "state" / "labs" / "small", "abc")
    assert NspawnProvider(Inventory()).destroy(lab) == ()
    assert not (place / "hybridlab-abc").exists()
    assert not (place / "holder").exists()
    assert other.is_dir()
    assert cgroups.tokens() == {"def"}
