"""``lab image build`` of Windows killed outright, gone on with, and collected; on a real libvirtd.

The medium is Microsoft-like outside; what boots from it is one sector that says "phase specialize"
and does nothing more. Stand-ins, not Windows.
"""

from __future__ import annotations

import signal

import pytest

pytest.importorskip("libvirt", reason="libvirt-python is not installed")
pytest.importorskip("pycdlib", reason="pycdlib is not installed")

import beside_maker
import boot_disc
import media_maker
from real_lab import story_until
from stand_in.product import NAME, Product, product

from lab.imaging.image_store import ImageStore
from lab.inventory.inventory import STOCK
from lab.providers.libvirt import installer
from lab.providers.libvirt.host import Host

pytestmark = pytest.mark.machines
IMAGE = f"image '{NAME}': "
INSTALLS = f"{IMAGE}specialize: Windows starts from the disk"


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


def collected(lab: Product, *, yes: bool) -> tuple[str, ...]:
    """Sites that 'lab image gc' finds, without its look at copies that others may need."""
    store = ImageStore(lab.folder / "cache", STOCK)
    store.gc((), yes)
    host = Host(STOCK.hypervisors["local"])
    return installer.collect_sites(host, store.is_building, yes=yes).names


def test_a_killed_build_is_gone_on_with_and_gc_takes_it_away(lab, options):
    lab.killed_after(("image", "build", NAME, *options), INSTALLS)
    there = lab.objects()
    (name,) = there

    with lab.started("image", "build", NAME) as second:  # where the media are is remembered
        story = story_until(second, INSTALLS)
        assert [line for line in story if "continuing the installation" in line]
        assert lab.objects() == there
        assert name not in collected(lab, yes=True), "what is being built was collected"
        second.send_signal(signal.SIGINT)
        assert "is still running" in "".join(story_until(second, "no such line"))
    assert lab.objects() == there

    assert name in collected(lab, yes=False)
    assert lab.objects() == there
    assert name in collected(lab, yes=True)
    assert lab.objects() == set()
    assert list(lab.images.glob(".*")) == []


def test_a_build_that_is_killed_while_its_machine_is_made_is_done_anew(lab, options):
    lab.killed_after(("image", "build", NAME, *options), f"{IMAGE}creating the machine")
    lab.killed_after(("image", "build", NAME), INSTALLS)
    assert len(lab.objects()) == 1
