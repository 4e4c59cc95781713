"""The XML that libvirt is given: what a reader of it needs to find, and what must never slip in."""

from __future__ import annotations

import math
from dataclasses import replace
from ipaddress import IPv4Network
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from lab.providers.libvirt import documents, networks, ownership
from lab.providers.libvirt.documents import Card, Disc, Reservation, VirtualMachine
from lab.providers.libvirt.ownership import Owner
from lab.providers.machines import management
from lab.providers.provider import LabHandle

LAB = LabHandle("overlay", Path("/var/state/labs/overlay"), "3fa9c2d1e0b7a655")
OWNER = Owner(
    lab="overlay",
    token=LAB.token,
    directory=LAB.directory,
    controller="00ff",
    owner="ci & <friends>",
    created=1_700_000_000.25,
)
SPEC = VirtualMachine(
    kind="linux",
    name="overlay-3fa9-worker1",
    uuid=ownership.object_uuid(LAB, "domain", "worker1"),
    title="machine worker1",
    accelerated=False,
    vcpus=2,
    memory_mib=768,
    firmware="kernel",
    kernel="/images/k",
    initrd="/images/i",
    arguments='root=/dev/vda console=ttyS0 quote="<&>"',
    disk="/labs/d.qcow2",
    discs=(Disc("/labs/d.seed"),),
    console_log="/labs/d.log",
    cards=(
        Card("52:56:00:00:00:01", "overlay-3fa9-mgmt", 1400),
        Card("0a:00:00:00:00:01", "x", None),
    ),
)


def tree(spec: VirtualMachine = SPEC, owner: Owner = OWNER) -> ET.Element:
    return ET.fromstring(documents.domain(spec, ownership.owner_xml(owner)))


def test_without_kvm_a_domain_is_emulated_with_a_bounded_translation_cache() -> None:
    found = tree()
    assert found.get("type") == "qemu"
    assert found.findtext("features/tcg/tb-cache") == "128"
    cluster = tree(replace(SPEC, discs=(*SPEC.discs, Disc("/images/bundle.iso"))))
    assert cluster.findtext("features/tcg/tb-cache") == "1024"
    cpu = found.find("cpu")
    assert cpu is not None
    assert cpu.get("mode") == "custom"
    assert cpu.findtext("model") == "qemu64"
    wanted = {"ssse3", "sse4.1", "sse4.2", "popcnt"}  # x86-64-v2, on top of it
    assert {one.get("name") for one in cpu.findall("feature")} == wanted


def test_with_kvm_a_domain_has_the_host_s_processor() -> None:
    found = tree(replace(SPEC, accelerated=True))
    assert found.get("type") == "kvm"
    assert found.find("features/tcg") is None
    cpu = found.find("cpu")
    assert cpu is not None
    assert cpu.get("mode") == "host-passthrough"


def test_a_kernel_is_booted_directly_with_its_arguments() -> None:
    found = tree()
    assert found.findtext("os/kernel") == "/images/k"
    assert found.findtext("os/initrd") == "/images/i"
    assert found.findtext("os/cmdline") == f"{SPEC.arguments} no_timer_check tsc=reliable"
    assert found.find("os/boot") is None


def test_a_kernel_on_emulated_processors_does_not_judge_its_timer_by_them() -> None:
    """On a busy machine its ticks come late, and it panics: "IO-APIC + timer doesn't work".

    Nor does it give up the TSC for the HPET, whose every reading leaves the emulated processor.
    """
    assert (tree().findtext("os/cmdline") or "").endswith(" no_timer_check tsc=reliable")
    real = tree(replace(SPEC, accelerated=True))
    assert real.findtext("os/cmdline") == SPEC.arguments


@pytest.mark.parametrize(("firmware", "efi"), [("bios", None), ("uefi", "efi")])
def test_a_disk_is_booted_by_its_firmware(firmware: str, efi: str | None) -> None:
    found = tree(replace(SPEC, firmware=firmware, kernel=None, initrd=None, arguments=""))
    system = found.find("os")
    assert system is not None
    assert system.get("firmware") == efi
    assert found.find("os/boot") is not None
    assert found.find("os/kernel") is None


def test_the_seed_is_a_disk_that_a_guest_cannot_write() -> None:
    seed = tree().findall("devices/disk")[1]
    assert seed.get("device") == "disk"
    assert seed.find("readonly") is not None
    target = seed.find("target")
    assert target is not None
    assert target.get("bus") == "virtio"


def test_cards_come_in_order_with_their_mtu() -> None:
    cards = tree().findall("devices/interface")
    assert [card.find("source").get("network") for card in cards] == ["overlay-3fa9-mgmt", "x"]
    assert [card.find("mtu") is not None for card in cards] == [True, False]


def test_a_screen_is_shown_to_this_machine_alone() -> None:
    graphics = tree().find("devices/graphics")
    assert graphics is not None
    assert graphics.get("listen") == "127.0.0.1"


# SECURITY.md: A hypervisor's users are not kept apart.
def test_what_an_object_says_of_its_owner_is_read_back() -> None:
    owner = replace(OWNER, machine="worker1", made_from="abc", expires=1_800_000_000.0)
    assert ownership.read_owner(documents.domain(SPEC, ownership.owner_xml(owner))) == owner


@pytest.mark.parametrize(
    "document",
    [
        "<domain><name>overlay-3fa9-worker1</name></domain>",
        "<domain><metadata><lab name='overlay' token='3fa9c2d1e0b7a655'/></metadata></domain>",
        f"<domain><metadata><h:lab xmlns:h='{ownership.NAMESPACE}' name='x'/></metadata></domain>",
        documents.domain(SPEC, ownership.owner_xml(OWNER)).replace(
            'created="1700000000.250"', 'created="yesterday"'
        ),
        documents.domain(SPEC, ownership.owner_xml(replace(OWNER, created=-math.inf))),
        documents.domain(SPEC, ownership.owner_xml(replace(OWNER, expires=math.nan))),
    ],
    ids=["none", "other-namespace", "half", "no-time", "infinite", "no-number"],
)
def test_an_object_without_a_whole_mark_is_a_stranger_s(document: str) -> None:
    assert ownership.read_owner(document) is None


def test_a_management_network_reserves_an_address_for_each_machine() -> None:
    hosts = (Reservation("a", "52:56:00:00:00:0a", "10.201.7.10"),)
    text = documents.nat_network("n", "", "hl1", IPv4Network("10.201.7.0/24"), hosts, mtu=1400)
    assert networks.addresses_of(text) == {"a": "10.201.7.10"}
    assert networks.subnet_of(text) == IPv4Network("10.201.7.0/24")
    assert networks.mtu_of(text) == 1400
    found = ET.fromstring(text)
    assert found.find("forward").get("mode") == "nat"
    assert found.find("ip").get("address") == "10.201.7.1"


def test_a_segment_gives_the_hypervisor_no_address() -> None:
    found = ET.fromstring(documents.segment("n", "", "hl1", mtu=1450, uuid=""))
    assert found.find("ip") is None
    assert found.find("forward") is None
    assert found.find("mtu").get("size") == "1450"


def test_bridges_have_names_that_linux_takes() -> None:
    for segment in (ownership.MANAGEMENT, "cluster", "outside"):
        assert len(ownership.bridge_name(LAB, segment)) <= 15
    assert (
        len(
            {
                ownership.bridge_name(LAB, one)
                for one in (ownership.MANAGEMENT, "cluster", "outside")
            }
        )
        == 3
    )


def test_labs_of_one_name_have_different_objects() -> None:
    other = replace(LAB, token="b" * 16)
    assert ownership.domain_name(LAB, "a") != ownership.domain_name(other, "a")
    assert ownership.object_uuid(LAB, "domain", "a") != ownership.object_uuid(other, "domain", "a")
    assert management.management_mac(LAB, "a") != management.management_mac(other, "a")


def test_management_cards_have_local_unicast_macs() -> None:
    first = int(management.management_mac(LAB, "a")[:2], 16)
    assert first & 0b11 == 0b10
