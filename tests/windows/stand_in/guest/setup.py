"""Setup: pass windowsPE, from the medium to the first restart."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from stand_in.guest import answer, disk, drives, images, order
from stand_in.guest.record import Record
from stand_in.guest.screen import StopError, say, show
from stand_in.guest.state import CACHED, State

MEDIUM = Path("/cd")
FOLDER = MEDIUM / "stand-in"
MODULES = Path("/programs/modules")
NAME = "autounattend.xml"
SECONDS = 10.0
"""Seconds to wait for a disk."""


def run() -> None:
    """Run the whole pass; the machine must be restarted afterwards."""
    record = Record()
    firmware = "uefi" if Path("/sys/firmware/efi").exists() else "bios"
    letters = drives.mounted()
    text, told = _answer(letters, record)
    order.run("windowsPE", told.commands("windowsPE/Setup"), record, say)
    all_images = images.read(MEDIUM / "sources/install.wim")
    image = images.chosen(all_images, told)
    record.add("image", name=image.name, build=image.build, revision=image.revision)
    drivers = _drivers(letters, told, image, record)
    name = disk.found(SECONDS)
    if name is None:
        raise StopError("no disk: Setup has no driver for it, and asks for one")
    show(f"Installing {image.name}")
    disk.partition(name, told.partitions, told.target, firmware)
    record.add("disk", firmware=firmware, name=name)
    _keep(text, record, State("specialize", drivers))
    disk.lay_down(name, disk.Source(FOLDER, firmware))
    record.add("laid-down")


def _answer(letters: drives.Drives, record: Record) -> tuple[bytes, answer.Answer]:
    found = drives.in_roots(letters, NAME)
    if not found:
        raise StopError(f"no drive has {NAME}: Setup shows its first page and waits")
    record.add("answer-file", path=str(found[0]))
    text = found[0].read_bytes()
    return text, answer.Answer(text)


def _drivers(
    letters: drives.Drives,
    told: answer.Answer,
    image: images.Image,
    record: Record,
) -> tuple[str, ...]:
    """Install the drivers at the paths, and start those that have an equivalent here."""
    folders = [place for path in told.drivers if (place := drives.resolve(letters, path))]
    names = images.drivers(folders, image)
    record.add("drivers", asked=list(told.drivers), found=list(names))
    start_drivers(names)
    return names


def start_drivers(names: tuple[str, ...]) -> None:
    """Load the equivalent Linux modules."""
    for name, modules in json.loads((MODULES / "drivers.json").read_text()).items():
        if name.lower() in names:
            for module in modules:
                command = ["/bin/busybox", "insmod", str(MODULES / module)]
                subprocess.run(
                    command, capture_output=True, check=False
                )  # it may be loaded already


def _keep(text: bytes, record: Record, state: State) -> None:
    CACHED.parent.mkdir(parents=True)
    CACHED.write_bytes(text)
    state.save()
    record.keep(Path("/c/stand-in/record.json"))
