"""One lab at a time copies an image to a hypervisor; the others know for whom they wait."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.providers.libvirt import bring_up
from lab.providers.provider import LabHandle
from lab.state.lock import HeldError

WHAT = "0123456789abcdef"


def handle(state: Path, name: str) -> LabHandle:
    return LabHandle(name, state / "labs" / name, f"{name}-token")


def test_another_lab_s_copy_is_waited_for_with_a_word_and_not_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bring_up, "ALL_SECONDS", 0.3)
    with (
        bring_up.copy_lock(handle(tmp_path, "first"), "rack1", WHAT),
        pytest.raises(HeldError, match="'lab up first'"),
        bring_up.copy_lock(handle(tmp_path, "second"), "rack1", WHAT),
    ):
        pass
    assert "'lab up first'" in capsys.readouterr().err
    assert not list((tmp_path / "copying").iterdir())


def test_another_hypervisor_s_copy_is_not_waited_for(tmp_path: Path) -> None:
    with (
        bring_up.copy_lock(handle(tmp_path, "first"), "rack1", WHAT),
        bring_up.copy_lock(handle(tmp_path, "second"), "rack2", WHAT),
    ):
        pass
