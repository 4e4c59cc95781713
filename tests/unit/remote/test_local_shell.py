"""The shell of this machine does what the one over SSH does."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from shell_contract import ShellContract

from lab._deadline import Deadline
from lab._errors import BrokenError
from lab.remote.local import LocalShell
from lab.remote.shell import Shell

SHELL = LocalShell(become=False)


class TestLocalShell(ShellContract):
    """With each of the shells that a distribution may have as /bin/sh."""

    @pytest.fixture(params=["dash", "bash"])
    def shell(
        self,
        request: pytest.FixtureRequest,
        tmp_path_factory: pytest.TempPathFactory,
        monkeypatch: pytest.MonkeyPatch,
    ) -> Shell:
        program = shutil.which(request.param)
        if program is None:
            pytest.skip(f"{request.param} is not installed")
        programs = tmp_path_factory.mktemp("bin")
        (programs / "sh").symlink_to(program)
        monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
        return SHELL


def test_it_becomes_root_by_sudo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    shell = LocalShell(become=True)
    if shutil.which("sudo") is None:
        with pytest.raises(BrokenError, match="'sudo': no such file"):
            shell.run(["true"], Deadline(20))
    sudo = tmp_path / "sudo"
    sudo.write_text('#!/bin/sh\n[ "$1 $2" = "-n --" ] || exit 9\nshift 2\nAS=root exec "$@"\n')
    sudo.chmod(0o755)
    assert shell.run(["sh", "-c", "echo $AS"], Deadline(20)).stdout == "root\n"
    sudo.write_text("#!/bin/sh\necho 'sudo: a password is required' >&2\nexit 1\n")
    with pytest.raises(BrokenError, match="becoming root on this machine: sudo: a password"):
        shell.wait(Deadline(20))


def test_it_leaves_no_descriptor_and_no_child() -> None:
    def traces() -> tuple[int, set[str]]:
        children = Path("/proc/self/task").glob("*/children")
        return (
            len(list(Path("/proc/self/fd").iterdir())),
            {child for path in children for child in path.read_text().split()},
        )

    before = traces()
    SHELL.run(["true"], Deadline(20))
    assert traces() == before
