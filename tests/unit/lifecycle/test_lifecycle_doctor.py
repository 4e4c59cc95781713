"""What a doctor says of the place where labs are written down."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lab.lifecycle.providers import journal
from lab.state import capacity


def of(directory: Path) -> tuple[str, str, str]:
    found = journal({"HYBRIDLAB_STATE": str(directory)})
    return found.level, found.seen, found.hint


def test_a_state_directory_that_can_be_made_is_well_and_is_not_made(tmp_path):
    state = tmp_path / "not" / "yet"
    assert of(state) == ("ok", f"kept in '{state}'", "")
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_to_be_mended(tmp_path, monkeypatch):
    monkeypatch.setattr(capacity, "NEEDED_BYTES", 1 << 60)
    level, seen, hint = of(tmp_path)
    assert level == "fail"
    assert "MiB are free" in seen
    assert "df -h" in hint


@pytest.mark.parametrize("name", ["", "state.db"])
def test_what_cannot_be_written_is_to_be_mended(tmp_path, name, monkeypatch):
    (tmp_path / "state.db").touch()
    barred = tmp_path / name
    monkeypatch.setattr(os, "access", lambda path, _: path != barred)  # root may write anywhere
    level, seen, hint = of(tmp_path)
    assert (level, seen) == ("fail", f"'{barred}' cannot be written")
    assert "HYBRIDLAB_STATE" in hint


def test_without_a_home_the_variable_to_set_is_said():
    found = journal({})
    assert (found.level, found.seen) == ("fail", "HOME is not set")
    assert "export HYBRIDLAB_STATE" in found.hint
