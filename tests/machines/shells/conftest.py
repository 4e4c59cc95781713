"""Servers for the tests, and a check that no shell leaves a thread or a descriptor behind."""

import os
from pathlib import Path

import pytest
from shell_contract import nothing_left
from ssh_server import Sshd

from lab.machines.ssh.shell import SshShell
from lab.shells.shell import Reach


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    missing = ""
    if os.geteuid() != 0:
        missing = "an sshd that lets root in can be started by root alone"
    elif not Path("/usr/sbin/sshd").exists():
        missing = "openssh-server is not installed"
    for item in items if missing else ():
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.skip(reason=missing))


@pytest.fixture(autouse=True)
def _nothing_left():
    with nothing_left():
        yield


@pytest.fixture
def new_sshd(_nothing_left, tmp_path):
    made: list[Sshd] = []

    def make(name: str = "sshd", **facts: object) -> Sshd:
        made.append(Sshd(tmp_path / name, **facts))
        made[-1].start()
        return made[-1]

    yield make
    for one in made:
        one.end()


@pytest.fixture
def sshd(new_sshd):
    return new_sshd()


@pytest.fixture
def new_shell(_nothing_left):
    made: list[SshShell] = []

    def make(reach: Reach) -> SshShell:
        made.append(SshShell(reach))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def shell(sshd, new_shell):
    return new_shell(sshd.reach())
