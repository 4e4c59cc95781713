"""The shell of this machine does what the one over SSH does."""

from __future__ import annotations

import os
import shutil
import signal
import stat
from pathlib import Path

import pytest

from lab._deadline import Deadline
from lab._errors import BrokenError, DeadlineError
from lab.remote.local import LocalShell
from lab.remote.shell import Completed, Shell

MIB = 1 << 20
SHELL = LocalShell(become=False)


def running(words: str) -> list[int]:
    wanted = words.replace(" ", "\0") + "\0"
    return [
        int(path.parent.name)
        for path in Path("/proc").glob("[0-9]*/cmdline")
        if _text(path) == wanted
    ]


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def long_sleep(number: int) -> str:
    """A command line that no other test run on this machine has."""
    return f"sleep {os.getpid()}{number:04d}"


def gone(words: str) -> bool:
    Deadline(5).wait("waiting for it to go", lambda: running(words), until=lambda left: not left)
    return True


@pytest.fixture(params=["dash", "bash"])
def _sh(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of the shells that a distribution may have as /bin/sh."""
    program = shutil.which(request.param)
    if program is None:
        pytest.skip(f"{request.param} is not installed")
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "sh").symlink_to(program)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")


@pytest.mark.usefixtures("_sh")
@pytest.mark.parametrize(
    ("command", "stdin", "done"),
    [
        (["echo", "a  b", "$HOME", "'"], b"", Completed(0, "a  b $HOME '\n", "")),
        (["/bin/sh", "-c", "printf a; printf b >&2; exit 3"], b"", Completed(3, "a", "b")),
        (["cat"], b"", Completed(0, "", "")),
        (["cat"], b"\n\n  text", Completed(0, "\n\n  text", "")),
        (["head", "-c", "3"], b"abcdef" * MIB, Completed(0, "abc", "")),
        (["true"], b"x" * 4 * MIB, Completed(0, "", "")),
    ],
)
def test_a_command_has_its_own_streams_and_code(
    command: list[str], stdin: bytes, done: Completed
) -> None:
    one: Shell = SHELL
    assert one.run(command, Deadline(20), stdin) == done


@pytest.mark.usefixtures("_sh")
def test_a_command_that_is_not_there_is_127() -> None:
    done = SHELL.run(["no-such-thing"], Deadline(20))
    assert done.code == 127
    assert "not found" in done.stderr


@pytest.mark.usefixtures("_sh")
def test_the_deadline_kills_the_command_and_its_children() -> None:
    one, other = long_sleep(1), long_sleep(2)
    script = f"echo begun; {one} & {other}"
    with pytest.raises(DeadlineError, match=r"not done within 2 s.*'begun'"):
        SHELL.run(["/bin/sh", "-c", script], Deadline(2))
    assert gone(one)
    assert gone(other)


@pytest.mark.usefixtures("_sh")
def test_megabytes_both_ways_do_not_block() -> None:
    script = "head -c 8388608 /dev/zero >&2 & cat; wait"
    done = SHELL.run(["/bin/sh", "-c", script], Deadline(60), b"x" * 8 * MIB)
    assert (len(done.stdout), len(done.stderr)) == (8 * MIB, 8 * MIB)


def test_what_it_leaves_in_the_background_does_not_hold_up_the_end() -> None:
    done = SHELL.run(["sh", "-c", f"{long_sleep(3)} & echo done"], Deadline(20))
    assert done == Completed(0, "done\n", "")
    for pid in running(long_sleep(3)):
        os.kill(pid, signal.SIGKILL)


def test_lines_are_told_whole() -> None:
    heard: list[bytes] = []
    script = "printf 'on'; sleep 0.1; printf 'e\\ntwo\\nrest'"
    assert SHELL.stream(["sh", "-c", script], Deadline(20), heard.append).stdout == ""
    assert heard == [b"one\n", b"two\n", b"rest"]


def test_files_are_written_whole_and_read(tmp_path: Path) -> None:
    content, path = os.urandom(MIB), tmp_path / "a file"
    path.write_text("before")
    SHELL.put(content, str(path), 0o640, Deadline(20))
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert SHELL.get(str(path), Deadline(20)) == content
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_cannot_be_is_told_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(BrokenError, match=r"writing '.*/taken' on this machine: "):
        SHELL.put(b"x", str(tmp_path / "taken"), 0o644, Deadline(20))
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]
    with pytest.raises(BrokenError, match=r"reading '.*/none' of this machine: .*No such file"):
        SHELL.get(str(tmp_path / "none"), Deadline(20))


def test_it_becomes_root_by_sudo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    shell = LocalShell(become=True)
    if shutil.which("sudo") is None:
        with pytest.raises(BrokenError, match="'sudo': no such file"):
            shell.run(["true"], Deadline(20))
    sudo = tmp_path / "sudo"
    sudo.write_text('#!/bin/sh\n[ "$1 $2" = "-n --" ] || exit 9\nshift 2\nAS=root exec "$@"\n')
    sudo.chmod(0o755)
    assert shell.run(["sh", "-c", "echo $AS"], Deadline(20)).stdout == "root\n"
    sudo.write_text("#!/bin/sh\necho 'sudo: a password is required' >&2\nexit 1\n")
    with pytest.raises(BrokenError, match="becoming root on this machine: sudo: a password"):
        shell.wait(Deadline(20))


def test_it_leaves_no_descriptor_and_no_child() -> None:
    def traces() -> tuple[int, set[str]]:
        children = Path("/proc/self/task").glob("*/children")
        return (
            len(list(Path("/proc/self/fd").iterdir())),
            {child for path in children for child in path.read_text().split()},
        )

    before = traces()
    SHELL.run(["true"], Deadline(20))
    assert traces() == before
