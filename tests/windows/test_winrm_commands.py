"""Commands on a guest over WinRM, and waiting for one, as a double answers: not Windows."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from double.script import Answer, Asked
from tables import named, table
from windows_guests import PASSWORD, USER, Guest, encoded

from lab import _errors
from lab._deadline import Deadline
from lab._errors import DeadlineError, PreflightError, UsageError
from lab.machines.ssh.transport import SESSIONS
from lab.shells import shell as shells
from lab.shells.shell import Completed, ConnectionLostError, HostKeyError, UnreachableError
from lab.windows import shell as windows
from lab.windows import winrm
from lab.windows.shell import WindowsShell
from lab.windows.winrm import CertificateError, PasswordError

PROGRAM = "C:\\tools\\it.exe"
CLIXML = (
    b'#< CLIXML\r\n<Objs Version="1.1.0.1" xmlns="http://schemas.microsoft.com/powershell/2004/04">'
    b'<Obj S="progress" RefId="0"><MS><S N="Activity">Loading</S></MS></Obj>'
    b'<S S="Error">it is broken_x000D__x000A_</S></Objs>'
)
TROUBLES = table("winrm-troubles")


@pytest.mark.parametrize("code", [0, 1, 1641, 3010, 3221225786, -1073741510])
def test_output_errors_and_exit_code_come_back(code, guest, windows_shell):
    guest.script.on("it.exe", code=code, stdout="h\u00e9\u20ac".encode(), stderr=CLIXML)
    done = windows_shell.run([PROGRAM, "a b"], Deadline(20))
    assert done == Completed(code, "h\u00e9\u20ac", "it is broken\n")
    assert windows_shell.stream([PROGRAM], Deadline(20), print).stderr == "it is broken\n"
    asked = guest.script.asked[-2]
    assert asked.line == f'{PROGRAM} "a b"'
    assert (asked.skips_cmd, asked.codepage, asked.user) == (True, "65001", USER)


def test_a_command_gets_no_input_and_finds_it_at_its_end(guest, windows_shell):
    with pytest.raises(UsageError, match="cannot have input"):
        windows_shell.run([PROGRAM], Deadline(20), b"x")
    guest.script.on("it.exe", lambda asked: Answer(0, b"ended" + asked.stdin))
    assert windows_shell.run([PROGRAM], Deadline(20)).stdout == "ended"


def test_much_output_comes_whole(guest, windows_shell):
    guest.script.on("it.exe", stdout=b"o" * 2_000_000, stderr=b"e" * 1_000_000)
    done = windows_shell.run([PROGRAM], Deadline(20))
    assert (len(done.stdout), len(done.stderr)) == (2_000_000, 1_000_000)


def test_lines_are_passed_on_as_they_arrive(guest, windows_shell):
    gate = threading.Event()
    heard: list[bytes] = []

    def hear(line: bytes) -> None:
        heard.append(line)
        gate.set()  # only a line that came before the end lets it end

    pieces = [(b"one\r\ntw", b""), (b"o", b"err")]
    guest.script.on("it.exe", code=7, pieces=pieces, held=gate)
    done = windows_shell.stream([PROGRAM], Deadline(20), hear)
    assert heard == [b"one\r\n", b"two"]
    assert done == Completed(7, "", "err")


@pytest.mark.parametrize("case", TROUBLES, ids=named)
def test_a_service_error_is_retried_where_that_is_safe_and_else_reported(
    case, guest, windows_shell
):
    guest.script.on("it.exe", code=5, pieces=[(b"one ", b""), (b"two", b"")])
    for one in case.get("trouble", ()):
        guest.trouble(**one)
    for name, value in case.get("limits", {}).items():
        setattr(guest.service if name == "max_envelope" else guest.shells, name, value)
    words = [PROGRAM, "x" * 6_000]
    if "error" not in case:
        assert windows_shell.run(words, Deadline(20)) == Completed(5, "one two", "")
    else:
        kind = {**vars(_errors), **vars(shells), **vars(winrm)}[case["error"]]
        with pytest.raises(kind, match=case["said"]) as caught:
            windows_shell.run(words, Deadline(20))
        assert case.get("hint", "") in caught.value.hint
    assert guest.shells.verbs.count("Command") == case.get("commands", 1)
    assert len(guest.service.logins) >= case.get("logins", 1)
    assert not guest.shells.open


def test_a_command_that_is_silent_for_long_is_asked_again(guest, windows_shell):
    guest.shells.longest_wait = 0.05
    gate = threading.Event()
    guest.script.on("it.exe", stdout=b"at last", held=gate)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(windows_shell.run, [PROGRAM], Deadline(20))
        Deadline(10).wait("asking", lambda: guest.shells.verbs.count("Receive") > 4)
        gate.set()
        assert running.result().stdout == "at last"
    assert guest.lines() == [PROGRAM]


def test_the_deadline_ends_the_command_and_its_shell(guest, windows_shell):
    windows_shell.wait(Deadline(20))
    guest.script.on("it.exe", pieces=[(b"begun\r\n", b"")], held=threading.Event())
    with pytest.raises(DeadlineError, match=r"not done within 1.5 s, and ended.*'begun'"):
        windows_shell.run([PROGRAM], Deadline(1.5))
    assert guest.shells.signals == [PROGRAM]
    assert not guest.shells.open
    assert windows_shell.run(["cmd", "/d", "/c", "exit 0"], Deadline(20)).code == 0


def test_a_guest_that_answers_nothing_ends_at_the_deadline_too(guest, windows_shell):
    windows_shell.wait(Deadline(20))
    guest.trouble("Create", "held", gate=threading.Event())
    with pytest.raises(DeadlineError, match=r"no answer within 1 s from 127.0.0.1 port"):
        windows_shell.run([PROGRAM], Deadline(1))
    assert guest.lines() == ["C:\\Windows\\System32\\cmd.exe /d /c exit 0"]


def test_a_command_that_could_not_be_ended_is_reported_as_maybe_running(
    guest, windows_shell, monkeypatch
):
    monkeypatch.setattr(winrm, "CLEAN_SECONDS", 0.5)
    guest.script.on("it.exe", held=threading.Event())
    for action in ("Signal", "Signal", "Delete", "Delete"):
        guest.trouble(action, "status", code=503)
    with pytest.raises(DeadlineError, match="it may still be running"):
        windows_shell.run([PROGRAM], Deadline(1.2))
    guest.service.troubles.clear()
    guest.shells.forget()


def test_one_connection_is_kept_and_made_anew_where_it_was_closed_or_died(guest, windows_shell):
    guest.script.on("it.exe")
    for number, end in enumerate((windows_shell.close, guest.winrm.cut), start=1):
        for _ in range(3):
            windows_shell.run([PROGRAM], Deadline(20))
        assert guest.service.logins == ["NTLM"] * number
        end()
        Deadline(5).wait("closing", lambda: guest.winrm.connections() == 0)
    windows_shell.run([PROGRAM], Deadline(20))
    assert guest.service.logins == ["NTLM"] * 3
    assert guest.lines() == [PROGRAM] * 7


@contextmanager
def running(guest: Guest, shell: WindowsShell) -> Iterator[Future[Completed]]:
    """A command that runs while the service stops; the block starts it again, or does not."""
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(shell.run, [PROGRAM], Deadline(30))
        Deadline(10).wait("waiting for it to run", lambda: "Receive" in guest.shells.verbs)
        guest.winrm.stop()
        yield future
    assert guest.lines() == [PROGRAM]


def test_a_service_that_comes_back_and_remembers_is_listened_to(guest, windows_shell):
    gate = threading.Event()
    guest.script.on("it.exe", stdout=b"all of it", held=gate)
    with running(guest, windows_shell) as future:
        guest.winrm.start()
        gate.set()
        # It went without TLS's close: during a request, what it sent last may be lost.
        error = future.exception() or future.result().stdout
        assert error == "all of it" or "it has ended with exit code 0, but" in str(error)


def test_a_service_that_returns_without_its_shells_is_reported(guest, windows_shell):
    guest.script.on("it.exe", held=threading.Event())
    with running(guest, windows_shell) as future:
        guest.shells.forget()
        guest.winrm.start()
        with pytest.raises(ConnectionLostError, match="no longer knows the command"):
            future.result()


def test_a_service_that_stays_away_is_given_up(guest, windows_shell, monkeypatch):
    monkeypatch.setattr(winrm, "AWAY_SECONDS", 0.6)
    guest.script.on("it.exe", held=threading.Event())
    lost = pytest.raises(ConnectionLostError, match=r"refused, and not back within 0\.6 s")
    with running(guest, windows_shell) as future, lost:
        future.result()
    guest.shells.forget()


def test_another_password_is_refused_once_and_kept_out_of_the_message(guest, new_shell):
    shell = new_shell(password="other-secret")
    with pytest.raises(PasswordError, match=f"401: the password of user '{USER}'") as caught:
        shell.run([PROGRAM], Deadline(20))
    assert guest.service.refused == 1
    assert "other-secret" not in f"{caught.value} {shell!r}"
    assert not guest.lines()


# SECURITY.md: Connections are encrypted, and hosts are known beforehand.
def test_another_certificate_ends_it_before_a_password_is_sent(guest, new_shell):
    with pytest.raises(CertificateError, match="it shows the certificate") as caught:
        new_shell(certificate="ab" * 32).run([PROGRAM], Deadline(20))
    assert guest.certificate in str(caught.value)
    assert "ab" * 32 in str(caught.value)
    assert not guest.service.wire
    assert not guest.service.logins
    assert guest.service.refused == 0


def test_a_closed_port_and_one_without_tls_are_reported_at_once(guest, new_shell):
    for port, words in (
        (guest.ssh.port, "connected, but the TLS handshake failed"),
        (1, "refused"),
    ):
        with pytest.raises(UnreachableError, match=words):
            new_shell(port=port).run([PROGRAM], Deadline(20))


def test_threads_have_their_commands_at_the_same_time(guest, windows_shell):
    together = threading.Barrier(SESSIONS)

    def answer(request: Asked) -> Answer:
        together.wait(20)
        return Answer(0, request.line.encode())

    guest.script.on("it.exe", answer)
    with ThreadPoolExecutor(SESSIONS) as pool:
        given = [str(number) for number in range(SESSIONS)]
        done = list(pool.map(lambda n: windows_shell.run([PROGRAM, n], Deadline(30)), given))
    assert [one.stdout for one in done] == [f"{PROGRAM} {n}" for n in given]


def test_one_command_more_than_there_is_room_for_waits(guest, windows_shell):
    gate = threading.Event()
    guest.script.on("it.exe", held=gate)
    with ThreadPoolExecutor(SESSIONS) as pool:
        running = [pool.submit(windows_shell.run, [PROGRAM], Deadline(30)) for _ in range(SESSIONS)]
        Deadline(10).wait("waiting for all", lambda: len(guest.shells.commands()) == SESSIONS)
        with pytest.raises(DeadlineError, match=r"8 other commands ran there for 0.2 s"):
            windows_shell.run([PROGRAM], Deadline(0.2))
        gate.set()
        assert all(one.result().code == 0 for one in running)


def test_a_short_script_travels_on_the_command_line(guest, windows_shell):
    guest.script.on("Get-Thing", code=4, stdout=b"thing")
    assert windows_shell.powershell("Get-Thing '\u20ac'", Deadline(20)).code == 4
    asked = guest.script.asked[-1]
    assert asked.script.splitlines() == [
        "$ErrorActionPreference = 'Stop'",
        "$ProgressPreference = 'SilentlyContinue'",
        "$global:LASTEXITCODE = 0",
        "Get-Thing '\u20ac'",
        "exit $LASTEXITCODE",
    ]
    assert asked.line.endswith(f"-EncodedCommand {encoded(asked.script)}")
    assert len(asked.line) < 8_191


def test_a_long_script_travels_as_a_file_and_is_removed(guest, windows_shell):
    seen: list[bytes] = []

    def answer(request: Asked) -> Answer:
        seen.append((guest.folder / request.path.split("\\")[-1]).read_bytes())
        return Answer(3010, b"long")

    guest.script.on("Get-Thing", answer)
    script = "Get-Thing '\u20ac'\n" + "# and more of it\n" * 500
    assert windows_shell.powershell(script, Deadline(20)) == Completed(3010, "long", "")
    assert seen[0].startswith(b"\xef\xbb\xbf$ErrorActionPreference = 'Stop'\r\n")
    assert b"\r\nGet-Thing '\xe2\x82\xac'\r\n" in seen[0]
    assert "-EncodedCommand" not in guest.lines()[-1]
    assert not list(guest.folder.iterdir())


def test_without_pywinrm_the_extra_is_named(guest, windows_shell, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "winrm.protocol", None)
    with pytest.raises(PreflightError, match="pywinrm") as caught:
        windows_shell.run([PROGRAM], Deadline(20))
    assert caught.value.hint == "pip install 'hybridlab[windows]'"
    assert PASSWORD not in str(caught.value)
    assert not guest.lines()


# ---- waiting for a guest


def test_it_waits_until_both_let_it_in(guest, windows_shell):
    guest.stop()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(windows_shell.wait, Deadline(30))
        guest.winrm.start()
        Deadline(10).wait("waiting for WinRM", lambda: guest.service.logins)
        assert not waiting.done()
        guest.ssh.start()
        waiting.result()
    assert guest.ssh_service.logins


HARMS = {
    "WinRM: connection refused": lambda guest: guest.winrm.stop(),
    "WinRM: 'win1' answered only with HTTP status 503": lambda guest: [
        guest.trouble("Create", "status", code=503) for _ in range(40)
    ],
    "WinRM: a command ended with 1: double: unknown": lambda guest: guest.script.rules.clear(),
    "WinRM works; SSH: connection refused": lambda guest: guest.ssh.stop(),
}


@pytest.mark.parametrize("seen", HARMS)
def test_the_last_error_is_reported(seen, guest, windows_shell):
    HARMS[seen](guest)
    with pytest.raises(DeadlineError, match=f"last seen: .{seen}"):
        windows_shell.wait(Deadline(2))
    guest.service.troubles.clear()


def test_another_certificate_or_host_key_ends_it_at_once(guest, new_shell):
    with pytest.raises(CertificateError):
        new_shell(certificate="ab" * 32).wait(Deadline(60))
    own = guest.authorized.read_text().split()
    with pytest.raises(HostKeyError):
        new_shell(host_key=" ".join(own[:2])).wait(Deadline(60))
    assert not guest.ssh_service.logins


def test_a_refused_password_ends_it_before_the_account_is_locked(guest, new_shell, monkeypatch):
    monkeypatch.setattr(windows, "AGAIN_SECONDS", 0.02)
    with pytest.raises(DeadlineError, match='last seen: "WinRM: 401: the password of user'):
        new_shell(password="wrong").wait(Deadline(3))
    assert guest.service.refused == 1, "between refusals nothing is tried"
    guest.service.refused = 0
    monkeypatch.setattr(windows, "REFUSED_SECONDS", 0.05)
    with pytest.raises(PasswordError):
        new_shell(password="wrong").wait(Deadline(60))
    assert guest.service.refused == windows.REFUSALS < 10


def test_a_password_that_is_taken_later_is_enough(guest, windows_shell, monkeypatch):
    monkeypatch.setattr(windows, "REFUSED_SECONDS", 0.05)
    own, guest.service.password = guest.service.password, "not yet"
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(windows_shell.wait, Deadline(30))
        Deadline(10).wait("waiting for a refusal", lambda: guest.service.refused)
        guest.service.password = own
        waiting.result()
    assert 1 <= guest.service.refused < windows.REFUSALS
