"""Which control groups are taken away with a lab of system containers."""

from __future__ import annotations

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
    provider = NspawnProvider(Inventory(()))
    assert provider.destroy(lab, owner="somebody") == ()
    assert outside.is_dir()
    assert provider.destroy(lab) == ()
    assert not outside.exists()


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
    assert NspawnProvider(Inventory(())).destroy(lab) == ()
    assert not (place / "hybridlab-abc").exists()
    assert not (place / "holder").exists()
    assert other.is_dir()
    assert cgroups.tokens() == {"def"}
