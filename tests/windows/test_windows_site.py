"""The machine that Windows is installed in, on this machine's own libvirtd.

What it boots is one sector that speaks on COM1 as a guest of ours does: a stand-in, not Windows.
"""

from __future__ import annotations

import subprocess
from hashlib import sha256
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

pytest.importorskip("libvirt", reason="libvirt-python is not installed")

import boot_disc

from lab._deadline import Deadline
from lab._errors import BrokenError, DeadlineError, PreflightError
from lab.inventory.inventory import MANAGEMENT, Hypervisor
from lab.machines.images import recipes
from lab.machines.images.installation import InstallationMachine, VendorMedium
from lab.machines.images.terms import Firmware
from lab.machines.libvirt import images, installer
from lab.machines.libvirt.installer import WindowsInstaller
from lab.windows.images import monitor
from lab.windows.images.monitor import ORDER, InstallMonitor

pytestmark = pytest.mark.machines
LOCAL = Hypervisor(name="local", uri="qemu:///system", acceleration="tcg")
SCHEMA = Path("/usr/share/libvirt/schemas/domain.rng")
READY = (
    "hybridlab: phase specialize",
    "hybridlab: key ssh-ed25519 AAAA",
    f"hybridlab: certificate {'a' * 64}",
    "hybridlab: phase ready",
)


def objects(connected: Any, site: Path) -> set[str]:
    kinds = (connected.listAllDomains, connected.listAllNetworks, connected.listAllStoragePools)
    ending = installer.site_token(site)
    return {one.name() for kind in kinds for one in kind() if one.name().endswith(ending)}


@pytest.fixture
def folder(connected, tmp_path):
    """The directory of a build, which QEMU may look into."""
    for parent in (tmp_path, *tmp_path.parents[:2]):
        parent.chmod(0o755)
    yield tmp_path / "site"
    installer.remove_site(connected, tmp_path / "site")
    assert objects(connected, tmp_path / "site") == set()


@pytest.fixture
def asked(folder):
    def make(
        *said: str, then: str = "halt", firmware: Firmware = "bios", virtio: bool = True
    ) -> InstallationMachine:
        iso = boot_disc.disc(folder.with_name("setup.iso"), boot_disc.lines(*said), then)
        recipe = recipes.load("windows-server-2022").replace(name="stand-in", disk_gib=1)
        assert recipe.windows is not None
        return InstallationMachine(
            recipe=recipe.replace(firmware=firmware),
            parts=recipe.windows.replace(memory_mib=256, vcpus=1, virtio=virtio),
            site=folder,
            setup=VendorMedium(iso, sha256(iso.read_bytes()).hexdigest()),
            overlay=None,
            answers=b"answers" * 999,
        )

    return make


def watch(folder: Path, machine: Any, minutes: float = 2.0) -> InstallMonitor:
    told: list[str] = []
    return InstallMonitor(
        "stand-in",
        machine,
        dict.fromkeys(ORDER, minutes / 10),  # it is emulated: ten times as long
        folder.with_name("logs"),
        told.append,
    )


@pytest.mark.parametrize("storage", ["virtio", "sata"])
def test_a_medium_on_this_machine_is_booted_where_it_lies_and_stays_as_it_is(
    storage, asked, folder, connected
):
    wanted = asked(*READY, virtio=storage == "virtio")
    wanted.setup.path.chmod(0o444)
    before = wanted.setup.path.stat()
    machine = WindowsInstaller(LOCAL, MANAGEMENT).begin(wanted)
    monitor = watch(folder, machine)

    monitor.until(lambda now: now.phase == "ready")

    assert monitor.progress.key == "ssh-ed25519 AAAA"
    assert monitor.progress.certificate == "a" * 64
    after = wanted.setup.path.stat()
    assert (before.st_uid, before.st_mode, before.st_mtime_ns) == (
        after.st_uid,
        after.st_mode,
        after.st_mtime_ns,
    )
    (name,) = objects(connected, folder)
    pool = connected.storagePoolLookupByName(name)
    assert sorted(volume.name() for volume in pool.listAllVolumes()) == [
        "answers",
        "console",
        "disk",
    ]
    assert str(wanted.setup.path) in connected.lookupByName(name).XMLDesc()
    for _ in range(2):
        machine.take_answers()
    assert "/answers" not in connected.lookupByName(name).XMLDesc()
    pool.refresh()
    assert "answers" not in {volume.name() for volume in pool.listAllVolumes()}
    machine.remove()
    assert objects(connected, folder) == set()


@pytest.mark.skipif(not SCHEMA.exists(), reason="libvirt's schemas are not installed")
@pytest.mark.parametrize("firmware", ["bios", "uefi"])
def test_what_libvirt_made_of_the_document_is_what_was_meant(firmware, asked, folder, connected):
    machine = WindowsInstaller(LOCAL, MANAGEMENT).begin(asked(firmware=firmware))
    (name,) = objects(connected, folder)
    text = connected.lookupByName(name).XMLDesc()

    subprocess.run(
        ["xmllint", "--noout", "--relaxng", SCHEMA, "-"],
        input=text.encode(),
        check=True,
        capture_output=True,
    )
    root = ET.fromstring(text)
    nvram = root.find("os/nvram")
    assert (nvram is not None) == (firmware == "uefi")
    if nvram is not None:
        assert name in str(nvram.text)
        assert root.find("os/loader").get("secure") in {None, "no"}
    assert machine.address().address.endswith(".10")
    machine.remove()


def test_a_reboot_is_heard_and_a_medium_that_boots_again_is_named(asked, folder, monkeypatch):
    monkeypatch.setattr(monitor, "RESTART_SECONDS", 1.0)
    machine = WindowsInstaller(LOCAL, MANAGEMENT).begin(asked("no word of Setup", then="reset"))
    seen = watch(folder, machine)
    with pytest.raises(BrokenError, match="has restarted 3 times"):
        seen.until(lambda now: now.phase == "ready")
    Deadline(30).wait(
        "waiting for libvirt to tell of the reset",
        lambda: machine.look(0).resets,
        every=0.2,
    )
    machine.remove()


def test_a_stuck_phase_is_named_with_its_picture(asked, folder):
    machine = WindowsInstaller(LOCAL, MANAGEMENT).begin(asked("hybridlab: phase specialize"))
    monitor = watch(folder, machine, minutes=0.1)
    with pytest.raises(DeadlineError, match="phase 'specialize' has not ended") as late:
        monitor.until(lambda now: now.phase == "ready")
    assert "| hybridlab: phase specialize" in str(late.value)
    assert (folder.with_name("logs") / "stand-in-specialize.png").read_bytes()[:4] == b"\x89PNG"
    machine.remove()


def test_a_medium_that_qemu_cannot_read_is_refused_with_the_cure(
    asked, folder, connected, monkeypatch
):
    wanted = asked()
    wanted.setup.path.chmod(0o600)
    monkeypatch.setattr(images, "qemu_user", lambda _: images.QemuUser(64055, frozenset({64055})))
    with pytest.raises(PreflightError, match=r"QEMU .* may not") as refused:
        WindowsInstaller(LOCAL, MANAGEMENT).begin(wanted)
    assert "chmod" in refused.value.hint
    assert objects(connected, folder) == set()
