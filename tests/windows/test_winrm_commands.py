"""Commands on a guest over WinRM, as a double answers: not Windows."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from double.guest import PASSWORD, USER, Guest
from double.script import Answer, Asked
from windows_guests import encoded, lines, trouble

from lab._deadline import Deadline
from lab._errors import BrokenError, DeadlineError, PreflightError, UsageError
from lab.remote.shell import Completed, ConnectionLostError, UnreachableError
from lab.remote.transport import SESSIONS
from lab.remote.windows import WindowsShell
from lab.remote.winrm import CertificateError, FaultError, PasswordError

PROGRAM = "C:\\tools\\it.exe"
CLIXML = (
    b'#< CLIXML\r\n<Objs Version="1.1.0.1" xmlns="http://schemas.microsoft.com/powershell/2004/04">'
    b'<Obj S="progress" RefId="0"><MS><S N="Activity">Loading</S></MS></Obj>'
    b'<S S="Error">it is broken_x000D__x000A_</S></Objs>'
)


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


def test_lines_are_told_as_they_come(guest, windows_shell):
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


def test_a_command_that_is_silent_for_long_is_asked_again(guest, windows_shell):
    guest.shells.longest_wait = 0.05
    gate = threading.Event()
    guest.script.on("it.exe", stdout=b"at last", held=gate)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(windows_shell.run, [PROGRAM], Deadline(20))
        Deadline(10).wait("asking", lambda: guest.shells.verbs.count("Receive") > 4)
        gate.set()
        assert running.result().stdout == "at last"
    assert lines(guest) == [PROGRAM]


def test_the_deadline_ends_the_command_and_its_shell(guest, new_windows_shell):
    shell = new_windows_shell(guest)
    shell.wait(Deadline(20))
    guest.script.on("it.exe", pieces=[(b"begun\r\n", b"")], held=threading.Event())
    with pytest.raises(DeadlineError, match=r"not done within 1.5 s, and ended.*'begun'"):
        shell.run([PROGRAM], Deadline(1.5))
    assert guest.shells.signals == [PROGRAM]
    assert not guest.shells.open
    assert shell.run(["cmd", "/d", "/c", "exit 0"], Deadline(20)).code == 0


def test_a_guest_that_answers_nothing_ends_at_the_deadline_too(guest, windows_shell):
    windows_shell.wait(Deadline(20))
    trouble(guest, "Create", "held", gate=threading.Event())
    with pytest.raises(DeadlineError, match=r"no answer within 1 s from 127.0.0.1 port"):
        windows_shell.run([PROGRAM], Deadline(1))
    assert lines(guest) == ["C:\\Windows\\System32\\cmd.exe /d /c exit 0"]


def test_a_command_that_could_not_be_ended_is_said_to_run_perhaps(
    guest, windows_shell, monkeypatch
):
    monkeypatch.setattr("lab.remote.winrm.CLEAN_SECONDS", 0.5)
    guest.script.on("it.exe", held=threading.Event())
    for action in ("Signal", "Signal", "Delete", "Delete"):
        trouble(guest, action, "status", code=503)
    with pytest.raises(DeadlineError, match="it may still be running"):
        windows_shell.run([PROGRAM], Deadline(1.2))
    guest.service.troubles.clear()
    guest.shells.forget()


def test_a_connection_that_is_closed_while_nothing_was_said_is_made_anew(guest, new_windows_shell):
    guest.script.on("it.exe", code=5, pieces=[(b"one ", b""), (b"two", b"")])
    trouble(guest, "Receive", "drop")
    assert new_windows_shell(guest).run([PROGRAM], Deadline(20)) == Completed(5, "one two", "")
    assert lines(guest) == [PROGRAM]


@pytest.mark.parametrize("kind", ["ragged", "reset", "part"])
def test_output_that_may_have_been_lost_is_said_with_the_exit_code(guest, windows_shell, kind):
    guest.script.on("it.exe", code=5, pieces=[(b"one ", b""), (b"two", b"")])
    trouble(guest, "Receive", kind, after=True)
    with pytest.raises(
        ConnectionLostError, match=r"ended with exit code 5, but the connection broke"
    ):
        windows_shell.run([PROGRAM], Deadline(20))
    assert lines(guest) == [PROGRAM]


@pytest.mark.parametrize("after", [False, True], ids=["not begun", "begun"])
@pytest.mark.parametrize("kind", ["drop", "reset"])
def test_a_command_that_may_have_begun_is_never_begun_again(guest, new_windows_shell, kind, after):
    guest.script.on("it.exe")
    trouble(guest, "Command", kind, after=after)
    with pytest.raises(ConnectionLostError, match="the command may have started"):
        new_windows_shell(guest).run([PROGRAM], Deadline(20))
    assert guest.shells.verbs.count("Command") == int(after)
    assert not guest.shells.open


@pytest.mark.parametrize("kind", ["drop", "reset"])
def test_before_the_command_a_lost_connection_is_made_anew(guest, windows_shell, kind):
    guest.script.on("it.exe", stdout=b"ran")
    trouble(guest, "Create", kind)
    assert windows_shell.run([PROGRAM], Deadline(20)).stdout == "ran"


def test_one_connection_is_kept_and_made_anew_where_it_was_closed_or_died(guest, new_windows_shell):
    shell = new_windows_shell(guest)
    guest.script.on("it.exe")
    for number, end in enumerate((shell.close, guest.winrm.cut), start=1):
        for _ in range(3):
            shell.run([PROGRAM], Deadline(20))
        assert guest.service.logins == ["NTLM"] * number
        end()
        Deadline(5).wait("closing", lambda: guest.winrm.connections() == 0)
    shell.run([PROGRAM], Deadline(20))
    assert guest.service.logins == ["NTLM"] * 3
    assert lines(guest) == [PROGRAM] * 7


@contextmanager
def running(guest: Guest, shell: WindowsShell) -> Iterator[Future[Completed]]:
    """A command that runs while the service stops; the block starts it again, or does not."""
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(shell.run, [PROGRAM], Deadline(30))
        Deadline(10).wait("waiting for it to run", lambda: "Receive" in guest.shells.verbs)
        guest.winrm.stop()
        yield future
    assert lines(guest) == [PROGRAM]


def test_a_service_that_comes_back_and_remembers_is_listened_to(guest, windows_shell):
    gate = threading.Event()
    guest.script.on("it.exe", stdout=b"all of it", held=gate)
    with running(guest, windows_shell) as future:
        guest.winrm.start()
        gate.set()
        # It went without TLS's close: during a request, what it sent last may be lost.
        said = future.exception() or future.result().stdout
        assert said == "all of it" or "it has ended with exit code 0, but" in str(said)


def test_a_service_that_comes_back_and_has_forgotten_is_said(guest, windows_shell):
    guest.script.on("it.exe", held=threading.Event())
    with running(guest, windows_shell) as future:
        guest.shells.forget()
        guest.winrm.start()
        with pytest.raises(ConnectionLostError, match="no longer knows the command"):
            future.result()


def test_a_service_that_stays_away_is_given_up(guest, windows_shell, monkeypatch):
    monkeypatch.setattr("lab.remote.winrm.AWAY_SECONDS", 0.6)
    guest.script.on("it.exe", held=threading.Event())
    with (
        running(guest, windows_shell) as future,
        pytest.raises(ConnectionLostError, match=r"connection refused, and not back within 0\.6 s"),
    ):
        future.result()
    guest.shells.forget()


@pytest.mark.parametrize(
    ("limits", "words", "hint"),
    [
        ({"max_envelope": 5_000}, "413: 'win1' does not accept messages of that", "in a file"),
        ({"max_shells": 0}, "maximum number of 0 concurrent shells", "MaxShellsPerUser"),
        ({"max_commands": 0}, "maximum number of 0 concurrent operations", "MaxShellsPerUser"),
    ],
)
def test_a_limit_of_the_service_is_said_with_its_cure(limits, words, hint, guest, windows_shell):
    guest.script.on("it.exe")
    for name, value in limits.items():
        setattr(guest.service if name == "max_envelope" else guest.shells, name, value)
    with pytest.raises(FaultError, match=words) as caught:
        windows_shell.run([PROGRAM, "x" * 10_000], Deadline(20))
    assert hint in caught.value.hint
    assert not guest.shells.open


@pytest.mark.parametrize(
    ("action", "trouble_of_it", "words"),
    [
        ("Create", {"kind": "status", "code": 500}, "answered only with HTTP status 500"),
        ("Create", {"kind": "status", "code": 503}, "answered only with HTTP status 503"),
        *(
            (one, {"kind": "garbage"}, "not speak WinRM")
            for one in ("Create", "Command", "Receive")
        ),
    ],
)
def test_a_reply_without_words_is_said(action, trouble_of_it, words, guest, windows_shell):
    guest.script.on("it.exe", held=threading.Event())
    trouble(guest, action, **trouble_of_it)
    with pytest.raises(BrokenError, match=words):
        windows_shell.run([PROGRAM], Deadline(20))


def test_another_password_is_refused_once_and_kept_out_of_the_message(guest, new_windows_shell):
    shell = new_windows_shell(guest, password="other-secret")
    with pytest.raises(PasswordError, match=f"401: the password of user '{USER}'") as caught:
        shell.run([PROGRAM], Deadline(20))
    assert guest.service.refused == 1
    assert "other-secret" not in f"{caught.value} {shell!r}"
    assert not lines(guest)


# SECURITY.md: Connections are encrypted, and hosts are known beforehand.
def test_another_certificate_ends_it_before_a_password_is_sent(guest, new_windows_shell):
    shell = new_windows_shell(guest, certificate="ab" * 32)
    with pytest.raises(CertificateError, match="it shows the certificate") as caught:
        shell.run([PROGRAM], Deadline(20))
    assert guest.certificate in str(caught.value)
    assert "ab" * 32 in str(caught.value)
    assert not guest.service.wire
    assert not guest.service.logins
    assert guest.service.refused == 0


def test_a_guest_that_wants_to_be_told_the_password_anew_is(guest, windows_shell):
    guest.script.on("it.exe", stdout=b"in")
    trouble(guest, "Receive", "status", code=401)
    assert windows_shell.run([PROGRAM], Deadline(20)).stdout == "in"
    assert guest.service.logins == ["NTLM", "NTLM"]


def test_nobody_listening_and_a_port_without_tls_are_said_at_once(guest, new_windows_shell):
    with pytest.raises(UnreachableError, match="connected, but the TLS handshake failed"):
        new_windows_shell(guest, port=guest.ssh.port).run([PROGRAM], Deadline(20))
    guest.winrm.stop()
    with pytest.raises(UnreachableError, match="connection refused"):
        new_windows_shell(guest).run([PROGRAM], Deadline(20))


def test_threads_have_their_commands_at_the_same_time(guest, new_windows_shell):
    together = threading.Barrier(SESSIONS)

    def answer(asked: Asked) -> Answer:
        together.wait(20)
        return Answer(0, asked.line.encode())

    guest.script.on("it.exe", answer)
    shell = new_windows_shell(guest)
    with ThreadPoolExecutor(SESSIONS) as pool:
        given = [str(number) for number in range(SESSIONS)]
        done = list(pool.map(lambda n: shell.run([PROGRAM, n], Deadline(30)), given))
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

    def answer(asked: Asked) -> Answer:
        seen.append((guest.root / "C" / "hybridlab" / asked.path.split("\\")[-1]).read_bytes())
        return Answer(3010, b"long")

    guest.script.on("Get-Thing", answer)
    script = "Get-Thing '\u20ac'\n" + "# and more of it\n" * 500
    assert windows_shell.powershell(script, Deadline(20)) == Completed(3010, "long", "")
    assert seen[0].startswith(b"\xef\xbb\xbf$ErrorActionPreference = 'Stop'\r\n")
    assert b"\r\nGet-Thing '\xe2\x82\xac'\r\n" in seen[0]
    assert "-EncodedCommand" not in lines(guest)[-1]
    assert not list((guest.root / "C" / "hybridlab").iterdir())


def test_without_pywinrm_the_extra_is_named(guest, windows_shell, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "winrm.protocol", None)
    with pytest.raises(PreflightError, match="pywinrm") as caught:
        windows_shell.run([PROGRAM], Deadline(20))
    assert caught.value.hint == "pip install 'hybridlab[windows]'"
    assert PASSWORD not in str(caught.value)
    assert not lines(guest)
