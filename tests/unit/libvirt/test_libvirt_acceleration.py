"""The tiny guest of "lab doctor", without any hypervisor."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest

from lab.providers.libvirt import documents, host, storage


@pytest.mark.parametrize(
    ("said", "where"),
    [
        (b"", "it does not start to boot"),
        (b"\xff\x00\x1b[2JSeaBIOS (version 1.16.2)\r\n", "its firmware begins"),
    ],
)
def test_guest_that_does_not_come_to_its_end_is_told(said: bytes, where: str) -> None:
    judged = host.judge_trial("kvm", said, "and then stops")
    assert not judged.works
    assert judged.detail == f"no guest runs with KVM: {where}, and then stops"


def test_guest_whose_firmware_comes_to_its_end_has_worked() -> None:
    assert host.judge_trial("tcg", b"SeaBIOS\r\nNo bootable device.\r\n", "").works


@pytest.mark.parametrize(("kind", "written"), [("kvm", "kvm"), ("tcg", "qemu")])
def test_guest_has_no_network_and_no_disk_and_ends_with_whatever_happens(
    kind: host.Acceleration, written: str
) -> None:
    domain = ET.fromstring(documents.trial_domain("x", kvm=kind == "kvm"))
    assert domain.get("type") == written
    assert domain.find("devices/interface") is None
    assert domain.find("devices/disk") is None
    assert [domain.findtext(f"on_{event}") for event in ("poweroff", "reboot", "crash")] == [
        "destroy"
    ] * 3


def test_pool_of_a_killed_process_is_known_after_a_while() -> None:
    name = storage.scratch_name(1_800_000_000.7)
    assert not storage.is_abandoned(name, 1_800_000_100)
    assert storage.is_abandoned(name, 1_800_001_000)


@pytest.mark.parametrize(
    "name", ["default", "hybridlab-trial", "hybridlab-trial-1800000000", "hybridlab-images"]
)
def test_other_pools_are_not_taken_for_one(name: str) -> None:
    assert not storage.is_abandoned(name, 9_000_000_000)
