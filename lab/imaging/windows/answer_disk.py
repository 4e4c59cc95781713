"""What must hold of the disk that an answer file lays out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from xml.etree import ElementTree as ET

from lab.imaging.windows.answer_structure import every, text
from lab.imaging.windows.settings import Firmware

Parts = Mapping[str, ET.Element]
"""Partitions by their number."""
LEAST_EFI = 100
"""MiB of an EFI system partition: the least that a public recipe has."""


def disk_findings(setup: ET.Element | None, firmware: Firmware | None) -> Iterator[str]:
    """Whether the disk suits the firmware, and the partition that Windows goes to is there.

    Parameters
    ----------
    setup
        The component of Setup; None where there is none, which is a finding of others.

    """
    if setup is None:
        return
    made = {text(one, "Order"): one for one in every(setup, "CreatePartition")}
    changed = {text(one, "PartitionID"): one for one in every(setup, "ModifyPartition")}
    found = [*_target(setup, made, changed), *_sizes(made)]
    found += _bios(made, changed) if firmware == "bios" else _uefi(made, changed)
    yield from (f"windowsPE: Microsoft-Windows-Setup: {one}" for one in found)


def _target(setup: ET.Element, made: Parts, changed: Parts) -> Iterator[str]:
    """Windows goes to a partition that is made for it."""
    target = text(setup, "ImageInstall/OSImage/InstallTo/PartitionID")
    number = text(setup, "ImageInstall/OSImage/InstallTo/DiskID")
    if any(text(disk, "DiskID") != number for disk in every(setup, "Disk")):
        yield f"InstallTo/DiskID: {number} is not the disk that is partitioned"
    if target not in made:
        yield f"InstallTo/PartitionID: there is no partition {target}"
    elif (text(made[target], "Type"), text(changed.get(target), "Format")) != ("Primary", "NTFS"):
        yield f"InstallTo/PartitionID: partition {target} is not a primary one of NTFS"
    elif text(changed.get(target), "Letter") != "C":
        yield f"ModifyPartition/Letter: partition {target} is not C, which scripts rely on"
    for one in sorted(changed.keys() - made.keys()):
        yield f"ModifyPartition/PartitionID: there is no partition {one}"


def _sizes(made: Parts) -> Iterator[str]:
    """Every partition has a size but the last, which takes what is left."""
    for order in sorted(made):
        last = order == max(made)
        if bool(text(made[order], "Extend")) != last or bool(text(made[order], "Size")) == last:
            wanted = "Extend and no Size" if last else "a Size and no Extend"
            yield f"CreatePartition {order}: it needs {wanted}"


def _bios(made: Parts, changed: Parts) -> Iterator[str]:
    """Primary partitions, one of them active."""
    kinds = [text(made[order], "Type") for order in sorted(made)]
    if set(kinds) - {"Primary"}:
        yield f"CreatePartition/Type: BIOS starts no disk of {', '.join(kinds)}"
    active = [one for one, part in changed.items() if text(part, "Active")]
    if len(active) != 1:
        yield f"ModifyPartition/Active: BIOS starts one active partition, not {len(active)}"
    for one in active:
        if text(changed[one], "Format") != "NTFS":
            yield f"ModifyPartition {one}: the active partition is not formatted with NTFS"


def _uefi(made: Parts, changed: Parts) -> Iterator[str]:
    """EFI's system partition, Microsoft's reserved one, and those of data."""
    if any(text(part, "Active") for part in changed.values()):
        yield "ModifyPartition/Active: UEFI's disks have no active partition"
    kinds = [text(made[order], "Type") for order in sorted(made)]
    if kinds[:2] != ["EFI", "MSR"] or set(kinds[2:]) != {"Primary"}:
        yield f"CreatePartition/Type: UEFI needs EFI, MSR, Primary, not {', '.join(kinds)}"
        return
    if text(changed.get("1"), "Format") != "FAT32":
        yield "ModifyPartition 1: EFI's system partition is not formatted with FAT32"
    size = text(made.get("1"), "Size")
    if size.isdigit() and int(size) < LEAST_EFI:
        yield f"CreatePartition 1: EFI's system partition has less than {LEAST_EFI} MiB"
