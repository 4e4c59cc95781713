"""A golden image: a built, generalised disk, named by the hash of all that went into it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from lab.scenario.scenario import Os

Firmware = Literal["kernel", "bios", "uefi"]
"""How it boots. ``kernel``: the hypervisor loads kernel and initrd itself (fastest)."""
FirstBoot = Literal["light", "cloud-init", "windows"]
"""Who reads the seed: the light script of our own images, cloud-init, or Windows' answer file."""

Storage = Literal["virtio", "sata"]


@dataclass(frozen=True, slots=True)
class GoldenImage:
    """One image in the cache, complete and never changed again."""

    name: str
    """The recipe's: ``debian-12``."""
    digest: str
    """Hex SHA-256 of recipe, templates and inputs."""
    os: Os
    disk: Path
    """A qcow2 file without a backing file."""
    virtual_gib: int
    """Size that the guest sees; a clone may be larger, never smaller."""
    firmware: Firmware
    kernel: Path | None
    initrd: Path | None
    arguments: str
    """Kernel command line; empty unless ``firmware`` is ``kernel``."""
    first_boot: FirstBoot
    user: str
    """Who logs in with the lab's key, and may become root without a password."""
    storage: Storage = "virtio"
    """What disk and network cards its drivers are for; ``sata`` stands for e1000e, too."""
