"""Files on a guest over SFTP, and commands with the caller's streams, as a double answers."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from ssh_server import Sshd
from windows_guests import Guest

import lab
from lab._deadline import Deadline
from lab._errors import BrokenError, UsageError
from lab.shells.shell import ConnectionLostError
from lab.windows.winrm import CertificateError

PLACE = "C:\\hybridlab\\it.bin"
BUSY = 180.0
"""Seconds for what takes one on an idle machine: NTLM seals a megabyte in Python. A try of ``wait``
that takes too long on a busy one is made again, with a link of its own."""
MIB = 1 << 20


def test_a_file_comes_back_byte_for_byte_is_replaced_and_removed(guest, windows_shell):
    content = os.urandom(MIB)
    windows_shell.put(content, PLACE, 0o644, Deadline(30))
    assert windows_shell.get(PLACE, Deadline(30)) == content
    assert windows_shell.get("c:/HYBRIDLAB/It.bin", Deadline(30)) == content
    for content in (b"one", b"", b"three"):
        windows_shell.put(content, PLACE, 0o600, Deadline(20))
        assert windows_shell.get(PLACE, Deadline(20)) == content
    assert [path.name for path in (guest.folder).iterdir()] == ["it.bin"]
    for _ in range(2):
        windows_shell.remove(PLACE)
    assert not list((guest.folder).iterdir())


def test_a_missing_file_on_the_machine_is_reported(windows_shell):
    with pytest.raises(BrokenError, match=r"reading 'C:\\no\\x' of 'win1': no such file"):
        windows_shell.get("C:\\no\\x", Deadline(20))
    with pytest.raises(BrokenError, match=r"writing 'C:\\no\\x' on 'win1': no such file"):
        windows_shell.put(b"x", "C:\\no\\x", 0o600, Deadline(20))


@pytest.mark.parametrize("path", ["x", "/etc/passwd", "hybridlab\\x", "C:", "C:\\a?b", "C:\\a:b"])
def test_a_path_that_windows_cannot_have_is_refused(guest, windows_shell, path):
    with pytest.raises(UsageError):
        windows_shell.put(b"x", path, 0o600, Deadline(20))
    assert not guest.ssh_service.logins


def test_a_missing_sftp_server_is_reported(guest, windows_shell):
    guest.ssh.stop()
    guest.ssh_service.subsystem = False
    guest.ssh.start()
    with pytest.raises(BrokenError, match="'win1' refused to start it"):
        windows_shell.put(b"x", PLACE, 0o600, Deadline(20))


@pytest.fixture
def host(_nothing_left_of_guests, tmp_path):
    """An SSH host to go through."""
    if os.geteuid() != 0 or not Path("/usr/sbin/sshd").exists():
        pytest.skip("no sshd, or no root, who alone can start one that lets root in")
    made = Sshd(tmp_path / "host")
    made.start()
    yield made
    made.end()


@pytest.fixture
def new_jumping_shell(host, new_shell, tmp_path):
    return partial(new_shell, jump=host.jump(tmp_path / "known"))


def test_commands_and_files_go_through_a_host(host, guest, new_jumping_shell):
    shell = new_jumping_shell()
    guest.script.on("it.exe", stdout=b"x" * MIB)
    shell.wait(Deadline(BUSY))
    tries, logins = len(guest.lines()), host.logins()
    assert logins <= tries, "one link to it is shared"
    content = b"x" * MIB
    assert len(shell.run(["C:\\it.exe"], Deadline(BUSY)).stdout) == MIB
    shell.put(content, PLACE, 0o600, Deadline(BUSY))
    assert shell.get(PLACE, Deadline(BUSY)) == content
    assert host.logins() == logins, "the same link is used on"


def test_a_host_does_not_bypass_the_certificate_and_a_dead_host_is_reported(
    guest, new_jumping_shell
):
    with pytest.raises(CertificateError):
        new_jumping_shell(certificate="cd" * 32).run(["C:\\it.exe"], Deadline(20))
    assert not guest.service.wire
    guest.winrm.stop()
    with pytest.raises(BrokenError, match=r"'127\.0\.0\.1' refused a channel to 127\.0\.0\.1 port"):
        new_jumping_shell().run(["C:\\it.exe"], Deadline(20))


def test_a_link_that_breaks_while_a_command_runs_is_made_anew(host, guest, new_jumping_shell):
    shell = new_jumping_shell()
    guest.script.on("it.exe")
    shell.run(["C:\\it.exe"], Deadline(20))
    host.cut()
    shell.run(["C:\\it.exe"], Deadline(20))
    assert guest.lines() == ["C:\\it.exe"] * 2
    assert host.logins() == 2


def test_output_that_a_host_may_have_dropped_is_reported(host, guest, new_jumping_shell):
    shell = new_jumping_shell()
    gate = threading.Event()
    guest.script.on("it.exe", code=6, stdout=b"all", held=gate)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(shell.run, ["C:\\it.exe"], Deadline(60))
        # The first is answered with what it says, and the second waits for its end.
        Deadline(30).wait("a second", lambda: guest.shells.verbs.count("Receive") == 2)
        host.cut()
        gate.set()
        with pytest.raises(ConnectionLostError, match="with exit code 6, but the connection broke"):
            running.result()
    assert guest.lines() == ["C:\\it.exe"]


ATTACH = """
import sys
from pathlib import Path
from lab.shells.shell import Reach, WindowsReach
from lab.windows.shell import WindowsShell
host_key, keyfile, port, *command = sys.argv[1:]
own = Reach("win1", "127.0.0.1", "Administrator", Path(keyfile), host_key, int(port))
shell = WindowsShell(WindowsReach(own, "unused", "ab" * 32))
code = shell.attach(command)
shell.close()
sys.exit(code)
"""
"""A process that attaches its streams to a guest's command."""


def attach(guest: Guest, *command: str) -> subprocess.CompletedProcess[str]:
    facts = (guest.host_key, str(guest.keyfile), str(guest.ssh.port))
    return subprocess.run(
        [sys.executable, "-c", ATTACH, *facts, *command],
        env={**os.environ, "PYTHONPATH": str(Path(lab.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
        stdin=subprocess.DEVNULL,
    )


def test_a_program_gets_its_arguments_whatever_shell_sshd_starts(guest):
    guest.script.on("powershell.exe", code=9, stdout=b"out", stderr=b"err")
    done = attach(guest, "C:\\Program Files\\it.exe", "a b", "it's $x")
    assert (done.returncode, done.stdout, done.stderr) == (9, "out", "err")
    (asked,) = guest.script.asked
    options = "-NoProfile -NonInteractive -ExecutionPolicy Bypass -EncodedCommand"
    assert asked.line.split()[1:-1] == options.split()
    assert not set(asked.line) & set("\"'&|<>^%$`"), "cmd or PowerShell would interpret that"
    lines = asked.script.splitlines()
    assert "$start.FileName = 'C:\\Program Files\\it.exe'" in lines
    assert "$start.Arguments = '\"a b\" \"it''s $x\"'" in lines
    assert lines[-1] == "exit $process.ExitCode"


def test_no_command_is_a_login_shell(guest):
    guest.script.on("^$", code=3, stdout=b"PS C:\\>")
    done = attach(guest)
    assert (done.returncode, done.stdout) == (3, "PS C:\\>")
