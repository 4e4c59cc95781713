"""Small files of ours and files that a user names: whole, private, led nowhere by links."""

import errno
import os
import re
import signal
import stat
import sys
from pathlib import Path

import pytest
from processes import run_program

from lab._errors import UsageError
from lab.state.files import open_output, read_private, remove_tree, replacing
from lab.state.stamps import in_order, is_stamp, stamp

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
    assert [path.name for path in real.iterdir()] == ["file"]
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
def test_an_unwritable_path_is_reported_as_given(tmp_path, path, number):
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
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]


def test_devices_and_pipes_by_descriptor_are_written_into():
    write(Path(os.devnull))
    assert Path(os.devnull).is_char_device()
    read, end = os.pipe()
    write(Path(f"/dev/fd/{end}"))
    os.close(end)
    with os.fdopen(read, "rb") as pipe:
        assert pipe.read() == b"new"


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
    assert [path.name for path in tmp_path.iterdir()] == (["file"] if there else [])
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
        hidden = [path for path in tmp_path.iterdir() if path.name.startswith(".file.")]
        assert len(hidden) == (1 if errno_of_nameless else 0)
    assert path.read_text() == "new"
    assert not path.is_symlink()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(KeyError), replacing(path):
        raise KeyError
    assert {path.name for path in tmp_path.iterdir()} == {"file", "elsewhere"}
    assert (path.read_text(), elsewhere.read_text()) == ("new", "old")


@pytest.mark.parametrize("there", [True, False])
def test_a_file_is_on_the_disk_before_its_name_and_its_name_before_the_end(
    tmp_path, monkeypatch, there
):
    """A loss of power at any moment leaves the old file or the new one, and never an empty one."""
    path, calls = tmp_path / "file", []
    if there:
        path.write_text("old")

    def traced(name):
        call = getattr(os, name)

        def trace(*arguments, **more):
            content = None
            if name == "fsync":
                status = os.fstat(arguments[0])
                content = "directory" if stat.S_ISDIR(status.st_mode) else status.st_size
            calls.append((name, content))
            return call(*arguments, **more)

        monkeypatch.setattr(os, name, trace)

    for name in ("fsync", "link", "rename", "replace"):
        traced(name)
    with replacing(path) as file:
        file.write(b"new")
    assert calls[0] == ("fsync", 3)
    assert calls[-1] == ("fsync", "directory")
    assert {name for name, _ in calls[1:-1]} <= {"link", "rename", "replace"}
    assert len(calls) > 2


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


def test_a_time_is_a_moment_of_the_calendar_in_utc():
    assert stamp(1_764_065_700.9) == "20251125-101500"
    assert is_stamp("20251125-101500")
    assert not any(map(is_stamp, ("20251325-101500", "20251125-101500-x", "2025", "")))


@pytest.mark.parametrize(
    ("others", "named"),
    [
        ([], "20251125-101500-x"),
        (["20251125-101459-z"], "20251125-101500-x"),
        (["20251125-101500-a"], "20251125-101501-x"),
        (["20261231-235959", "20251125-101500"], "20270101-000000-x"),
        (["99999999-999999", "99991231-235959", "notes", "202611250-1"], "20251125-101500-x"),
    ],
)
def test_a_name_is_behind_those_before_it(others, named):
    assert in_order("20251125-101500-x", others) == named


def test_a_name_without_a_time_stays_as_it_is():
    assert in_order("mine", ["20251125-101500"]) == "mine"
