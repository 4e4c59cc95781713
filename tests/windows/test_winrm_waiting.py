"""Waiting for a guest: how far the last try got, and what no waiting mends. Not Windows."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from windows_guests import trouble

from lab._deadline import Deadline
from lab._errors import DeadlineError
from lab.remote import windows
from lab.remote.shell import HostKeyError
from lab.remote.winrm import CertificateError, PasswordError


def test_it_waits_until_both_let_it_in(guest, new_windows_shell):
    guest.stop()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(new_windows_shell(guest).wait, Deadline(30))
        guest.winrm.start()
        Deadline(10).wait("waiting for WinRM", lambda: guest.service.logins)
        assert not waiting.done()
        guest.ssh.start()
        waiting.result()
    assert guest.ssh_service.logins


def _busy(guest):
    for _ in range(40):
        trouble(guest, "Create", "status", code=503)


@pytest.mark.parametrize(
    ("harm", "seen"),
    [
        (lambda guest: guest.winrm.stop(), "last seen: 'WinRM: connection refused'"),
        (_busy, "WinRM: 'win1' answered only with HTTP status 503"),
        (
            lambda guest: guest.script.rules.clear(),
            "WinRM: a command ended with 1: double: unknown",
        ),
        (lambda guest: guest.ssh.stop(), "last seen: 'WinRM works; SSH: connection refused'"),
    ],
    ids=["nobody listens", "not ready", "a command fails", "no SSH"],
)
def test_what_it_saw_last_is_said(harm, seen, guest, windows_shell):
    harm(guest)
    with pytest.raises(DeadlineError, match=seen):
        windows_shell.wait(Deadline(2))
    guest.service.troubles.clear()


def test_another_certificate_or_host_key_ends_it_at_once(guest, new_windows_shell):
    with pytest.raises(CertificateError):
        new_windows_shell(guest, certificate="ab" * 32).wait(Deadline(60))
    own = (guest.keyfile.parent / "authorized_keys").read_text().split()
    with pytest.raises(HostKeyError):
        new_windows_shell(guest, host_key=" ".join(own[:2])).wait(Deadline(60))
    assert not guest.ssh_service.logins


def test_a_refused_password_ends_it_before_the_account_is_locked(
    guest, new_windows_shell, monkeypatch
):
    monkeypatch.setattr(windows, "REFUSED_SECONDS", 0.05)
    with pytest.raises(PasswordError):
        new_windows_shell(guest, password="wrong").wait(Deadline(60))
    assert guest.service.refused == windows.REFUSALS < 10


def test_between_refusals_nothing_is_tried(guest, new_windows_shell):
    with pytest.raises(DeadlineError, match='last seen: "WinRM: 401: the password of user'):
        new_windows_shell(guest, password="wrong").wait(Deadline(1))
    assert guest.service.refused == 1


def test_a_password_that_is_taken_later_is_enough(guest, windows_shell, monkeypatch):
    monkeypatch.setattr(windows, "REFUSED_SECONDS", 0.05)
    own, guest.service.password = guest.service.password, "not yet"
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(windows_shell.wait, Deadline(30))
        Deadline(10).wait("waiting for a refusal", lambda: guest.service.refused)
        guest.service.password = own
        waiting.result()
    assert 1 <= guest.service.refused < windows.REFUSALS
