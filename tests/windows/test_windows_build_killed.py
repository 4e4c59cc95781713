"""``lab image build`` of Windows killed outright, gone on with, and collected; on a real libvirtd.

The medium is Microsoft-like outside; what boots from it is one sector that says "phase specialize"
and does nothing more. Stand-ins, not Windows.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

libvirt = pytest.importorskip("libvirt", reason="libvirt-python is not installed")
pytest.importorskip("pycdlib", reason="pycdlib is not installed")

import beside_maker  # noqa: E402
import boot_disc  # noqa: E402
import media_maker  # noqa: E402

from lab._deadline import Deadline  # noqa: E402
from lab.imaging.image_store import ImageStore  # noqa: E402
from lab.inventory.inventory import STOCK  # noqa: E402
from lab.providers.libvirt import installer  # noqa: E402
from lab.providers.libvirt.host import Host  # noqa: E402

pytestmark = pytest.mark.machines
NAME = "windows-server-2022"
INVENTORY = """
cache = "{cache}"
[hypervisors.local]
uri = "qemu:///system"
acceleration = "tcg"
"""


@dataclass
class Builder:
    """The ``lab`` command with a cache of its own."""

    folder: Path
    connected: Any
    places: set[Path] = field(default_factory=set)
    """Directories of builds that were seen."""

    @property
    def environment(self) -> dict[str, str]:
        own = {
            "HYBRIDLAB_INVENTORY": str(self.folder / "lab.toml"),
            "XDG_STATE_HOME": str(self.folder / "state"),
        }
        return {**os.environ, **own}

    @property
    def images(self) -> Path:
        return self.folder / "cache" / "images"

    def started(self, *words: str) -> subprocess.Popen[str]:
        log = self.folder / "said"
        with log.open("w", encoding="utf-8") as out:
            return subprocess.Popen(
                [sys.executable, "-m", "lab", "image", *words],
                env=self.environment,
                stdout=out,
                stderr=out,
                stdin=subprocess.DEVNULL,
                text=True,
            )

    def gc(self, *, yes: bool) -> tuple[str, ...]:
        """Sites that 'lab image gc' finds, without its look at copies that others may need."""
        image_store = ImageStore(self.folder / "cache", STOCK)
        image_store.gc((), yes)
        return installer.collect_sites(
            Host(STOCK.hypervisors["local"]), image_store.is_building, yes=yes
        ).names

    def until(self, words: str, process: subprocess.Popen[str]) -> str:
        """What it has said, once it has said that."""

        def said() -> str:
            text = (self.folder / "said").read_text(encoding="utf-8")
            assert words in text or process.poll() is None, text
            return text

        return Deadline(120.0).wait(
            f"waiting for '{words}'", said, until=lambda text: words in text, every=0.1
        )

    def objects(self) -> set[str]:
        """What hypervisors have of the builds in this cache."""
        self.places |= set(self.images.glob(".*.partial"))
        endings = tuple(installer.site_token(place) for place in self.places)
        kinds = (
            self.connected.listAllDomains,
            self.connected.listAllNetworks,
            self.connected.listAllStoragePools,
        )
        return {one.name() for kind in kinds for one in kind() if one.name().endswith(endings)}


@pytest.fixture
def builder(tmp_path: Path) -> Iterator[Builder]:
    try:
        connected = libvirt.open("qemu:///system")
    except libvirt.libvirtError as error:
        pytest.skip(f"no libvirtd: {error}")
    for one in (tmp_path, *tmp_path.parents[:2]):
        one.chmod(0o755)
    (tmp_path / "lab.toml").write_text(INVENTORY.format(cache=tmp_path / "cache"))
    made = Builder(tmp_path, connected)
    yield made
    made.gc(yes=True)
    assert made.objects() == set()
    connected.close()


@pytest.fixture
def options(tmp_path: Path) -> tuple[str, ...]:
    says = boot_disc.program(boot_disc.lines("hybridlab: phase specialize"))
    boots = media_maker.Boots(says, media_maker.floppy(b"prompt"), media_maker.floppy(b"none"))
    iso = media_maker.make(tmp_path, year="2022", channel="evaluation", boots=boots)
    virtio = beside_maker.virtio_win(tmp_path / "virtio-win.iso")
    return ("--iso", str(iso), "--virtio-win", str(virtio))


def test_a_killed_build_is_gone_on_with_and_gc_takes_it_away(
    builder: Builder, options: tuple[str, ...]
) -> None:
    first = builder.started("build", NAME, *options)
    builder.until("specialize: Windows starts from the disk", first)
    first.kill()
    first.wait()
    there = builder.objects()
    assert len(there) == 1

    second = builder.started("build", NAME)  # where the media are is remembered
    builder.until("continuing the installation", second)
    builder.until("specialize: Windows starts from the disk", second)
    assert builder.objects() == there
    (name,) = there
    assert name not in builder.gc(yes=True), "what is being built was collected"
    second.send_signal(signal.SIGINT)
    second.wait(60)
    assert "is still running" in (builder.folder / "said").read_text()
    assert builder.objects() == there

    assert name in builder.gc(yes=False)
    assert builder.objects() == there
    assert name in builder.gc(yes=True)
    assert builder.objects() == set()
    assert list(builder.images.glob(".*")) == []


def test_a_build_that_is_killed_while_its_machine_is_made_is_done_anew(
    builder: Builder, options: tuple[str, ...]
) -> None:
    first = builder.started("build", NAME, *options)
    builder.until("making the machine", first)
    first.kill()
    first.wait()

    second = builder.started("build", NAME)
    builder.until("specialize: Windows starts from the disk", second)
    assert len(builder.objects()) == 1
    second.kill()
    second.wait()
