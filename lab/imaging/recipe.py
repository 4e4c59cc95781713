"""A recipe: how one golden image is made, as ``images/<name>/image.yaml`` has it. Frozen data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from lab.imaging.golden import FirstBoot
from lab.imaging.windows.release import Wanted
from lab.imaging.windows.settings import Region
from lab.scenario.scenario import Os

Kind = Literal["bootstrap", "cloud", "iso", "windows"]
Architecture = Literal["x86_64", "aarch64"]
Answers = Literal["initrd", "cidata", "oemdrv"]
"""How answer files reach an installer: in a second initramfs, or on a medium of that label."""
WindowsPhase = Literal[
    "starting", "winpe", "disk", "copy", "specialize", "oobe", "first-logon", "ready", "sysprep"
]
"""A stage of an installation of Windows: from the firmware's start to a generalised disk."""


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
class KnownMedium:
    """A medium whose digest is known; others are taken too."""

    name: str
    """Its file's name, as Microsoft gives it."""
    sha256: str


@dataclass(frozen=True, slots=True)
class Windows:
    """Microsoft's installation medium, and what its answer file is to say."""

    wanted: Wanted
    virtio: bool
    """Whether disk and card are virtio's, which needs the virtio-win medium."""
    key: str | None = field(repr=False)
    """Product key; None for the one that fits the medium, which may be none."""
    region: Region
    medium: str
    """What to get, in words."""
    known: tuple[KnownMedium, ...]
    memory_mib: int
    vcpus: int
    deadlines: Mapping[WindowsPhase, int]
    """Minutes that each phase may take, every one of them; where the processor is emulated
    :data:`EMULATED` times as long."""


EMULATED = 10
"""How many times longer a phase may take where the processor is emulated: a guess, since no Windows
has been run so."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """One image: exactly one of ``bootstrap``, ``cloud``, ``iso`` and ``windows`` is there."""

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
    windows: Windows | None
    templates: Mapping[str, bytes]
    """Every file of the template folder, by its path in it."""
    path: str

    @property
    def kind(self) -> Kind:
        """Which of the four it is."""
        if self.bootstrap:
            return "bootstrap"
        if self.windows:
            return "windows"
        return "cloud" if self.cloud else "iso"
