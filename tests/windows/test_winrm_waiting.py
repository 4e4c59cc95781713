"""Waiting for a guest: how far the last try got, and what no waiting mends. Not Windows."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from double.guest import Guest
from windows_guests import NewGuest, NewShell, trouble

from lab._deadline import Deadline
from lab._errors import DeadlineError
from lab.remote import windows
from lab.remote.shell import HostKeyError
from lab.remote.windows import WindowsShell
from lab.remote.winrm import CertificateError, PasswordError


def test_it_waits_until_both_let_it_in(guest: Guest, new_windows_shell: NewShell) -> None:
    guest.stop()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(new_windows_shell(guest).wait, Deadline(30))
        guest.winrm.start()
        Deadline(10).wait("waiting for WinRM", lambda: guest.service.logins)
        assert not waiting.done()
        guest.ssh.start()
        waiting.result()
    assert guest.ssh_service.logins


def test_nobody_listening_is_what_it_saw_last(guest: Guest, windows_shell: WindowsShell) -> None:
    guest.winrm.stop()
    with pytest.raises(DeadlineError, match="last seen: 'WinRM: connection refused'"):
        windows_shell.wait(Deadline(0.5))


def test_a_handshake_that_breaks_off_is_what_it_saw_last(
    new_guest: NewGuest, new_windows_shell: NewShell
) -> None:
    shell = new_windows_shell(new_guest(encrypted=False), certificate="ab" * 32)
    with pytest.raises(DeadlineError, match=r"last seen: .WinRM: connected, but the TLS handshake"):
        shell.wait(Deadline(0.5))


def test_a_service_that_is_not_ready_is_what_it_saw_last(
    guest: Guest, windows_shell: WindowsShell
) -> None:
    for _ in range(40):
        trouble(guest, "Create", "status", code=503)
    with pytest.raises(DeadlineError, match="WinRM: 'win1' answered only with HTTP status 503"):
        windows_shell.wait(Deadline(0.6))
    guest.service.troubles.clear()


def test_a_command_that_fails_is_what_it_saw_last(
    guest: Guest, windows_shell: WindowsShell
) -> None:
    guest.script.rules.clear()
    with pytest.raises(DeadlineError, match="WinRM: a command ended with 1: double: unknown"):
        windows_shell.wait(Deadline(0.5))


def test_ssh_that_does_not_listen_is_what_it_saw_last(
    guest: Guest, windows_shell: WindowsShell
) -> None:
    guest.ssh.stop()
    with pytest.raises(DeadlineError, match="last seen: 'WinRM works; SSH: connection refused'"):
        windows_shell.wait(Deadline(0.5))


def test_another_certificate_ends_it_at_once(guest: Guest, new_windows_shell: NewShell) -> None:
    with pytest.raises(CertificateError):
        new_windows_shell(guest, certificate="ab" * 32).wait(Deadline(60))


def test_another_host_key_ends_it_at_once(guest: Guest, new_windows_shell: NewShell) -> None:
    own = (guest.keyfile.parent / "authorized_keys").read_text().split()
    with pytest.raises(HostKeyError):
        new_windows_shell(guest, host_key=" ".join(own[:2])).wait(Deadline(60))


def test_a_refused_password_ends_it_before_the_account_is_locked(
    guest: Guest, new_windows_shell: NewShell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(windows, "REFUSED_SECONDS", 0.05)
    with pytest.raises(PasswordError):
        new_windows_shell(guest, password="wrong").wait(Deadline(60))
    assert guest.service.refused == windows.REFUSALS < 10


def test_between_refusals_nothing_is_tried(guest: Guest, new_windows_shell: NewShell) -> None:
    with pytest.raises(DeadlineError, match='last seen: "WinRM: 401: the password of user'):
        new_windows_shell(guest, password="wrong").wait(Deadline(1))
    assert guest.service.refused == 1


def test_a_password_that_is_taken_later_is_enough(
    guest: Guest, windows_shell: WindowsShell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(windows, "REFUSED_SECONDS", 0.05)
    own, guest.service.password = guest.service.password, "not yet"
    refused = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(windows_shell.wait, Deadline(30))
        Deadline(10).wait("waiting for a refusal", lambda: guest.service.refused)
        guest.service.password = own
        refused.set()
        waiting.result()
    assert 1 <= guest.service.refused < windows.REFUSALS
