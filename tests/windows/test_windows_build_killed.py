"""``lab image build`` of Windows killed outright, gone on with, and collected; on a real libvirtd.

The medium is Microsoft-like outside; what boots from it is one sector that says "phase specialize"
and does nothing more. Stand-ins, not Windows.
"""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

pytest.importorskip("libvirt", reason="libvirt-python is not installed")
pytest.importorskip("pycdlib", reason="pycdlib is not installed")

import beside_maker
import boot_disc
import media_maker
from stand_in.product import NAME, Product, product

from lab._deadline import Deadline
from lab.imaging.image_store import ImageStore
from lab.inventory.inventory import STOCK
from lab.providers.libvirt import installer
from lab.providers.libvirt.host import Host

pytestmark = pytest.mark.machines
INSTALLS = "specialize: Windows starts from the disk"


@pytest.fixture
def lab(tmp_path, connected):
    with product(tmp_path / "own", connected) as made:
        yield made
        collected(made, yes=True)


@pytest.fixture
def options(tmp_path):
    for one in (tmp_path, *tmp_path.parents[:2]):
        one.chmod(0o755)
    says = boot_disc.program(boot_disc.lines("hybridlab: phase specialize"))
    boots = media_maker.Boots(says, media_maker.floppy(b"prompt"), media_maker.floppy(b"none"))
    iso = media_maker.make(tmp_path, year="2022", channel="evaluation", boots=boots)
    virtio = beside_maker.virtio_win(tmp_path / "virtio-win.iso")
    return ("--iso", str(iso), "--virtio-win", str(virtio))


def started(lab: Product, *words: str) -> subprocess.Popen[str]:
    with (lab.folder / "said").open("w", encoding="utf-8") as out:
        return subprocess.Popen(
            [sys.executable, "-m", "lab", "image", *words],
            env=lab.environment,
            stdout=out,
            stderr=out,
            stdin=subprocess.DEVNULL,
            text=True,
        )


def wait_until_said(lab: Product, words: str, process: subprocess.Popen[str]) -> None:
    def said() -> str:
        text = (lab.folder / "said").read_text(encoding="utf-8")
        assert words in text or process.poll() is None, text
        return text

    Deadline(120.0).wait(
        f"waiting for '{words}'", said, until=lambda text: words in text, every=0.1
    )


def collected(lab: Product, *, yes: bool) -> tuple[str, ...]:
    """Sites that 'lab image gc' finds, without its look at copies that others may need."""
    store = ImageStore(lab.folder / "cache", STOCK)
    store.gc((), yes)
    host = Host(STOCK.hypervisors["local"])
    return installer.collect_sites(host, store.is_building, yes=yes).names


def test_a_killed_build_is_gone_on_with_and_gc_takes_it_away(lab, options):
    first = started(lab, "build", NAME, *options)
    wait_until_said(lab, INSTALLS, first)
    first.kill()
    first.wait()
    there = lab.objects()
    (name,) = there

    second = started(lab, "build", NAME)  # where the media are is remembered
    wait_until_said(lab, "continuing the installation", second)
    wait_until_said(lab, INSTALLS, second)
    assert lab.objects() == there
    assert name not in collected(lab, yes=True), "what is being built was collected"
    second.send_signal(signal.SIGINT)
    second.wait(60)
    assert "is still running" in (lab.folder / "said").read_text()
    assert lab.objects() == there

    assert name in collected(lab, yes=False)
    assert lab.objects() == there
    assert name in collected(lab, yes=True)
    assert lab.objects() == set()
    assert list(lab.images.glob(".*")) == []


def test_a_build_that_is_killed_while_its_machine_is_made_is_done_anew(lab, options):
    first = started(lab, "build", NAME, *options)
    wait_until_said(lab, "creating the machine", first)
    first.kill()
    first.wait()

    second = started(lab, "build", NAME)
    wait_until_said(lab, INSTALLS, second)
    assert len(lab.objects()) == 1
    second.kill()
    second.wait()
