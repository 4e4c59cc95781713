"""What every test may ask for, and what all of them run under."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from lab.providers.netns import isolation

pytest_plugins = ["pytester"]
"""Of all tests, or of none: pytest takes this from no conftest further down."""

settings.register_profile("untimed", parent=settings(), deadline=None)


def pytest_configure() -> None:
    """No test runs on the hypervisors of whoever runs it, unless it asks for them."""
    os.environ["HYBRIDLAB_INVENTORY"] = os.devnull
    settings.load_profile("untimed")


@pytest.fixture(autouse=True)
def _interruptible() -> None:
    """Ctrl-C interrupts each test and what it starts, as it does at a terminal.

    A background job of a script, and so many a CI runner, ignores SIGINT and SIGQUIT, and its
    children inherit that; a command that a test runs in this process restores it. SIGHUP stays
    ignored: nohup is to keep the tests alive.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)


@pytest.fixture(scope="module")
def connected() -> Iterator[Any]:
    """This machine's own libvirtd, as long as a module is tested."""
    libvirt = pytest.importorskip("libvirt", reason="libvirt-python is not installed")
    try:
        connection = libvirt.open("qemu:///system")
    except libvirt.libvirtError as error:
        pytest.skip(f"no libvirtd: {error}")
    yield connection
    connection.close()


@pytest.fixture
def new_program(tmp_path, monkeypatch):
    """Make a program, by its name and what a shell runs for it, that hides the machine's own."""
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    def make(name: str, script: str) -> None:
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)

    return make


_MS_PRIVATE = 1 << 18  # what the host unmounts stays mounted here, and shows no difference


@pytest.fixture(scope="session")
def mounts() -> Callable[[], Counter[str]]:
    """Ask it twice: what the second answer has and the first has not, tests have mounted between.

    From the first test that wants it on, this process has a mount namespace of its own: what others
    mount, and the network namespaces that they name, do not show. (What they had mounted before may
    go.) Who may not have such a namespace may not mount either, and always hears of none.
    """
    try:
        isolation.unshare(isolation.CLONE_NEWNS)
    except PermissionError:
        return Counter
    isolation.mount("none", "/", "", isolation.MS_REC | _MS_PRIVATE)
    own = Path("/proc/thread-self/mounts")
    return lambda: Counter(own.read_text(encoding="utf-8").splitlines())
