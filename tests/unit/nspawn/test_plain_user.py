"""A plain user asks for system containers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lab._errors import PreflightError
from lab.inventory.inventory import Inventory
from lab.lifecycle.compilation import compile_scenario
from lab.providers.nspawn import preflight
from lab.providers.nspawn.provider import NspawnProvider
from lab.providers.provider import LabHandle


def test_without_root_neither_a_bundle_nor_a_package_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # where there is no bundle
    wanted = compile_scenario("overlay", "linux", None, "kubernetes", real=True)
    with pytest.raises(PreflightError, match="system containers need root") as refused:
        NspawnProvider(Inventory()).steps(LabHandle("overlay", tmp_path, "0123"), wanted.intent)
    assert "--provider netns" in refused.value.hint
    assert [one.check for one in preflight.examine(tmp_path)] == ["root"]
