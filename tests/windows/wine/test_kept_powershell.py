"""The PowerShell that is kept: scripts one after another, and callers that go away."""

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread

import pytest

from lab.windows.wine.runtime import powershell
from lab.windows.wine.runtime.powershell import Script, ask

SECONDS = 30.0


@contextmanager
def kept(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[socket.socket, Thread]]:
    """The far end of the service's PowerShell, and the thread that serves."""
    place = directory / "powershell.socket"
    monkeypatch.setattr(powershell, "SOCKET", str(place))
    monkeypatch.setattr(powershell, "_IDLE_SECONDS", SECONDS)
    ours, theirs = socket.socketpair()
    theirs.settimeout(SECONDS)
    with socket.socket(socket.AF_UNIX) as listening, ours:
        listening.bind(str(place))
        listening.listen()
        thread = Thread(target=powershell._serve, args=(listening, ours), daemon=True)
        thread.start()
        with theirs:
            yield theirs, thread
        with suppress(OSError), socket.socket(socket.AF_UNIX) as caller:  # to see that it is gone
            caller.connect(str(place))
        thread.join(SECONDS)


def answer_scripts(channel: socket.socket, count: int) -> None:
    """Answer each question with its path as the output."""
    with channel.makefile(encoding="utf-8") as lines:
        for _ in range(count):
            question = json.loads(lines.readline())
            answer = {"code": 3, "output": question["path"], "errors": question["settings"]}
            channel.sendall(json.dumps(answer).encode() + b"\n")


def test_scripts_are_answered_one_after_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with kept(tmp_path, monkeypatch) as (channel, _):
        answering = Thread(target=answer_scripts, args=(channel, 2), daemon=True)
        answering.start()
        for path in ("C:\\a.ps1", "C:\\b.ps1"):
            answer = {"code": 3, "output": path, "errors": "C:\\s.json"}
            assert ask(Script(path, "C:\\s.json")) == answer
        answering.join(SECONDS)


def test_a_caller_that_goes_away_ends_the_powershell_that_works_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with kept(tmp_path, monkeypatch) as (channel, thread):
        with socket.socket(socket.AF_UNIX) as caller:
            caller.connect(powershell.SOCKET)
            caller.sendall(b'{"path": "C:\\\\a.ps1", "settings": ""}\n')
            assert channel.recv(1) == b"{"
        thread.join(SECONDS)
        assert not thread.is_alive()


def test_without_one_the_script_is_run_by_a_powershell_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(powershell, "SOCKET", str(tmp_path / "none"))
    assert ask(Script("C:\\a.ps1")) is None


def test_a_script_that_had_begun_is_not_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def end_at_the_question(channel: socket.socket) -> None:
        channel.recv(1)
        channel.close()

    with kept(tmp_path, monkeypatch) as (channel, _):
        ending = Thread(target=end_at_the_question, args=(channel,), daemon=True)
        ending.start()
        answer = ask(Script("C:\\a.ps1"))
        ending.join(SECONDS)
    assert answer is not None
    assert (answer["code"], answer["output"]) == (1, "")
    assert "not known how far it got" in str(answer["errors"])


def test_a_powershell_that_ended_before_the_script_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with kept(tmp_path, monkeypatch) as (channel, _):
        channel.close()
        assert ask(Script("C:\\a.ps1")) is None
