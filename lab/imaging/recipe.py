"""A recipe: how one golden image is made, as ``images/<name>/image.yaml`` has it. Frozen data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from lab.imaging.golden import FirstBoot
from lab.scenario.scenario import Os

Kind = Literal["bootstrap", "cloud", "iso"]
Architecture = Literal["x86_64", "aarch64"]
Answers = Literal["initrd", "cidata", "oemdrv"]
"""How answer files reach an installer: in a second initramfs, or on a medium of that label."""


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """A root file system made from packages by mmdebstrap."""

    distribution: str
    """As ``ID`` in os-release has it: whose packages the mirror must hold."""
    suite: str
    packages: tuple[str, ...]
    modules: tuple[str, ...]
    """Kernel modules that the initramfs loads, those they need before them."""
    arguments: str


@dataclass(frozen=True, slots=True)
class Cloud:
    """A vendor's disk, taken as it is."""

    url: str
    sha256: str | None
    checksums: str | None
    """Address of the vendor's own list of digests, ``SHA256SUMS`` or ``SHA512SUMS``."""


@dataclass(frozen=True, slots=True)
class Phase:
    """A stage of an installation, known by what it writes on the console."""

    name: str
    sees: str
    """A regular expression."""


@dataclass(frozen=True, slots=True)
class Iso:
    """A vendor's installer medium and the answers to its questions."""

    medium: str
    """What to get, in words."""
    sha256: str | None
    kernel: str
    """Path within the medium."""
    initrd: str
    arguments: str
    """A template: ``{{ label }}`` is the volume's name, ``{{ mirror }}`` the package mirror."""
    answers: Answers
    memory_mib: int
    vcpus: int
    minutes: int
    """How long the installation may take on an emulated processor."""
    done: str
    """What the last command of the installation writes on the console."""
    mirror: str | None
    """Distribution whose package mirror the answers need; None if the medium is enough."""
    suite: str | None
    packages: tuple[str, ...]
    phases: tuple[Phase, ...]


@dataclass(frozen=True, slots=True)
class Recipe:
    """One image: exactly one of ``bootstrap``, ``cloud`` and ``iso`` is there."""

    name: str
    summary: str
    os: Os
    architecture: Architecture
    disk_gib: int
    """Size that the guest sees."""
    firmware: Literal["kernel", "bios", "uefi"]
    first_boot: FirstBoot
    user: str
    bootstrap: Bootstrap | None
    cloud: Cloud | None
    iso: Iso | None
    templates: Mapping[str, bytes]
    """Every file of the template folder, by its path in it."""
    path: str

    @property
    def kind(self) -> Kind:
        """Which of the three it is."""
        if self.bootstrap:
            return "bootstrap"
        return "cloud" if self.cloud else "iso"
