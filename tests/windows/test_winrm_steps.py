"""Steps on a guest, as a double answers them: not Windows, and no PowerShell."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from double.guest import Guest
from double.script import Answer, Asked
from windows_guests import lines

from lab._deadline import Deadline
from lab._errors import UsageError
from lab.remote import windows_steps as reboots
from lab.remote.shell import Completed
from lab.remote.windows import WindowsShell
from lab.remote.windows_steps import (
    StepError,
    StepResult,
    parse_result,
    run_step,
    run_step_and_reboot,
)

SCRIPT, MODULE = b"# a step\r\n", b"# a module\r\n"
COMMAND = (
    "C:\\Windows\\System32\\WindowsPowerShell\\v1.0\\powershell.exe -NoProfile -NonInteractive "
    "-ExecutionPolicy Bypass -File C:\\hybridlab\\time-zone.ps1 "
    "-Settings C:\\hybridlab\\time-zone.json"
)


def told(**changes: object) -> bytes:
    facts = {"step": "time-zone", "changed": True, "reboot": False, "facts": {"zone": "UTC"}}
    return json.dumps({**facts, **changes}).encode() + b"\r\n"


def test_a_step_is_sent_and_run_and_its_settings_are_removed(
    guest: Guest, windows_shell: WindowsShell
) -> None:
    folder = guest.root / "C" / "hybridlab"
    seen: dict[str, bytes] = {}

    def answer(_: Asked) -> Answer:
        seen.update({path.name: path.read_bytes() for path in folder.iterdir()})
        return Answer(0, b"chatter\r\n" + told())

    guest.script.on("time-zone.ps1", answer)
    given = {"zone": "UTC", "secret": "\u00e9"}
    for _ in range(2):
        result = run_step(windows_shell, SCRIPT, MODULE, "time-zone", given, Deadline(30))
        assert result == StepResult("time-zone", changed=True, reboot=False, facts={"zone": "UTC"})
    assert seen["time-zone.ps1"] == SCRIPT
    assert seen["hybridlab.psm1"] == MODULE
    assert json.loads(seen["time-zone.json"].decode("ascii")) == given
    assert lines(guest) == [COMMAND] * 2
    assert {path.name for path in folder.iterdir()} == {"time-zone.ps1", "hybridlab.psm1"}


def test_the_settings_of_a_step_that_fails_are_removed_too(
    guest: Guest, windows_shell: WindowsShell
) -> None:
    guest.script.on("time-zone.ps1", code=1, stdout=b'{"step": "time-zone", "error": "no zone"}\n')
    with pytest.raises(
        StepError, match=r"running step 'time-zone' on 'win1': .*: no zone"
    ) as caught:
        run_step(windows_shell, SCRIPT, MODULE, "time-zone", {"a": "secret"}, Deadline(30))
    assert "C:\\hybridlab\\log\\time-zone.log" in caught.value.hint
    assert not Path(guest.root / "C" / "hybridlab" / "time-zone.json").exists()


def test_a_step_that_needs_a_reboot_gets_one(
    guest: Guest, windows_shell: WindowsShell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reboots, "LOOK_SECONDS", 0.02)
    boots = [b"2026-11-21T10:00:00Z 5000", b"2026-11-21T11:00:00Z 0"]
    guest.script.on("LastBootUpTime", lambda _: Answer(0, boots[0]))
    guest.script.on("shutdown.exe", lambda _: Answer(0, boots.pop(0)[:0]))
    guest.script.on("time-zone.ps1", code=3010, stdout=told(reboot=True))
    result = run_step_and_reboot(windows_shell, SCRIPT, MODULE, "time-zone", {}, Deadline(30))
    assert result.reboot
    assert len(boots) == 1


def test_a_step_that_needs_no_reboot_gets_none(guest: Guest, windows_shell: WindowsShell) -> None:
    guest.script.on("LastBootUpTime", stdout=b"2026-11-21T10:00:00Z 5000")
    guest.script.on("time-zone.ps1", stdout=told())
    assert not run_step_and_reboot(
        windows_shell, SCRIPT, MODULE, "time-zone", {}, Deadline(30)
    ).reboot


def test_a_step_s_name_is_no_path(guest: Guest, windows_shell: WindowsShell) -> None:
    with pytest.raises(UsageError):
        run_step(windows_shell, SCRIPT, MODULE, "..\\x", {}, Deadline(30))
    assert not guest.ssh_service.logins


@pytest.mark.parametrize(
    ("done", "words"),
    [
        (Completed(1, '{"step":"s","error":"it broke"}\r\n', ""), "exit code 1: it broke"),
        (Completed(1, "", "At line 3: oh\n"), "exit code 1: At line 3: oh"),
        (Completed(1, "", ""), "exit code 1: it printed nothing"),
        (Completed(0, "", ""), "its last line is not a result of that step: it printed nothing"),
        (Completed(0, "chatter\n", ""), "its last line is not a result of that step: chatter"),
        (Completed(0, "[1]\n", ""), "is not a result of that step"),
        (Completed(0, '{"step":"other","changed":true}', ""), "is not a result of that step"),
        (Completed(0, '{"step":"s","error":"oh"}', ""), "is not a result of that step"),
        (
            Completed(0, '{"step":"s","changed":"yes","reboot":false,"facts":{}}', ""),
            "not in the format",
        ),
        (
            Completed(0, '{"step":"s","changed":true,"reboot":false,"facts":[]}', ""),
            "not in the format",
        ),
        (
            Completed(0, '{"step":"s","changed":true,"reboot":true,"facts":{}}', ""),
            "'reboot': true",
        ),
        (
            Completed(3010, '{"step":"s","changed":true,"reboot":false,"facts":{}}', ""),
            "'reboot': false, but its exit code is 3010",
        ),
    ],
)
def test_what_is_no_result_is_said(done: Completed, words: str) -> None:
    with pytest.raises(StepError) as caught:
        parse_result("running step 's'", "s", done)
    assert words in caught.value.happened


def test_the_last_line_counts_and_a_byte_order_mark_does_not() -> None:
    text = '\ufeff{"step":"s","changed":false,"reboot":true,"facts":{"n":1}}\r\n\r\n'
    done = Completed(3010, text, "")
    assert parse_result("x", "s", done) == StepResult(
        "s", changed=False, reboot=True, facts={"n": 1}
    )
