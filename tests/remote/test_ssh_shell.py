"""Commands and files on a machine over a real SSH server."""

from __future__ import annotations

import os
import signal
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from ssh_server import NewShell, NewSshd, Sshd, children, long_sleep, running

from lab._deadline import Deadline
from lab._errors import BrokenError, DeadlineError
from lab.remote.shell import Completed, ConnectionLostError
from lab.remote.ssh import SshShell

MIB = 1 << 20


def test_output_and_errors_are_kept_apart_with_the_exit_code(shell: SshShell) -> None:
    done = shell.run(["sh", "-c", "printf a; printf b >&2; exit 3"], Deadline(20))
    assert done == Completed(3, "a", "b")


@pytest.mark.parametrize(
    ("command", "code"),
    [("kill -TERM $$", 143), ("kill -KILL $$", 137), ("exec no-such-thing", 127)],
)
def test_exit_codes_are_those_of_a_shell(shell: SshShell, command: str, code: int) -> None:
    assert shell.run(["sh", "-c", command], Deadline(20)).code == code


def test_megabytes_on_both_streams_and_into_input_do_not_block(shell: SshShell) -> None:
    script = "head -c 8388608 /dev/zero >&2 & cat; wait"
    done = shell.run(["sh", "-c", script], Deadline(60), b"x" * 8 * MIB)
    assert (len(done.stdout), len(done.stderr)) == (8 * MIB, 8 * MIB)
    assert set(done.stdout) == {"x"}


def test_input_that_nobody_reads_does_not_matter(shell: SshShell) -> None:
    assert shell.run(["true"], Deadline(20), b"x" * 8 * MIB).code == 0


def test_the_deadline_kills_the_command_and_its_children(shell: SshShell) -> None:
    one, other = long_sleep(1), long_sleep(2)
    script = f"echo begun; {one} & {other}"
    shell.wait(Deadline(20))
    with pytest.raises(DeadlineError, match=r"not done within 3 s.*'begun'"):
        shell.run(["sh", "-c", script], Deadline(3))
    Deadline(5).wait(
        "waiting for the children to go",
        lambda: running(one) + running(other),
        until=lambda left: not left,
    )
    assert shell.run(["echo", "on"], Deadline(20)).stdout == "on\n"


def test_what_it_leaves_in_the_background_does_not_hold_up_the_end(shell: SshShell) -> None:
    done = shell.run(["sh", "-c", f"{long_sleep(4)} & echo done"], Deadline(20))
    assert done == Completed(0, "done\n", "")
    for pid in running(long_sleep(4)):
        os.kill(pid, signal.SIGKILL)


def test_lines_are_told_as_they_come(shell: SshShell, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    heard: list[bytes] = []

    def hear(line: bytes) -> None:
        heard.append(line)
        if line == b"first\n":
            gate.write_text("on")  # the command waits for this: it was told before its end

    script = f"echo first; cat {gate} >/dev/null; printf 'second\\nrest'; echo oops >&2"
    done = shell.stream(["sh", "-c", script], Deadline(20), hear)
    assert heard == [b"first\n", b"second\n", b"rest"]
    assert done == Completed(0, "", "oops\n")


def test_who_hears_may_stop_it(shell: SshShell) -> None:
    def hear(_: bytes) -> None:
        raise ValueError("enough")

    with pytest.raises(ValueError, match="enough"):
        shell.stream(["sh", "-c", f"echo x; {long_sleep(5)}"], Deadline(20), hear)
    Deadline(5).wait("waiting", lambda: running(long_sleep(5)), until=lambda left: not left)


def test_a_file_is_written_whole_with_its_mode_and_read_back(
    shell: SshShell, tmp_path: Path
) -> None:
    content, path = os.urandom(3 * MIB), tmp_path / "a file"
    path.write_text("before")
    path.chmod(0o644)
    shell.put(content, str(path), 0o600, Deadline(60))
    assert path.read_bytes() == content
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert shell.get(str(path), Deadline(60)) == content


def test_a_file_that_cannot_be_written_leaves_nothing(shell: SshShell, tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    before = sorted(tmp_path.iterdir())
    with pytest.raises(BrokenError, match=r"writing '.*/taken' on 'guest1': "):
        shell.put(b"x", str(tmp_path / "taken"), 0o644, Deadline(20))
    with pytest.raises(BrokenError, match="no such file"):
        shell.put(b"x", str(tmp_path / "none" / "file"), 0o644, Deadline(20))
    assert sorted(tmp_path.iterdir()) == before


def test_a_file_that_is_not_there_cannot_be_read(shell: SshShell, tmp_path: Path) -> None:
    with pytest.raises(BrokenError, match=r"reading '.*/none' of 'guest1': no such file"):
        shell.get(str(tmp_path / "none"), Deadline(20))


def test_twenty_threads_share_one_transport(shell: SshShell, sshd: Sshd) -> None:
    def work(number: int) -> str:
        return shell.run(["sh", "-c", f"sleep 0.2; echo {number}"], Deadline(60)).stdout

    with ThreadPoolExecutor(20) as pool:
        assert list(pool.map(work, range(20))) == [f"{number}\n" for number in range(20)]
    assert sshd.log().count("Accepted publickey") == 1


def test_a_session_that_the_server_has_no_room_for_yet_is_asked_for_again(
    new_sshd: NewSshd, new_shell: NewShell
) -> None:
    shell = new_shell(new_sshd(more="MaxSessions 2\n").reach())
    with ThreadPoolExecutor(6) as pool:
        done = pool.map(lambda _: shell.run(["sleep", "0.2"], Deadline(60)).code, range(6))
        assert list(done) == [0] * 6


def test_a_connection_that_is_cut_ends_the_command_and_is_never_run_again(
    shell: SshShell, sshd: Sshd, tmp_path: Path
) -> None:
    mark = tmp_path / "runs"
    shell.wait(Deadline(20))
    trouble: list[Exception] = []

    def work() -> None:
        try:
            shell.run(["sh", "-c", f"echo x >>{mark}; {long_sleep(6)}"], Deadline(60))
        except BrokenError as error:
            trouble.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    Deadline(10).wait("waiting for it to begin", mark.exists)
    for pid in sshd.connections():
        for one in (*children(pid), pid):
            os.kill(one, signal.SIGKILL)
    thread.join(20)
    assert isinstance(trouble[0], ConnectionLostError)
    assert "the connection to 'guest1'" in str(trouble[0])
    Deadline(5).wait("waiting", lambda: running(long_sleep(6)), until=lambda left: not left)
    assert shell.run(["cat", str(mark)], Deadline(20)).stdout == "x\n"


def test_a_server_that_was_restarted_is_connected_to_again(shell: SshShell, sshd: Sshd) -> None:
    assert shell.run(["echo", "one"], Deadline(20)).stdout == "one\n"
    sshd.end()
    with pytest.raises(BrokenError, match="connection refused"):
        shell.run(["echo", "two"], Deadline(20))
    sshd.start()
    assert shell.run(["echo", "three"], Deadline(20)).stdout == "three\n"


def test_closing_ends_the_connection_and_may_be_repeated(shell: SshShell, sshd: Sshd) -> None:
    shell.wait(Deadline(20))
    assert sshd.connections()
    shell.close()
    shell.close()
    Deadline(5).wait("waiting", sshd.connections, until=lambda left: not left)


def test_another_user_than_root_becomes_root_by_sudo(
    new_sshd: object, new_shell: NewShell, tmp_path: Path
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "sudo").write_text(
        '#!/bin/sh\n[ "$1 $2" = "-n --" ] || exit 9\nshift 2\nASKED=sudo exec "$@"\n'
    )
    (programs / "sudo").chmod(0o755)
    sshd = new_sshd(more=f'Match all\n  SetEnv "PATH={programs}:/usr/bin:/bin"\n')  # type: ignore[operator]
    shell = new_shell(sshd.reach())
    shell._become = True
    assert shell.run(["sh", "-c", "echo $ASKED"], Deadline(20)).stdout == "sudo\n"
    shell.put(b"text", str(tmp_path / "file"), 0o640, Deadline(20))
    assert shell.get(str(tmp_path / "file"), Deadline(20)) == b"text"
    assert shell.attach(["sh", "-c", 'test "$ASKED" = sudo']) == 0
    (programs / "sudo").write_text("#!/bin/sh\necho 'sudo: a password is required' >&2\nexit 1\n")
    with pytest.raises(BrokenError, match="may not become root there: sudo: a password"):
        shell.run(["true"], Deadline(20))
