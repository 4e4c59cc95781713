"""A command on a guest with the caller's own streams, over SSH to a double: not Windows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from double.guest import Guest
from double.script import Answer, Asked

import lab

PROGRAM = Path(__file__).with_name("windows_attaching.py")
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(lab.__file__).parents[1])}


def attach(guest: Guest, *command: str) -> subprocess.CompletedProcess[str]:
    facts = (guest.host_key, str(guest.keyfile), str(guest.ssh.port))
    return subprocess.run(
        [sys.executable, str(PROGRAM), *facts, *command],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        stdin=subprocess.DEVNULL,
    )


def test_a_program_gets_its_arguments_whatever_shell_sshd_starts(guest):
    seen: list[Asked] = []

    def answer(asked: Asked) -> Answer:
        seen.append(asked)
        return Answer(9, b"out", b"err")

    guest.script.on("powershell.exe", answer)
    done = attach(guest, "C:\\Program Files\\it.exe", "a b", "it's $x")
    assert (done.returncode, done.stdout, done.stderr) == (9, "out", "err")
    words = seen[0].line.split()
    assert words[1:-1] == [
        *("-NoProfile", "-NonInteractive", "-ExecutionPolicy", "Bypass", "-EncodedCommand")
    ]
    assert not set(seen[0].line) & set("\"'&|<>^%$`"), "cmd or PowerShell would interpret that"
    lines = seen[0].script.splitlines()
    assert "$start.FileName = 'C:\\Program Files\\it.exe'" in lines
    assert "$start.Arguments = '\"a b\" \"it''s $x\"'" in lines
    assert lines[-1] == "exit $process.ExitCode"


def test_no_command_is_a_login_shell(guest):
    guest.script.on("^$", code=3, stdout=b"PS C:\\>")
    done = attach(guest)
    assert (done.returncode, done.stdout) == (3, "PS C:\\>")
