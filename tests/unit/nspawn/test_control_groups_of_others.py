"""Whose control groups are taken away with a lab of system containers."""

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
