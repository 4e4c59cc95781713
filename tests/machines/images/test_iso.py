"""What becomes of a medium and its answers, with an installer of the tests."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("pycdlib", reason="pycdlib is not installed")

from processes import run_program
from recipe_writer import recipe

from lab._errors import PreflightError
from lab.inventory.inventory import ImageSource, Inventory
from lab.machines.images import iso, medium
from lab.machines.images.image_store import ImageStore
from lab.machines.images.job import Installation

pytestmark = pytest.mark.skipif(not shutil.which("qemu-img"), reason="qemu-img is not installed")


class Recorded:
    """An installer that keeps what it was given, and makes an empty disk."""

    def __init__(self) -> None:
        self.asked: list[Installation] = []
        self.initrd = b""
        self.answers = b""

    def install(
        self,
        installation: Installation,
        disk: Path,
        tell: Callable[[str], None],
        console: Callable[[bytes], None],
    ) -> None:
        self.asked.append(installation)
        self.initrd = installation.initrd.read_bytes()
        if len(installation.media) > 1:
            self.answers = installation.media[1].read_bytes()
        tell("installing")
        console(b"all done\n")
        run_program(["qemu-img", "create", "-q", "-f", "qcow2", str(disk), "8M"])


def library(folder: Path, answers: str, installer: Recorded | None, more: str = "") -> ImageStore:
    section = (
        "iso:\n  medium: a DVD\n  kernel: /vmlinuz\n  initrd: /initrd\n"
        f'  arguments: "from={{{{ label }}}}"\n  answers: {answers}\n  memory: 1GiB\n'
        f"  minutes: 5\n  done: all done\n{more}"
    )
    recipes = recipe(folder, "small", section)
    (recipes / "small/answers.j2").write_text("user={{ user }}\n")
    (recipes / "small/plain").write_text("{{ as it is }}\n")
    vendor = folder / "vendor.iso"
    vendor.write_bytes(medium.medium("VENDOR", {"vmlinuz": b"kernel", "initrd": b"ramdisk"}))
    inventory = Inventory(images={"small": ImageSource(url=str(vendor))})
    return ImageStore(folder / "cache", inventory, installer, recipes)


def test_answers_in_the_initramfs_follow_the_vendors_own(tmp_path):
    installer = Recorded()
    image = library(tmp_path, "initrd", installer).get("small", print)
    installation = installer.asked[0]
    assert installation.arguments == "from=VENDOR"
    assert installation.media == (tmp_path / "vendor.iso",)
    assert installer.initrd.startswith(b"ramdisk\x00070701")
    assert b"user=root\n" in installer.initrd
    assert b"{{ as it is }}" in installer.initrd
    assert image.virtual_gib == 1
    assert (tmp_path / "cache/logs/small.log").read_bytes() == b"all done\n"
    assert not list(tmp_path.glob("cache/images/*/work"))


@pytest.mark.parametrize(("answers", "label"), [("cidata", "cidata"), ("oemdrv", "OEMDRV")])
def test_answers_on_a_medium_carry_the_label_that_the_installer_looks_for(answers, label, tmp_path):
    installer = Recorded()
    library(tmp_path, answers, installer).get("small", print)
    (tmp_path / "answers.iso").write_bytes(installer.answers)
    with medium.opened(tmp_path / "answers.iso", "reading", "") as found:
        assert found.label == label
    assert installer.initrd == b"ramdisk"


def test_installer_needs_a_hypervisor(tmp_path):
    with pytest.raises(PreflightError, match="no hypervisor is available to run its installer"):
        library(tmp_path, "initrd", None).get("small", print)


def test_answers_that_need_a_mirror_are_refused_where_apt_knows_none(tmp_path, monkeypatch):
    monkeypatch.setattr(iso, "host_sources", lambda *_: [])
    made = library(tmp_path, "initrd", Recorded(), "  mirror: debian\n  suite: bookworm\n")
    with pytest.raises(PreflightError, match="apt on this machine has none for 'debian'"):
        made.get("small", print)


def test_medium_without_the_kernel_is_refused_with_what_it_holds(tmp_path):
    made = library(tmp_path, "initrd", Recorded())
    (tmp_path / "vendor.iso").write_bytes(medium.medium("OTHER", {"readme": b""}))
    with pytest.raises(PreflightError, match="its folder holds readme"):
        made.get("small", print)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        ("echo '<html>' >{0}", "is not a disk: it has neither"),
        ("qemu-img create -q -f qcow2 -F raw -b /etc/passwd {0} 8M", "depends on another file"),
    ],
)
def test_disk_that_is_none_or_leans_on_another_file_is_refused(make, words, tmp_path):
    disk = tmp_path / "disk"
    subprocess.run(make.format(disk), shell=True, check=True)
    inventory = Inventory(images={"tiny": ImageSource(url=str(disk))})
    with pytest.raises(PreflightError, match=words):
        ImageStore(tmp_path / "cache", inventory, None, recipe(tmp_path)).get("tiny", print)
