"""The XML that libvirt is given: what a reader of it needs to find, and what must never slip in."""

import math
from dataclasses import replace
from ipaddress import IPv4Network
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from lab.machines import management
from lab.machines.libvirt import documents, domains, networks, ownership
from lab.machines.libvirt.documents import Card, Disc, Reservation, VirtualMachine
from lab.machines.libvirt.ownership import Owner
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


WINDOWS = VirtualMachine(
    kind="windows",
    name="w",
    title="",
    accelerated=True,
    hyperv=("relaxed", "spinlocks", "stimer"),
    vcpus=4,
    memory_mib=4096,
    firmware="bios",
    nvram="/p/w.fd",
    storage="virtio",
    disk="/p/disk",
    discs=(Disc("/iso", foreign=True, boots=True), Disc("/virtio"), Disc("/answers")),
    console_log="/p/console",
    cards=(Card("52:56:00:00:00:01", "net", 1400),),
)
INSTALLER = VirtualMachine(
    kind="installer",
    name="x",
    title="small",
    accelerated=False,
    vcpus=1,
    memory_mib=512,
    firmware="bios",
    kernel="/pool/kernel",
    initrd="/pool/initrd",
    arguments="a=1 & b",
    disk="/pool/disk",
    console_log="/pool/console",
    discs=(Disc("/pool/medium0"), Disc("/pool/medium1")),
)
CLUSTER = {"discs": (*SPEC.discs, Disc("/images/bundle.iso"))}
KVM = {"accelerated": True}
DISK = {"kernel": None, "initrd": None, "arguments": ""}
BIOS, UEFI = {"firmware": "bios", **DISK}, {"firmware": "uefi", **DISK}
CD, SEED = "devices/disk[@device='cdrom']", "devices/disk[2]"
LAYER = {"discs": (Disc("/layer", "/iso", foreign=True, boots=True),)}
SATA, EMULATED = {"storage": "sata"}, {"accelerated": False}
ON, OFF = [None], []  # elements without that attribute, and no element


@pytest.mark.parametrize(
    ("spec", "changes", "path", "attribute", "values"),
    [
        (SPEC, {}, ".", "type", ["qemu"]),
        (SPEC, {}, "features/tcg/tb-cache", "", ["128"]),
        (SPEC, CLUSTER, "features/tcg/tb-cache", "", ["1024"]),
        (SPEC, {}, "cpu", "mode", ["custom"]),
        (SPEC, {}, "cpu/model", "", ["qemu64"]),
        # x86-64-v2, on top of it
        (SPEC, {}, "cpu/feature", "name", ["ssse3", "sse4.1", "sse4.2", "popcnt"]),
        (SPEC, KVM, ".", "type", ["kvm"]),
        (SPEC, KVM, "features/tcg", "", OFF),
        (SPEC, KVM, "cpu", "mode", ["host-passthrough"]),
        (SPEC, {}, "os/kernel", "", ["/images/k"]),
        (SPEC, {}, "os/initrd", "", ["/images/i"]),
        # On emulated processors of a busy machine the timer's ticks come late, and the kernel
        # panics: "IO-APIC + timer doesn't work". It also replaces the TSC by the HPET, whose every
        # reading leaves the emulated processor.
        (SPEC, {}, "os/cmdline", "", [f"{SPEC.arguments} no_timer_check tsc=reliable"]),
        (SPEC, KVM, "os/cmdline", "", [SPEC.arguments]),
        (SPEC, {}, "os/boot", "", OFF),
        (SPEC, BIOS, "os", "firmware", [None]),
        (SPEC, UEFI, "os", "firmware", ["efi"]),
        (SPEC, BIOS, "os/boot", "dev", ["hd"]),
        (SPEC, UEFI, "os/kernel", "", OFF),
        # the guest cannot write to its seed
        (SPEC, {}, SEED, "device", ["disk"]),
        (SPEC, {}, f"{SEED}/readonly", "", ON),
        (SPEC, {}, f"{SEED}/target", "bus", ["virtio"]),
        (SPEC, {}, "devices/interface/source", "network", ["overlay-3fa9-mgmt", "x"]),
        (SPEC, {}, "devices/interface/mtu", "size", ["1400"]),
        (SPEC, {}, "devices/graphics", "listen", ["127.0.0.1"]),
        # the disk boots before the medium, and media come in order
        (WINDOWS, {}, "devices/disk[boot]/target", "dev", ["vda", "sda"]),
        (WINDOWS, {}, "devices/disk/boot", "order", ["1", "2"]),
        (WINDOWS, {}, f"{CD}/source", "file", ["/iso", "/virtio", "/answers"]),
        (WINDOWS, {}, f"{CD}/target", "bus", ["sata"] * 3),
        (WINDOWS, {}, f"{CD}/source[seclabel]", "file", ["/iso"]),
        (WINDOWS, {}, "os/boot", "", OFF),
        # without drivers, disk and card are of kinds that Windows knows
        (WINDOWS, SATA, "devices/disk[@device='disk']/target", "bus", ["sata"]),
        (WINDOWS, SATA, "devices/interface/model", "type", ["e1000e"]),
        (WINDOWS, SATA, "devices/interface/mtu", "", OFF),
        (WINDOWS, {}, "features/hyperv/*", "state", ["on"] * 3),
        (WINDOWS, {}, "features/hyperv/stimer/direct", "state", ["on"]),
        (WINDOWS, {}, "clock/timer[@name='hypervclock']", "present", ["yes"]),
        (WINDOWS, EMULATED, "features/hyperv", "", OFF),
        (WINDOWS, EMULATED, "clock/timer[@name='hypervclock']", "", OFF),
        (WINDOWS, EMULATED, "cpu/model", "", ["qemu64"]),
        (WINDOWS, {}, "cpu/topology", "sockets", ["1"]),
        (WINDOWS, {}, "cpu/topology", "cores", ["4"]),
        (WINDOWS, {}, "clock", "offset", ["utc"]),
        (WINDOWS, {}, "on_reboot", "", ["restart"]),
        (WINDOWS, {}, "devices/graphics", "listen", ["127.0.0.1"]),
        (WINDOWS, UEFI, "os/firmware/feature", "name", ["enrolled-keys", "secure-boot"]),
        (WINDOWS, UEFI, "os/firmware/feature", "enabled", ["no", "no"]),
        (WINDOWS, UEFI, "os/nvram", "", ["/p/w.fd"]),
        (WINDOWS, LAYER, f"{CD}/driver", "type", ["qcow2"]),
        (WINDOWS, LAYER, f"{CD}/source", "file", ["/layer"]),
        (WINDOWS, LAYER, f"{CD}/backingStore/source", "file", ["/iso"]),
        (WINDOWS, LAYER, f"{CD}/backingStore/source/seclabel", "relabel", ["no"]),
        (INSTALLER, {}, f"{CD}/source", "file", ["/pool/medium0", "/pool/medium1"]),
        (INSTALLER, {}, "on_reboot", "", ["destroy"]),
        (INSTALLER, {}, "devices/interface", "", OFF),
    ],
)
def test_a_domain_has_what_its_machine_needs(spec, changes, path, attribute, values):
    root = ET.fromstring(documents.domain(replace(spec, **changes), ownership.owner_xml(OWNER)))
    matches = root.findall(path)
    assert [one.get(attribute) if attribute else one.text for one in matches] == values


def test_arguments_of_a_kernel_are_escaped():
    assert "<cmdline>a=1 &amp; b" in documents.domain(INSTALLER)


def test_the_drive_of_a_layer_is_found_by_its_file():
    document = documents.domain(replace(WINDOWS, **LAYER), "<x/>")
    assert domains.drives_with(document, "/layer") == ("sda",)


# SECURITY.md: A hypervisor's users are not kept apart.
def test_the_owner_in_an_objects_metadata_is_read_back():
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
def test_an_object_without_a_whole_mark_is_a_stranger_s(document):
    assert ownership.read_owner(document) is None


def test_a_management_network_reserves_an_address_for_each_machine():
    hosts = (Reservation("a", "52:56:00:00:00:0a", "10.201.7.10"),)
    text = documents.nat_network("n", "", "hl1", IPv4Network("10.201.7.0/24"), hosts, mtu=1400)
    assert networks.addresses_of(text) == {"a": "10.201.7.10"}
    assert networks.subnet_of(text) == IPv4Network("10.201.7.0/24")
    assert networks.mtu_of(text) == 1400
    root = ET.fromstring(text)
    assert root.find("forward").get("mode") == "nat"
    assert root.find("ip").get("address") == "10.201.7.1"


def test_a_segment_gives_the_hypervisor_no_address():
    root = ET.fromstring(documents.segment("n", "", "hl1", mtu=1450, uuid=""))
    assert root.find("ip") is None
    assert root.find("forward") is None
    assert root.find("mtu").get("size") == "1450"


def test_bridges_have_names_that_linux_takes():
    segments = (ownership.MANAGEMENT, "cluster", "outside")
    names = {ownership.bridge_name(LAB, segment) for segment in segments}
    assert len(names) == 3
    assert max(map(len, names)) <= 15


def test_labs_of_one_name_have_different_objects():
    other = replace(LAB, token="b" * 16)
    assert ownership.domain_name(LAB, "a") != ownership.domain_name(other, "a")
    assert ownership.object_uuid(LAB, "domain", "a") != ownership.object_uuid(other, "domain", "a")
    assert management.management_mac(LAB, "a") != management.management_mac(other, "a")


def test_management_cards_have_local_unicast_macs():
    first = int(management.management_mac(LAB, "a")[:2], 16)
    assert first & 0b11 == 0b10
