"""Images that a vendor made: their disk, fetched and checked, in the form that ours have."""

from __future__ import annotations

from lab.imaging import disks, inputs, tools
from lab.imaging.job import Built, Job


def build(job: Job) -> Built:
    """Fill the scratch directory with the disk.

    Raises
    ------
    PreflightError
        When it cannot be had, or is not what it must be.
    BrokenError
        When the connection breaks again and again, or a program fails.

    """
    tools.need(job.doing, "qemu-img", "setpriv")
    size = disks.adopt(job, inputs.provide(job))
    inputs.forget(job)
    return Built(virtual_gib=size)
