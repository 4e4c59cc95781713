"""``lab image build`` that is told to stop by SIGTERM."""

import os
import signal
import sys
from collections.abc import Callable

import pytest

from lab.cli.main import TERMINATED, main
from lab.imaging.golden import GoldenImage
from lab.lifecycle import images


class BuildingImageStore:
    """One whose build is told to stop, and says so as the build of Windows does."""

    def get(self, name: str, say: Callable[[str], None]) -> GoldenImage:
        assert signal.getsignal(signal.SIGTERM) not in {signal.SIG_DFL, signal.SIG_IGN}, name
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            signal.sigtimedwait((), 0)
        except BaseException:
            say("the installation is still running")
            raise
        raise AssertionError("it was not stopped")


def test_sigterm_ends_a_build_as_ctrl_c_does_with_its_own_exit_code(monkeypatch, capsys):
    monkeypatch.setattr(images, "image_store", BuildingImageStore)
    monkeypatch.setattr(sys, "argv", ["lab"])
    with pytest.raises(SystemExit) as ended:
        main(["image", "build", "windows-server-2022"])
    said = capsys.readouterr().err
    assert ended.value.code == TERMINATED
    assert "is still running" in said
    assert "interrupted" in said
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
