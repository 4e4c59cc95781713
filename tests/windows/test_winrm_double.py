"""The double itself: it runs nothing, fails closed, and serves as a program of its own."""

from __future__ import annotations

import ast
import base64
import http.client
import json
import os
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import double
import pytest
from double import soap
from double.certificates import make_certificate, make_host_key
from double.guest import PASSWORD, USER, Guest
from double.script import Answer, Asked
from windows_guests import NewGuest

from lab._deadline import Deadline
from lab.guests.shell import Reach
from lab.guests.windows_reach import WindowsReach
from lab.guests.windows_shell import WindowsShell

FOLDER = Path(double.__file__).parent
MODULES = sorted(FOLDER.glob("*.py"))
ALLOWED = {"spnego", "paramiko", "cryptography"} | set(sys.stdlib_module_names)
NEVER = {"subprocess", "ctypes", "multiprocessing", "pty"}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_it_needs_no_more_than_it_says_and_can_run_nothing(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and not node.level:
            names = [node.module or ""]
        reached = {name.split(".")[0] for name in names}
        assert reached <= ALLOWED - NEVER
        if isinstance(node, ast.Attribute):
            assert node.attr not in {"system", "popen", "spawnv", "execv", "execve", "fork"}


def test_what_it_does_not_know_fails_and_is_recorded(
    guest: Guest, windows_shell: WindowsShell
) -> None:
    done = windows_shell.run(["C:\\unknown.exe", "now"], Deadline(20))
    assert done.code == 1
    assert done.stderr == "double: unknown command, not run: C:\\unknown.exe now\r\n"
    assert [asked.line for asked in guest.script.unknown] == ["C:\\unknown.exe now"]


def test_a_responder_that_breaks_fails_the_command(
    guest: Guest, windows_shell: WindowsShell
) -> None:
    def broken(_: Asked) -> Answer:
        raise ValueError("oh")

    guest.script.on("it.exe", broken)
    done = windows_shell.run(["C:\\it.exe"], Deadline(20))
    assert (done.code, done.stderr) == (1, "double: its responder broke: ValueError('oh')\r\n")


def post(guest: Guest, body: bytes, **headers: str) -> tuple[int, list[str], bytes]:
    if guest.encrypted:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        one: http.client.HTTPConnection = http.client.HTTPSConnection(
            "127.0.0.1", guest.winrm.port, context=context, timeout=20
        )
    else:
        one = http.client.HTTPConnection("127.0.0.1", guest.winrm.port, timeout=20)
    try:
        one.request("POST", "/wsman", body, headers)
        reply = one.getresponse()
        return reply.status, reply.headers.get_all("WWW-Authenticate", []), reply.read()
    finally:
        one.close()


def basic(password: str) -> str:
    return "Basic " + base64.b64encode(f"{USER}:{password}".encode()).decode()


def test_who_says_nothing_is_asked_to_say_who_he_is(guest: Guest) -> None:
    assert post(guest, b"<x/>") == (401, ["Negotiate"], b"")
    assert not guest.shells.verbs


def test_basic_is_refused_unless_it_was_allowed(guest: Guest) -> None:
    assert post(guest, b"<x/>", Authorization=basic(PASSWORD))[0] == 401
    guest.service.basic = True
    assert post(guest, b"<x/>", Authorization=basic("wrong"))[0] == 401
    status, _, body = post(guest, b"<x/>", Authorization=basic(PASSWORD))
    assert status == 500
    assert f'Code="{soap.UNSUPPORTED}"' in body.decode()


def test_a_body_in_the_open_is_refused_over_http(new_guest: NewGuest) -> None:
    plain = new_guest(encrypted=False)
    plain.service.basic = True
    assert post(plain, b"<x/>", Authorization=basic(PASSWORD))[0] == 401
    plain.service.unencrypted = True
    assert post(plain, b"<x/>", Authorization=basic(PASSWORD))[0] == 500


BUSY = 180.0
"""Seconds for what takes one on an idle machine."""
RESPONDER = """
from double.script import Answer

def respond(asked):
    if asked.line.endswith("exit 0"):
        return Answer(0)
    if "BOOT" in asked.script:
        return Answer(7, asked.script.encode())
"""


@pytest.fixture
def program(tmp_path: Path, _nothing_left_of_guests: None) -> Iterator[tuple[WindowsShell, Path]]:
    """The double in a process of its own, and a shell on it."""
    pin = make_certificate(tmp_path / "c.pem", tmp_path / "k.pem")
    host_key, client = make_host_key(tmp_path / "h"), make_host_key(tmp_path / "client")
    (tmp_path / "authorized").write_text(client + "\n")
    (tmp_path / "drives" / "C" / "hybridlab").mkdir(parents=True)
    (tmp_path / "told_answers.py").write_text(RESPONDER)
    names = {"host_key": "h", "authorized_keys": "authorized", "root": "drives"}
    configuration = {
        "user": USER,
        "password": PASSWORD,
        "winrm": {"certificate": str(tmp_path / "c.pem"), "key": str(tmp_path / "k.pem")},
        "ssh": {name: str(tmp_path / file) for name, file in names.items()},
        "responder": "told_answers:respond",
        "journal": str(tmp_path / "journal"),
    }
    (tmp_path / "double.json").write_text(json.dumps(configuration))
    process = subprocess.Popen(
        [sys.executable, "-m", "double", str(tmp_path / "double.json")],
        env={**os.environ, "PYTHONPATH": f"{FOLDER.parent}:{tmp_path}"},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    with process.stdout:
        winrm, ssh = (int(word) for word in process.stdout.readline().split()[1:])
        own = Reach("win1", "127.0.0.1", USER, tmp_path / "client", host_key, ssh)
        shell = WindowsShell(WindowsReach(own, PASSWORD, pin, winrm))
        yield shell, tmp_path
        shell.close()
        process.send_signal(signal.SIGTERM)
        assert process.wait(BUSY) == 0


def test_it_serves_as_a_program(program: tuple[WindowsShell, Path]) -> None:
    shell, folder = program
    shell.wait(Deadline(BUSY))
    assert shell.powershell("BOOT", Deadline(BUSY)).code == 7
    assert shell.run(["C:\\other.exe"], Deadline(BUSY)).code == 1
    shell.put(b"x", "C:\\hybridlab\\x", 0o600, Deadline(BUSY))
    assert (folder / "drives" / "C" / "hybridlab" / "x").read_bytes() == b"x"
    journal = [json.loads(line) for line in (folder / "journal").read_text().splitlines()]
    *tries, script, other = [one["line"].split("\\")[-1].split()[0] for one in journal]
    assert set(tries) == {"cmd.exe"}, "one, or more where the machine is too busy for the first"
    assert (script, other) == ("powershell.exe", "other.exe")
