"""``lab image``, from outside, and told to stop by SIGTERM."""

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from processes import lab, run_program

from lab._errors import TERMINATED
from lab.cli.main import main
from lab.machines import caches as images
from lab.machines.images.golden import GoldenImage

needs_qemu = pytest.mark.skipif(not shutil.which("qemu-img"), reason="qemu-img is not installed")


@pytest.fixture
def inventory(tmp_path, monkeypatch):
    path = tmp_path / "lab.toml"
    disk = tmp_path / "vendor.qcow2"
    path.write_text(f'cache = "{tmp_path}/cache"\n[images.rocky-9-cloud]\npath = "{disk}"\n')
    monkeypatch.setenv("HYBRIDLAB_INVENTORY", str(path))
    return path


def test_list_has_every_recipe_and_makes_nothing(inventory, capfd):
    code, out, _ = lab(capfd, "image", "list")
    assert code == 0
    assert "debian-12 " in out
    assert "absent" in out
    assert not (inventory.parent / "cache").exists()
    listed = json.loads(lab(capfd, "image", "list", "--json")[1])
    assert {"name", "kind", "state", "digest", "bytes", "detail"} == set(listed[0])


@needs_qemu
def test_image_is_built_shown_and_kept(inventory, capfd):
    disk = inventory.parent / "vendor.qcow2"
    run_program(["qemu-img", "create", "-q", "-f", "qcow2", str(disk), "8M"])
    code, out, err = lab(capfd, "image", "build", "rocky-9-cloud")
    assert code == 0
    assert Path(out.strip()).is_file()
    assert "image 'rocky-9-cloud': built" in err
    (built,) = json.loads(lab(capfd, "image", "build", "--json", "rocky-9-cloud")[1])
    assert built["disk"] == out.strip()
    code, shown, _ = lab(capfd, "image", "show", "rocky-9-cloud")
    assert (code, "'rocky' logs in" in shown) == (0, True)
    assert lab(capfd, "image", "gc", "--yes")[1] == "removed 0 objects, 0 MB\n"


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("build", "debain-12"), 2, 'did you mean "debian-12"'),
        (("show", "debian-13"), 2, "it has not been built"),
        (("build", "debian-12-iso"), 4, '[images.debian-12-iso] path = "/where/it/is.iso"'),
        (("build", "rocky-9-cloud"), 4, "vendor.qcow2': No such file"),
        (("build",), 2, "Missing argument"),
    ],
)
@needs_qemu
@pytest.mark.usefixtures("inventory")
def test_refusal_has_a_hint_and_its_exit_code(arguments, code, words, capfd):
    ended, _, err = lab(capfd, "image", *arguments)
    assert ended == code
    assert words in err


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
    err = capsys.readouterr().err
    assert ended.value.code == TERMINATED
    assert "is still running" in err
    assert "interrupted" in err
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
