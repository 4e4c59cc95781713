"""Doubles of Windows guests, and a check that nothing of them is left."""

from __future__ import annotations

import pytest
from double.guest import Guest
from shell_contract import nothing_left
from windows_guests import reach

from lab.remote.connection import JUMPS
from lab.remote.windows import WindowsShell


@pytest.fixture
def _nothing_left_of_guests(monkeypatch):
    """Check for leftover threads and open files; ``new_guest`` has checks of the double itself."""
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")  # which must not be used
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    with nothing_left():
        yield
    assert not JUMPS._shared, "a link to a host was not given back"


@pytest.fixture
def new_guest(_nothing_left_of_guests, tmp_path):
    made: list[Guest] = []

    def make(name: str = "guest", **facts: object) -> Guest:
        made.append(Guest(tmp_path / name, **facts))
        made[-1].script.on(r"cmd\.exe /d /c exit 0$")
        made[-1].start()
        return made[-1]

    yield make
    for one in made:
        one.stop()
        left = [shell for shell in one.shells.open.values() if shell.used]
        assert not left, "a shell was left on the guest"
        assert not one.service.troubles, "a trouble that a test asked for did not come"


@pytest.fixture
def guest(new_guest):
    return new_guest()


@pytest.fixture
def new_windows_shell(_nothing_left_of_guests):
    made: list[WindowsShell] = []

    def make(guest: Guest, **changes: object) -> WindowsShell:
        made.append(WindowsShell(reach(guest, **changes)))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def windows_shell(guest, new_windows_shell):
    return new_windows_shell(guest)
