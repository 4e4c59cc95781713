"""What must hold of the disk that an answer file lays out."""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree import ElementTree as ET

from lab.imaging.windows.answer_structure import every, text
from lab.imaging.windows.settings import Firmware

LEAST_EFI = 100
"""MiB of an EFI system partition, by Microsoft's reference."""


def disk_findings(setup: ET.Element | None, firmware: Firmware | None) -> Iterator[str]:
    """Whether the disk suits the firmware, and the partition that Windows goes to is there.

    Parameters
    ----------
    setup
        The component of Setup; None where there is none, which is a finding of others.

    """
    if setup is None:
        return
    where = "windowsPE: Microsoft-Windows-Setup"
    disk = every(setup, "Disk")[:1]
    made = {text(one, "Order"): one for one in every(setup, "CreatePartition")}
    changed = {text(one, "PartitionID"): one for one in every(setup, "ModifyPartition")}
    target = text(setup, "ImageInstall/OSImage/InstallTo/PartitionID")
    number = text(setup, "ImageInstall/OSImage/InstallTo/DiskID")
    if disk and number != text(disk[0], "DiskID"):
        yield f"{where}: InstallTo/DiskID: {number} is not the disk that is partitioned"
    if target not in made:
        yield f"{where}: InstallTo/PartitionID: there is no partition {target}"
    elif (text(made[target], "Type"), text(changed.get(target), "Format")) != ("Primary", "NTFS"):
        yield f"{where}: InstallTo/PartitionID: partition {target} is not a primary one of NTFS"
    for one in sorted(changed.keys() - made.keys()):
        yield f"{where}: ModifyPartition/PartitionID: there is no partition {one}"
    yield from _sizes(where, made)
    kinds = [text(made[order], "Type") for order in sorted(made)]
    active = [one for one, part in changed.items() if text(part, "Active")]
    yield from _efi(where, made, changed) if firmware == "uefi" else ()
    if firmware == "uefi" and active:
        yield f"{where}: ModifyPartition/Active: UEFI's disks have no active partition"
    if firmware == "bios" and set(kinds) - {"Primary"}:
        yield f"{where}: CreatePartition/Type: BIOS starts no disk of {', '.join(kinds)}"
    if firmware == "bios" and len(active) != 1:
        at = f"{where}: ModifyPartition/Active"
        yield f"{at}: BIOS starts one active partition, not {len(active)}"


def _sizes(where: str, made: dict[str, ET.Element]) -> Iterator[str]:
    """Every partition has a size but the last, which takes what is left."""
    for order in sorted(made):
        last = order == max(made)
        if bool(text(made[order], "Extend")) != last or bool(text(made[order], "Size")) == last:
            wanted = "Extend and no Size" if last else "a Size and no Extend"
            yield f"{where}: CreatePartition {order}: it needs {wanted}"


def _efi(where: str, made: dict[str, ET.Element], changed: dict[str, ET.Element]) -> Iterator[str]:
    """EFI's system partition, Microsoft's reserved one, and those of data."""
    kinds = [text(made[order], "Type") for order in sorted(made)]
    if kinds[:2] != ["EFI", "MSR"] or set(kinds[2:]) != {"Primary"}:
        yield f"{where}: CreatePartition/Type: UEFI needs EFI, MSR, Primary, not {', '.join(kinds)}"
        return
    if text(changed.get("1"), "Format") != "FAT32":
        yield f"{where}: ModifyPartition 1: EFI's system partition is not formatted with FAT32"
    size = text(made["1"], "Size")
    if size.isdigit() and int(size) < LEAST_EFI:
        yield f"{where}: CreatePartition 1: EFI's system partition has less than {LEAST_EFI} MiB"
