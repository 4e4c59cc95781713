"""Doubles of Windows guests, and a check that nothing of them is left."""

from __future__ import annotations

from contextlib import ExitStack, closing

import pytest
from shell_contract import nothing_left
from windows_guests import Guest

from lab.machines.ssh.connection import JUMPS
from lab.windows.shell import WindowsShell


@pytest.fixture
def _nothing_left_of_guests(monkeypatch):
    """Check for leftover threads and open files; ``new_guest`` has checks of the double itself."""
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")  # which must not be used
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    with nothing_left():
        yield
    assert not JUMPS._shared, "a link to a host was not given back"


@pytest.fixture
def guest(_nothing_left_of_guests, tmp_path):
    made = Guest(tmp_path / "guest")
    made.script.on(r"cmd\.exe /d /c exit 0$")
    made.start()
    yield made
    made.stop()
    left = [shell for shell in made.shells.open.values() if shell.used]
    assert not left, "a shell was left on the guest"
    assert not made.service.troubles, "a trouble that a test asked for did not come"


@pytest.fixture
def new_shell(guest):
    """Make a shell on the guest; changes are of its reach."""
    with ExitStack() as shells:
        yield lambda **changes: shells.enter_context(closing(WindowsShell(guest.reach(**changes))))


@pytest.fixture
def windows_shell(new_shell):
    return new_shell()
