"""What every shell of the product does, wherever its commands run: subclass it, give ``shell``."""

from __future__ import annotations

import gc
import os
import signal
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lab._deadline import Deadline
from lab._errors import BrokenError, DeadlineError
from lab.shells.shell import Completed, Shell

MIB = 1 << 20


def running(words: str) -> list[int]:
    """Processes of this machine with that command line."""
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


def wait_until_gone(*lines: str) -> None:
    Deadline(5).wait(
        "waiting for processes to go",
        lambda: [pid for line in lines for pid in running(line)],
        until=lambda left: not left,
    )


@contextmanager
def nothing_left() -> Iterator[None]:
    """The block leaves no thread and no open file behind."""

    def traces() -> tuple[list[str], int]:
        gc.collect()  # the traceback of an attempt that failed holds its connection
        threads = sorted(thread.name for thread in threading.enumerate())
        return threads, len(list(Path("/proc/self/fd").iterdir()))

    threads, files = traces()
    yield
    # There may be fewer files: leftovers of other tests are garbage-collected at any time.
    Deadline(5).wait(
        "waiting for threads and files to go",
        traces,
        until=lambda now: now[0] == threads and now[1] <= files,
    )


class ShellContract:
    """Over the files and processes of this machine."""

    @pytest.mark.parametrize(
        ("command", "stdin", "done"),
        [
            (["echo", "a  b", "$HOME", "'"], b"", Completed(0, "a  b $HOME '\n", "")),
            (["/bin/sh", "-c", "printf a; printf b >&2; exit 3"], b"", Completed(3, "a", "b")),
            (["cat"], b"", Completed(0, "", "")),
            (["cat"], b"\n\n  text", Completed(0, "\n\n  text", "")),
            (["head", "-c", "3"], b"abcdef" * MIB, Completed(0, "abc", "")),
            (["true"], b"x" * 8 * MIB, Completed(0, "", "")),
        ],
        ids=["words", "streams", "nothing", "lines", "a-part", "unread"],
    )
    def test_a_command_has_its_own_streams_and_code(
        self, shell: Shell, command: list[str], stdin: bytes, done: Completed
    ) -> None:
        assert shell.run(command, Deadline(20), stdin) == done

    def test_exit_codes_are_those_of_a_shell(self, shell: Shell) -> None:
        for number, code in (("TERM", 143), ("KILL", 137)):
            assert shell.run(["sh", "-c", f"kill -{number} $$"], Deadline(20)).code == code
        done = shell.run(["no-such-thing"], Deadline(20))
        assert done.code == 127
        assert "not found" in done.stderr

    def test_megabytes_both_ways_do_not_block(self, shell: Shell) -> None:
        script = "head -c 8388608 /dev/zero >&2 & cat; wait"
        done = shell.run(["/bin/sh", "-c", script], Deadline(60), b"x" * 8 * MIB)
        assert (len(done.stdout), len(done.stderr)) == (8 * MIB, 8 * MIB)
        assert set(done.stdout) == {"x"}

    def test_the_deadline_kills_the_command_and_its_children(self, shell: Shell) -> None:
        one, other = long_sleep(1), long_sleep(2)
        script = f"echo begun; {one} & {other}"
        shell.wait(Deadline(20))
        with pytest.raises(DeadlineError, match=r"not done within 3 s.*'begun'"):
            shell.run(["/bin/sh", "-c", script], Deadline(3))
        wait_until_gone(one, other)
        assert shell.run(["echo", "on"], Deadline(20)).stdout == "on\n"

    def test_what_it_leaves_in_the_background_does_not_hold_up_the_end(self, shell: Shell) -> None:
        done = shell.run(["sh", "-c", f"{long_sleep(3)} & echo done"], Deadline(20))
        assert done == Completed(0, "done\n", "")
        for pid in running(long_sleep(3)):
            os.kill(pid, signal.SIGKILL)

    def test_lines_are_passed_on_whole_as_they_arrive(self, shell: Shell, tmp_path: Path) -> None:
        gate = tmp_path / "gate"
        os.mkfifo(gate)
        heard: list[bytes] = []

        def hear(line: bytes) -> None:
            heard.append(line)
            if line == b"first\n":
                gate.write_text("on")  # the command waits for this: it was told before its end

        script = f"printf fir; echo st; cat {gate} >/dev/null; printf '2\\nrest'; echo oops >&2"
        done = shell.stream(["sh", "-c", script], Deadline(20), hear)
        assert heard == [b"first\n", b"2\n", b"rest"]
        assert done == Completed(0, "", "oops\n")

    def test_who_hears_may_stop_it(self, shell: Shell) -> None:
        def hear(_: bytes) -> None:
            raise ValueError("enough")

        with pytest.raises(ValueError, match="enough"):
            shell.stream(["sh", "-c", f"echo x; {long_sleep(5)}"], Deadline(20), hear)
        wait_until_gone(long_sleep(5))

    def test_a_file_is_written_whole_with_its_mode_and_read_back(
        self, shell: Shell, tmp_path: Path
    ) -> None:
        content, path = os.urandom(3 * MIB), tmp_path / "a file"
        path.write_text("before")
        path.chmod(0o644)
        shell.put(content, str(path), 0o640, Deadline(60))
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        assert shell.get(str(path), Deadline(60)) == path.read_bytes() == content
        assert list(tmp_path.glob("*file*")) == [path]

    def test_an_impossible_file_is_refused_and_leaves_nothing(
        self, shell: Shell, tmp_path: Path
    ) -> None:
        (tmp_path / "taken").mkdir()
        before = sorted(tmp_path.iterdir())
        for path in ("taken", "none/file"):
            with pytest.raises(BrokenError, match=f"writing '.*/{path}' on "):
                shell.put(b"x", str(tmp_path / path), 0o644, Deadline(20))
        with pytest.raises(BrokenError, match=r"(?i)reading '.*/none' of .*no such file"):
            shell.get(str(tmp_path / "none"), Deadline(20))
        assert sorted(tmp_path.iterdir()) == before
