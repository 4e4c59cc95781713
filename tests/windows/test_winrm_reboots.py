"""Reboots and their proof, as a double tells them: not Windows."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from double.guest import Guest
from double.script import Answer, Asked
from windows_guests import trouble

from lab._deadline import Deadline
from lab._errors import BrokenError, DeadlineError
from lab.remote import windows_steps as module
from lab.remote.windows import WindowsShell
from lab.remote.windows_steps import (
    Boot,
    boot,
    has_restarted,
    parse_boot,
    reboot,
    start_reboot,
    wait_for_reboot,
)


class Computer:
    """What a guest says of its boots; ``restarts`` is what a restart does."""

    def __init__(self, guest: Guest) -> None:
        self.guest = guest
        self.at, self.up = "2026-11-21T10:00:00.0000000Z", 5_000
        self.restarts: Callable[[], object] = self.start_anew
        guest.script.on("LastBootUpTime", self.told)
        guest.script.on("shutdown.exe", self.shut_down)

    def told(self, _: Asked) -> Answer:
        return Answer(0, f"{self.at} {self.up}\r\n".encode())

    def shut_down(self, _: Asked) -> Answer:
        self.restarts()
        return Answer(0)

    def start_anew(self) -> None:
        self.at, self.up = "2026-11-21T11:23:20.0000000Z", 0


@pytest.fixture
def computer(guest: Guest, monkeypatch: pytest.MonkeyPatch) -> Computer:
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.02)
    return Computer(guest)


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("2026-11-21T10:00:00.0000000Z 123\r\n", Boot("2026-11-21T10:00:00.0000000Z", 123, 7)),
        ("", None),
        ("2026-11-21T10:00:00.0000000Z", None),
        ("at noon or so", None),
        ("noon soon", None),
    ],
)
def test_a_boot_is_read_from_what_the_guest_says(text: str, read: Boot | None) -> None:
    assert parse_boot(text, 7) == read


@pytest.mark.parametrize(
    ("after", "proof"),
    [
        (Boot("later", 10, 1060), True),
        (Boot("later", 5060, 1060), False),
        (Boot("before", 5060, 1060), False),
        (Boot("before", 10, 1060), False),
    ],
    ids=["restarted", "clock was set", "nothing", "half of it"],
)
def test_a_restart_is_proved_by_boot_time_and_uptime(after: Boot, proof: bool) -> None:
    assert has_restarted(Boot("before", 5000, 1000), after) is proof


def test_a_machine_is_restarted_and_waited_for(
    computer: Computer, windows_shell: WindowsShell
) -> None:
    reboot(windows_shell, Deadline(30))
    asked = [one.line.split()[0] for one in computer.guest.script.asked]
    assert asked.count("C:\\Windows\\System32\\shutdown.exe") == 1
    assert computer.guest.ssh_service.logins


def test_a_connection_that_is_lost_to_the_restart_is_no_error(
    computer: Computer, windows_shell: WindowsShell
) -> None:
    def die() -> None:
        computer.start_anew()
        computer.guest.shells.forget()
        trouble(computer.guest, "Receive", "reset")

    computer.restarts = die
    reboot(windows_shell, Deadline(30))


def test_a_machine_that_does_not_restart_is_said_to_be_up_since_before(
    computer: Computer, windows_shell: WindowsShell
) -> None:
    computer.restarts = lambda: None
    with pytest.raises(DeadlineError, match=r"still up since 2026-11-21T10:00:00.0000000Z"):
        reboot(windows_shell, Deadline(1.5))


def test_a_clock_that_is_set_is_no_restart(computer: Computer, windows_shell: WindowsShell) -> None:
    computer.restarts = lambda: setattr(computer, "at", "2026-11-21T10:00:07.0000000Z")
    with pytest.raises(DeadlineError, match=r"still up since 2026-11-21T10:00:07"):
        reboot(windows_shell, Deadline(1.5))


def test_a_machine_that_stays_away_is_said_with_what_was_seen_last(
    computer: Computer, windows_shell: WindowsShell
) -> None:
    stopped = threading.Thread(target=computer.guest.winrm.stop)
    computer.restarts = stopped.start
    before = boot(windows_shell, Deadline(20))
    start_reboot(windows_shell, Deadline(2))
    stopped.join()
    computer.guest.shells.forget()
    with pytest.raises(DeadlineError, match=r"waiting for 'win1' to restart: .*connection refused"):
        wait_for_reboot(windows_shell, before, Deadline(1))


def test_a_machine_that_refuses_to_restart_is_said(
    guest: Guest, windows_shell: WindowsShell
) -> None:
    guest.script.on("LastBootUpTime", stdout=b"2026-11-21T10:00:00.0000000Z 9\r\n")
    guest.script.on("shutdown.exe", code=5, stderr=b"Access is denied.(5)\r\n")
    with pytest.raises(BrokenError, match=r"shutdown.exe ended with 5: Access is denied"):
        reboot(windows_shell, Deadline(20))


def test_a_machine_that_cannot_say_when_it_started_is_said(
    guest: Guest, windows_shell: WindowsShell
) -> None:
    guest.script.on("LastBootUpTime", code=1, stderr=b"no CIM")
    with pytest.raises(BrokenError, match="reading when 'win1' was started: it printed 'no CIM'"):
        reboot(windows_shell, Deadline(20))
