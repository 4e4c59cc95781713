"""Small files of ours: read at once, whatever stands in their place."""

from __future__ import annotations

import errno
import os
import signal
import stat
import sys
from pathlib import Path

import pytest
from processes import run_program

from lab.providers.libvirt import placement
from lab.providers.machines import keyring
from lab.providers.nspawn import layout as of_containers
from lab.providers.provider import LabHandle
from lab.state.files import read_private, remove_tree, replacing
from lab.state.lock import holder

REPOSITORY = Path(__file__).parents[3]


@pytest.mark.parametrize("kind", ["pipe", "link", "directory", "endless"])
def test_what_is_no_file_is_refused_at_once(tmp_path, kind):
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
def test_a_pipe_in_a_labs_directory_holds_nobody_up(tmp_path):
    lab = LabHandle("a", tmp_path, "11")
    for name in ("layout.json", "lock", "pins/win1"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        os.mkfifo(tmp_path / name)
    assert placement.load_layout(lab) is None
    assert of_containers.load(lab) is None
    assert keyring.pins(lab, "win1") is None
    assert holder(tmp_path) is None


DIE_WHILE_WRITING = """
import os, signal, sys
from pathlib import Path
from lab.state.files import replacing
with replacing(Path(sys.argv[1])) as file:
    file.write(b"half")
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("there", [True, False])
def test_a_command_that_is_killed_while_it_writes_leaves_no_draft(tmp_path, *, there):
    path = tmp_path / "file"
    if there:
        path.write_text("old")
    killed = run_program(
        [sys.executable, "-c", DIE_WHILE_WRITING, path], cwd=REPOSITORY, check=False
    )
    assert killed.returncode == -signal.SIGKILL
    assert [one.name for one in tmp_path.iterdir()] == (["file"] if there else [])
    assert not there or path.read_text() == "old"


@pytest.mark.parametrize("there", ["nothing", "file", "link"])
@pytest.mark.parametrize("errno_of_nameless", [None, errno.EOPNOTSUPP, errno.EISDIR])
def test_a_file_is_replaced_whole_on_file_systems_of_both_kinds(
    tmp_path, monkeypatch, there, errno_of_nameless
):
    path, elsewhere, opened = tmp_path / "file", tmp_path / "elsewhere", os.open
    elsewhere.write_text("old")
    if there == "file":
        path.write_text("old")
    elif there == "link":
        path.symlink_to(elsewhere)

    def open_without(name, flags, mode=0o777, **more):
        if errno_of_nameless and flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno_of_nameless, os.strerror(errno_of_nameless))
        return opened(name, flags, mode, **more)

    monkeypatch.setattr(os, "open", open_without)
    with replacing(path) as file:
        file.write(b"new")
        hidden = [one for one in tmp_path.iterdir() if one.name.startswith(".file.")]
        assert len(hidden) == (1 if errno_of_nameless else 0)
    assert path.read_text() == "new"
    assert not path.is_symlink()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(KeyError), replacing(path):
        raise KeyError
    assert {one.name for one in tmp_path.iterdir()} == {"file", "elsewhere"}
    assert (path.read_text(), elsewhere.read_text()) == ("new", "old")


def test_directories_are_removed_however_deep_they_are_nested(tmp_path, monkeypatch):
    """More levels than Python's stack, and longer than any path that the kernel takes."""
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").touch()
    (tmp_path / "deep").mkdir()
    monkeypatch.chdir(tmp_path / "deep")
    for level in range(sys.getrecursionlimit() + 50):
        os.symlink(kept, "link")  # noqa: PTH211
        os.mkdir("empty", 0o500)  # noqa: PTH102
        os.mkfifo("d" if level == 1000 else "pipe")
        name = "e" if level == 1000 else "d"
        os.mkdir(name)  # noqa: PTH102
        os.chdir(name)
    os.chdir(tmp_path)
    parent = os.open(tmp_path, os.O_RDONLY)
    try:
        remove_tree("deep", parent)
        (tmp_path / "link").symlink_to(kept)
        with pytest.raises(NotADirectoryError):
            remove_tree("link", parent)
    finally:
        os.close(parent)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept", "link"]
    assert [path.name for path in kept.iterdir()] == ["file"]
