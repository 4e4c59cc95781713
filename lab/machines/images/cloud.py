"""Vendors' cloud images: downloads, checks and converts a disk."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from lab._deadline import Deadline
from lab._errors import PreflightError
from lab.machines.images.golden import DISK, Built
from lab.machines.images.job import BuildJob
from lab.shells import programs

_GIB = 1 << 30
_SECONDS = 3600.0


def build(job: BuildJob) -> Built:
    """Fill the scratch directory with the disk.

    Raises PreflightError when the disk cannot be downloaded, or is not as expected. Raises
    BrokenError when the connection breaks repeatedly, or a program fails.
    """
    programs.need(job.action, "qemu-img", "setpriv")
    size = adopt(job, job.inputs.fetch_file())
    job.inputs.remove_downloads()
    return Built(virtual_gib=size)


def adopt(job: BuildJob, disk: Path) -> int:
    """Make a vendor's disk the image's own: uncompressed qcow2 without a backing file, grown.

    Returns the size in GiB that a guest sees, rounded up.

    Raises PreflightError when it is not a disk, or depends on another file.
    """
    facts = _facts(job, disk)
    size = int(str(facts["virtual-size"]))
    job.room(int(str(facts.get("actual-size", 0))), "the disk")
    target = str(job.scratch / DISK)
    form = str(facts["format"])
    job.tell(f"converting the disk, {size / _GIB:.1f} GiB as a guest sees it")
    command = ["qemu-img", "convert", "-f", form, "-O", "qcow2", str(disk), target]
    programs.run(job.action, command, Deadline(_SECONDS))
    whole = max(job.recipe.disk_gib, -(-size // _GIB))
    if whole * _GIB > size:
        grow = ["qemu-img", "resize", "-q", "-f", "qcow2", target, f"{whole}G"]
        programs.run(job.action, grow, Deadline(_SECONDS))
    return whole


def _facts(job: BuildJob, disk: Path) -> Mapping[str, object]:
    text = programs.read_output(["qemu-img", "info", "--output=json", str(disk)])
    if not text:
        raise PreflightError(job.action, f"'{disk}' is not a disk that qemu-img can read")
    facts: dict[str, object] = json.loads(text)
    specific = facts.get("format-specific")
    data = specific.get("data", {}) if isinstance(specific, dict) else {}
    other = facts.get("backing-filename") or data.get("data-file")
    if other:
        raise PreflightError(
            job.action,
            f"'{disk}' depends on another file, '{other}'",
            "use a disk without a backing file, which would be read with this command's rights",
        )
    if facts["format"] == "raw" and _boot_mark(disk) != b"\x55\xaa":
        raise PreflightError(
            job.action,
            f"'{disk}' is not a disk: it has neither a qcow2 header nor a boot sector",
            "check it with 'file'; the address may lead to a web page",
        )
    return facts


def _boot_mark(disk: Path) -> bytes:
    with disk.open("rb") as file:
        return file.read(512)[510:]
