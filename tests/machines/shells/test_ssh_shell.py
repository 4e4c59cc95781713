"""Commands and files on a machine over a real SSH server."""

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from shell_contract import ShellContract, long_sleep, wait_until_gone
from ssh_server import children

from lab._deadline import Deadline
from lab._errors import BrokenError
from lab.shells.shell import ConnectionLostError


class TestSshShell(ShellContract):
    """What it does as every shell does; ``shell`` is a fixture of all tests here."""


def test_twenty_threads_share_one_transport(shell, sshd):
    def work(number: int) -> str:
        return shell.run(["sh", "-c", f"sleep 0.2; echo {number}"], Deadline(60)).stdout

    with ThreadPoolExecutor(20) as pool:
        assert list(pool.map(work, range(20))) == [f"{number}\n" for number in range(20)]
    assert sshd.log().count("Accepted publickey") == 1


def test_a_session_that_the_server_has_no_room_for_yet_is_asked_for_again(new_sshd, new_shell):
    shell = new_shell(new_sshd(more="MaxSessions 2\n").reach())
    with ThreadPoolExecutor(6) as pool:
        done = pool.map(lambda _: shell.run(["sleep", "0.2"], Deadline(60)).code, range(6))
        assert list(done) == [0] * 6


def test_a_connection_that_is_cut_ends_the_command_and_is_never_run_again(shell, sshd, tmp_path):
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
        for child in (*children(pid), pid):
            os.kill(child, signal.SIGKILL)
    thread.join(20)
    assert isinstance(trouble[0], ConnectionLostError)
    assert "the connection to 'guest1'" in str(trouble[0])
    wait_until_gone(long_sleep(6))
    assert shell.run(["cat", str(mark)], Deadline(20)).stdout == "x\n"


def test_a_server_that_was_restarted_is_connected_to_again(shell, sshd):
    assert shell.run(["echo", "one"], Deadline(20)).stdout == "one\n"
    sshd.end()
    with pytest.raises(BrokenError, match="connection refused"):
        shell.run(["echo", "two"], Deadline(20))
    sshd.start()
    assert shell.run(["echo", "three"], Deadline(20)).stdout == "three\n"


def test_closing_ends_the_connection_and_may_be_repeated(shell, sshd):
    shell.wait(Deadline(20))
    assert sshd.connections()
    shell.close()
    shell.close()
    Deadline(5).wait("waiting", sshd.connections, until=lambda left: not left)


def test_another_user_than_root_becomes_root_by_sudo(new_sshd, new_shell, tmp_path):
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "sudo").write_text(
        '#!/bin/sh\n[ "$1 $2" = "-n --" ] || exit 9\nshift 2\nASKED=sudo exec "$@"\n'
    )
    (programs / "sudo").chmod(0o755)
    sshd = new_sshd(more=f'Match all\n  SetEnv "PATH={programs}:/usr/bin:/bin"\n')
    shell = new_shell(sshd.reach())
    shell._become = True
    assert shell.run(["sh", "-c", "echo $ASKED"], Deadline(20)).stdout == "sudo\n"
    shell.put(b"text", str(tmp_path / "file"), 0o640, Deadline(20))
    assert shell.get(str(tmp_path / "file"), Deadline(20)) == b"text"
    assert shell.attach(["sh", "-c", 'test "$ASKED" = sudo']) == 0
    (programs / "sudo").write_text("#!/bin/sh\necho 'sudo: a password is required' >&2\nexit 1\n")
    with pytest.raises(BrokenError, match="may not become root there: sudo: a password"):
        shell.run(["true"], Deadline(20))
