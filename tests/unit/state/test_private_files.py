"""Small files of ours: read at once, whatever stands in their place."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lab.providers.libvirt import placement
from lab.providers.machines import keyring
from lab.providers.nspawn import layout as of_containers
from lab.providers.provider import LabHandle
from lab.state.files import read_private, remove_tree
from lab.state.lock import holder


@pytest.mark.parametrize("kind", ["pipe", "link", "directory", "endless"])
def test_what_is_no_file_is_refused_at_once(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "file"
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "link":
            path.symlink_to("/etc/passwd")
        case "directory":
            path.mkdir()
        case "endless":
            with path.open("wb") as file:
                file.truncate(1 << 40)
    with pytest.raises(OSError, match=r"file|directory"):
        read_private(path)


@pytest.mark.timeout(20)
def test_a_pipe_in_a_labs_directory_holds_nobody_up(tmp_path: Path) -> None:
    lab = LabHandle("a", tmp_path, "11")
    for name in ("layout.json", "lock", "pins/win1"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        os.mkfifo(tmp_path / name)
    assert placement.load_layout(lab) is None
    assert of_containers.load(lab) is None
    assert keyring.pins(lab, "win1") is None
    assert holder(tmp_path) is None


def test_directories_that_are_nested_too_deep_are_an_error_of_the_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More levels than Python's stack has; their path is longer than the kernel takes at once."""
    (tmp_path / "deep").mkdir()
    monkeypatch.chdir(tmp_path / "deep")
    for _ in range(sys.getrecursionlimit() + 50):
        os.mkdir("d")  # noqa: PTH102
        os.chdir("d")
    os.chdir(tmp_path)
    parent = os.open(tmp_path, os.O_RDONLY)
    try:
        with pytest.raises(OSError, match="nested too deep; 'rm -rf' removes them"):
            remove_tree("deep", parent)
    finally:
        os.close(parent)
        subprocess.run(["rm", "-rf", tmp_path / "deep"], check=True)
