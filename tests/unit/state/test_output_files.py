"""Files that a user names for output: no link of another user leads them elsewhere."""

from __future__ import annotations

import errno
import os
import re
import stat
from pathlib import Path

import pytest

from lab._errors import UsageError
from lab.state.files import open_output

STRANGER = 65534
only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a link away")


def write(path: Path, content: bytes = b"new") -> None:
    with open_output(path, "testing") as file:
        file.write(content)


def give_away(path: Path) -> Path:
    os.chown(path, STRANGER, STRANGER, follow_symlinks=False)
    return path


# SECURITY.md: What root writes is not given away.
@only_root
@pytest.mark.parametrize("where", ["file", "directory", "above", "chain"])
def test_no_link_of_another_user_is_followed(tmp_path, where):
    victim = tmp_path / "victim" / "inner" / "file"
    victim.parent.mkdir(parents=True)
    victim.write_text("precious")
    link = tmp_path / "link"
    path = link
    match where:
        case "file":
            link.symlink_to(victim)
        case "directory":
            link.symlink_to(victim.parent)
            path = link / "file"
        case "above":
            link.symlink_to("victim")
            path = link / "inner" / "file"
        case "chain":
            link.symlink_to(victim.parent)
            path = tmp_path / "own"
            path.symlink_to("link/file")
    give_away(link)
    with pytest.raises(UsageError, match="the symbolic link 'link' belongs to user 65534"):
        write(path)
    assert victim.read_text() == "precious"
    assert os.listdir(victim.parent) == ["file"]  # noqa: PTH208


# SECURITY.md: What root writes is not given away.
@only_root
def test_a_directory_that_another_user_swaps_for_a_link_meanwhile_is_not_left(tmp_path):
    named, victim = tmp_path / "named", tmp_path / "victim"
    named.mkdir()
    victim.mkdir()
    with open_output(named / "file", "testing") as file:
        named.rename(tmp_path / "moved")
        named.symlink_to(victim)
        give_away(named)
        file.write(b"new")
    assert not list(victim.iterdir())
    assert (tmp_path / "moved" / "file").read_bytes() == b"new"


def test_the_callers_own_links_are_followed_and_stay(tmp_path, monkeypatch):
    real = tmp_path / "real"
    real.mkdir()
    (tmp_path / "directory").symlink_to("real/../real")
    (tmp_path / "link").symlink_to("directory/file")
    monkeypatch.chdir(tmp_path)
    write(Path("link"))
    assert (tmp_path / "link").is_symlink()
    assert (real / "file").read_bytes() == b"new"
    assert stat.S_IMODE((real / "file").stat().st_mode) == 0o600
    write(Path("directory/file"), b"newer")
    assert [one.name for one in real.iterdir()] == ["file"]
    assert (real / "file").read_bytes() == b"newer"


@only_root
def test_the_owner_of_a_file_that_root_replaces_stays_where_sudo_was_called_by_him(
    tmp_path, monkeypatch
):
    path, pipe = tmp_path / "file", tmp_path / "pipe"
    path.touch()
    os.mkfifo(pipe)
    for one in (path, pipe):
        with pytest.raises(UsageError, match="it belongs to user 65534"):
            write(give_away(one))
    monkeypatch.setenv("SUDO_UID", str(STRANGER))
    write(path)
    assert (path.read_bytes(), path.stat().st_uid) == (b"new", STRANGER)


@pytest.mark.parametrize(
    ("path", "number"),
    [
        ("loop", errno.ELOOP),
        ("directory", errno.EISDIR),
        (".", errno.EISDIR),
        ("none/file", errno.ENOENT),
        ("other/file", errno.ENOTDIR),
        ("directory/" + "x" * 300, errno.ENAMETOOLONG),
    ],
)
def test_what_cannot_be_written_is_said_with_the_path_that_was_given(tmp_path, path, number):
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "directory").mkdir()
    (tmp_path / "other").write_text("precious")
    with pytest.raises(OSError, match=re.escape(str(tmp_path / path))) as refused:
        write(tmp_path / path)
    assert refused.value.errno == number
    assert refused.value.filename == str(tmp_path / path)


def test_what_fails_half_way_leaves_what_was_there(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(ZeroDivisionError), open_output(path, "testing") as file:
        file.write(b"half" * (1 // len(b"")))
    assert [one.read_text() for one in tmp_path.iterdir()] == ["old"]


def test_devices_and_pipes_by_descriptor_are_written_into():
    write(Path(os.devnull))
    assert Path(os.devnull).is_char_device()
    read, end = os.pipe()
    write(Path(f"/dev/fd/{end}"))
    os.close(end)
    with os.fdopen(read, "rb") as pipe:
        assert pipe.read() == b"new"
