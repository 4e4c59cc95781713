"""Steps and step_runner on a guest, as a double answers them: not Windows, and no PowerShell."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable

import pytest
from double.script import Answer, Asked
from tables import table
from windows_guests import Guest

from lab._deadline import Deadline
from lab._errors import BrokenError, DeadlineError, UsageError
from lab.shells.shell import Completed
from lab.windows import step_runner
from lab.windows.step_runner import (
    Boot,
    StepError,
    StepResult,
    boot,
    parse_result,
    reboot,
    run_step,
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


def test_a_step_is_sent_and_run_and_its_settings_are_removed(guest, windows_shell):
    folder = guest.folder
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
    assert guest.lines() == [COMMAND] * 2
    assert {path.name for path in folder.iterdir()} == {"time-zone.ps1", "hybridlab.psm1"}


def test_the_settings_of_a_step_that_fails_are_removed_too(guest, windows_shell):
    guest.script.on("time-zone.ps1", code=1, stdout=b'{"step": "time-zone", "error": "no zone"}\n')
    with pytest.raises(
        StepError, match=r"running step 'time-zone' on 'win1': .*: no zone"
    ) as caught:
        run_step(windows_shell, SCRIPT, MODULE, "time-zone", {"a": "secret"}, Deadline(30))
    assert "C:\\hybridlab\\log\\time-zone.log" in caught.value.hint
    assert not (guest.folder / "time-zone.json").exists()


def test_a_step_s_name_is_no_path(guest, windows_shell):
    with pytest.raises(UsageError):
        run_step(windows_shell, SCRIPT, MODULE, "..\\x", {}, Deadline(30))
    assert not guest.ssh_service.logins


@pytest.mark.parametrize("case", table("no-results"))
def test_output_without_a_result_is_reported(case):
    done = Completed(case["code"], case.get("out", ""), case.get("err", ""))
    with pytest.raises(StepError) as caught:
        parse_result("running step 's'", "s", done)
    assert case["said"] in caught.value.happened


def test_the_last_line_counts_and_a_byte_order_mark_does_not():
    text = '\ufeff{"step":"s","changed":false,"reboot":true,"facts":{"n":1}}\r\n\r\n'
    done = Completed(3010, text, "")
    assert parse_result("x", "s", done) == StepResult(
        "s", changed=False, reboot=True, facts={"n": 1}
    )


class Computer:
    """What a guest says of its boots; ``restarts`` is what a restart does."""

    def __init__(self, guest: Guest) -> None:
        self.guest = guest
        self.told, self.count = "2026-11-21T10:00:00.0000000Z 5000", 0
        self.restarts: Callable[[], object] = self.start_anew
        guest.script.on("LastBootUpTime", lambda _: Answer(0, f"{self.told}\r\n".encode()))
        guest.script.on("shutdown.exe", self.shut_down)

    def shut_down(self, _: Asked) -> Answer:
        self.count += 1
        self.restarts()
        return Answer(0)

    def start_anew(self) -> None:
        self.told = "2026-11-21T11:23:20.0000000Z 0"


@pytest.fixture
def computer(guest, monkeypatch):
    monkeypatch.setattr(step_runner, "LOOK_SECONDS", 0.02)
    return Computer(guest)


@pytest.mark.parametrize("asks", [True, False])
def test_a_step_gets_the_reboot_that_it_asks_for_and_no_other(asks, computer, windows_shell):
    out = told(reboot=asks)
    computer.guest.script.on("time-zone.ps1", code=3010 if asks else 0, stdout=out)
    result = run_step(windows_shell, SCRIPT, MODULE, "time-zone", {}, Deadline(30), restarts=True)
    assert result.reboot is asks
    assert computer.count == asks


def test_the_boot_time_is_read_from_the_guests_output():
    at = "2026-11-21T10:00:00.0000000Z"
    assert step_runner.parse_boot(f"{at} 123\r\n", 7) == Boot(at, 123, 7)
    assert {step_runner.parse_boot(text, 7) for text in ("", at, "at noon or so", "noon soon")} == {
        None
    }


def test_a_restart_is_proved_by_boot_time_and_uptime():
    before = Boot("before", 5000, 1000)
    assert step_runner.has_restarted(before, Boot("later", 10, 1060))
    assert not step_runner.has_restarted(before, Boot("later", 5060, 1060)), "the clock was set"
    assert not step_runner.has_restarted(before, Boot("before", 5060, 1060))
    assert not step_runner.has_restarted(before, Boot("before", 10, 1060))


def test_a_connection_that_is_lost_to_the_restart_is_no_error(computer, windows_shell):
    def die() -> None:
        computer.start_anew()
        computer.guest.shells.forget()
        computer.guest.trouble("Receive", "reset")

    computer.restarts = die
    reboot(windows_shell, Deadline(30))
    assert computer.count == 1
    assert computer.guest.ssh_service.logins


@pytest.mark.parametrize("at", ["2026-11-21T10:00:00.0000000Z", "2026-11-21T10:00:07.0000000Z"])
def test_a_machine_that_does_not_restart_is_reported_with_its_earlier_boot(
    at, computer, windows_shell
):
    """Also one whose clock is set meanwhile."""
    computer.restarts = lambda: setattr(computer, "told", f"{at} 5000")
    before = boot(windows_shell, Deadline(20))
    step_runner.start_reboot(windows_shell, Deadline(20))
    with pytest.raises(DeadlineError, match=f"still up since {at}"):
        step_runner.wait_for_reboot(windows_shell, before, Deadline(1))


def test_a_machine_that_stays_away_is_reported_with_the_last_error(computer, windows_shell):
    stopped = threading.Thread(target=computer.guest.winrm.stop)
    computer.restarts = stopped.start
    before = boot(windows_shell, Deadline(20))
    step_runner.start_reboot(windows_shell, Deadline(2))
    stopped.join()
    computer.guest.shells.forget()
    with pytest.raises(DeadlineError, match=r"waiting for 'win1' to restart: .*connection refused"):
        step_runner.wait_for_reboot(windows_shell, before, Deadline(1))


def test_a_refused_restart_or_an_unknown_boot_time_is_reported(guest, windows_shell):
    guest.script.on("LastBootUpTime", stdout=b"2026-11-21T10:00:00.0000000Z 9\r\n")
    guest.script.on("shutdown.exe", code=5, stderr=b"Access is denied.(5)\r\n")
    with pytest.raises(BrokenError, match=r"shutdown.exe ended with 5: Access is denied"):
        reboot(windows_shell, Deadline(20))
    guest.script.rules.clear()
    guest.script.on("LastBootUpTime", code=1, stderr=b"no CIM")
    with pytest.raises(BrokenError, match="reading when 'win1' was started: it printed 'no CIM'"):
        reboot(windows_shell, Deadline(20))
