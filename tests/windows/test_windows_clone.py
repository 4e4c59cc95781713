"""A clone on this machine's own libvirtd: it is pinned by what it says, and its medium goes.

What boots is one sector that speaks on COM1 as a clone does: a stand-in, not Windows.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import pytest

libvirt = pytest.importorskip("libvirt", reason="libvirt-python is not installed")
pytest.importorskip("pycdlib", reason="pycdlib is not installed")

import boot_disc  # noqa: E402
import ntfs_maker  # noqa: E402

from lab._errors import DeadlineError  # noqa: E402
from lab.imaging.golden import GoldenImage  # noqa: E402
from lab.imaging.medium import opened  # noqa: E402
from lab.inventory.inventory import Hypervisor  # noqa: E402
from lab.lifecycle.compilation import compile_scenario  # noqa: E402
from lab.providers.libvirt import domains, images, machines, networks, ownership, storage, windows  # noqa: E402
from lab.providers.libvirt.host import Host  # noqa: E402
from lab.providers.libvirt.machines import MachineRecipe  # noqa: E402
from lab.providers.libvirt.owned import remove_lab  # noqa: E402
from lab.providers.libvirt.ownership import Owner  # noqa: E402
from lab.providers.machines import keyring  # noqa: E402
from lab.providers.machines.keyring import Pins  # noqa: E402
from lab.providers.provider import LabHandle  # noqa: E402
from lab.topology.intent import MachineIntent  # noqa: E402

pytestmark = pytest.mark.machines
INTENT = compile_scenario("overlay").intent
WINDOWS = next(one for one in INTENT.machines if one.os == "windows")


@dataclass
class Place:
    """A lab with its pool and networks, and one machine to be made."""

    host: Host
    lab: LabHandle
    machine: MachineIntent
    owner: Owner
    folder: Path
    digests: list[str] = field(default_factory=list)
    """Of the images that were made."""

    def recipe(self, firmware: Any = "bios", storage: Any = "virtio") -> MachineRecipe:
        disk = boot_disc.disk(self.folder / f"golden-{firmware}-{storage}.qcow2", boot_disc.CLONE)
        digest = os.urandom(32).hex()
        self.digests.append(digest)
        image = GoldenImage(
            name="windows-server-2022",
            digest=digest,
            os="windows",
            disk=disk,
            virtual_gib=1,
            firmware=firmware,
            kernel=None,
            initrd=None,
            arguments="",
            first_boot="windows",
            user="Administrator",
            storage=storage,
        )
        images.ensure_image(
            self.host.connected, self.host.hypervisor.storage, image, lambda _: None
        )
        return MachineRecipe(self.lab, self.machine, image, False, 1400, "10.201.7.10", 24)

    def made(self, recipe: MachineRecipe) -> str:
        owner = replace(self.owner, machine=self.machine.name, made_from=recipe.digest())
        return machines.ensure_machine(
            self.host, recipe, owner, windows.clone_machine, lambda _: None
        )

    def meet(self, recipe: MachineRecipe) -> None:
        name = self.machine.name
        windows.pin_keys(
            self.host, recipe, lambda: machines.console_text(self.host, self.lab, name)
        )

    def volumes(self) -> set[str]:
        pool = self.host.lab_pool(self.lab.token)
        assert pool is not None
        storage.refresh(pool)
        return {one.name() for one in pool.listAllVolumes()}

    def domain(self) -> Any:
        found = domains.find(self.host.connected, self.lab, self.machine.name)
        assert found is not None
        return found[0]


@pytest.fixture
def place(tmp_path):
    host = Host(Hypervisor(name="local", uri="qemu:///system", acceleration="tcg"))
    try:
        connected = libvirt.open("qemu:///system")
    except libvirt.libvirtError as error:
        pytest.skip(f"no libvirtd: {error}")
    machine = replace(
        WINDOWS, hardware=replace(WINDOWS.hardware, memory_mib=256, vcpus=1, disk_gib=1)
    )
    lab = LabHandle(f"clone{os.urandom(2).hex()}", tmp_path, os.urandom(8).hex())
    owner = Owner(lab.name, lab.token, tmp_path, "test", "test", 0.0)
    keyring.ensure(lab, [])
    keyring.ensure_passwords(lab, [machine.name])
    networks.ensure_management(
        host.connected,
        lab,
        owner,
        (machine.name,),
        pool=IPv4Network("10.201.0.0/16"),
        mtu=1400,
    )
    for segment in INTENT.segments:
        networks.ensure_segment(host.connected, lab, owner, segment)
    path = storage.lab_path(host.hypervisor.storage, lab.token)
    storage.ensure_pool(
        host.connected, ownership.name_prefix(lab), ownership.object_uuid(lab, "pool", ""), path
    )
    made = Place(host, lab, machine, owner, tmp_path)
    yield made
    remove_lab(host, lab.token)
    if made.digests:
        shared = connected.storagePoolLookupByName(ownership.IMAGES_POOL)
        storage.refresh(shared)
        for name in [one.name() for one in shared.listAllVolumes()]:
            if any(digest[:16] in name for digest in made.digests):
                storage.remove(shared, name)
    left = [one.name() for one in connected.listAllDomains() if one.name().startswith(lab.name)]
    assert left == []
    connected.close()


@pytest.mark.parametrize("disk", ["virtio", "sata"])
def test_a_clone_says_its_keys_is_pinned_and_loses_its_medium(place, disk):
    recipe = place.recipe(storage=disk)
    name = place.machine.name
    assert place.made(recipe) == "new"
    assert f"{name}.seed" in place.volumes()
    content = storage.read(place.host.lab_pool(place.lab.token), f"{name}.seed")
    seed = place.folder / "seed.iso"
    seed.write_bytes(content)
    with opened(seed, "reading", "") as found:
        assert found.label == "HYBRIDLAB"
    assert name.encode() in content
    assert keyring.password(place.lab, name).encode() not in content

    place.meet(recipe)

    assert keyring.pins(place.lab, name) == Pins("ssh-ed25519 AAAAC3", "c" * 64)
    assert f"{name}.seed" not in place.volumes()
    assert ".seed" not in place.domain().XMLDesc()
    assert place.made(recipe) == "running"
    place.meet(recipe)


def test_a_clone_that_is_made_anew_has_to_say_its_keys_again(place):
    recipe = place.recipe()
    place.made(recipe)
    place.meet(recipe)
    other = place.recipe(storage="sata")
    assert place.made(other) == "new"
    assert keyring.pins(place.lab, place.machine.name) is None
    place.meet(other)


@pytest.mark.skipif(bool(ntfs_maker.missing()), reason=f"not installed: {ntfs_maker.missing()}")
def test_a_clone_that_never_says_its_keys_leaves_screen_disk_and_the_logs_of_setup(
    place, monkeypatch
):
    monkeypatch.setitem(windows.SPEAK_SECONDS, False, 10.0)
    recipe = place.recipe()
    log = b"Info  SETACTIVE: wizard page for page Localization\r\n"
    files = {"Windows/System32/x.dll": b"MZ", "Windows/Panther/UnattendGC/setupact.log": log}
    said = boot_disc.lines("hybridlab: phase specialize")
    boot = boot_disc.program(said).rstrip(b"\0") + b"\0"
    image = recipe.image.disk
    image.unlink()
    ntfs_maker.disk(image, files, boot=boot)
    recipe = replace(recipe, image=replace(recipe.image, digest=os.urandom(32).hex()))
    place.digests.append(recipe.image.digest)
    images.ensure_image(
        place.host.connected, place.host.hypervisor.storage, recipe.image, lambda _: None
    )
    place.made(recipe)

    with pytest.raises(DeadlineError) as late:
        place.meet(recipe)

    folder = place.folder / f"{place.machine.name}-first-start"
    assert (folder / "screen.png").read_bytes().startswith(b"\x89PNG")
    for words in ("phase specialize", "MiB", "page Localization and waits", str(folder)):
        assert words in str(late.value)
    assert {path.name for path in folder.iterdir()} == {
        "screen.png",
        "windows-panther-unattendgc-setupact.log",
    }
    assert domains.state(place.domain()) == "running"
