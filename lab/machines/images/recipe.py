"""A recipe for one golden image, the content of ``images/<name>/image.yaml``. Frozen data.

The sections of the file are pydantic models.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, Field, WithJsonSchema

from lab.machines.images.terms import (
    PATTERN,
    Edition,
    FirstBoot,
    Region,
    Storage,
    Surface,
    WantedImage,
    Year,
)
from lab.scenario import values
from lab.scenario.findings import quoted
from lab.scenario.terms import Os
from lab.scenario.values import Disk, Label, Memory, Section, Sentence, Unwritten, annotate

Kind = Literal["bootstrap", "cloud", "iso", "windows"]
Architecture = Literal["x86_64", "aarch64"]
Answers = Literal["initrd", "cidata", "oemdrv"]
"""How an installer gets its answer files: in a second initramfs, or on a medium with that label."""
WindowsPhase = Literal[
    "starting", "disk", "copy", "specialize", "oobe", "first-logon", "ready", "sysprep"
]
"""A stage of a Windows installation, from the firmware's start to a generalised disk."""
_ELSEWHERE = {"release", "edition", "surface", "locale", "keyboard", "time_zone", "time_server"}
"""Fields that a digest contains as ``wanted`` and ``region``, and the one of clones alone."""
_SHA256 = r"^[0-9a-f]{64}$"
_URL = r"^https?://[^/\s]+/\S+$"
_INSIDE = r"^/[^\s]+$"
_LOCALE = r"^[a-z]{2,3}(-[A-Z][a-z]{3})?-[A-Z]{2}$"
_KEYBOARD = r"^[0-9a-f]{4}:[0-9a-f]{8}$"
_TIME_ZONE = r"^[A-Z][A-Za-z0-9 .()+-]*$"
_WORD = r"^[A-Za-z0-9][-A-Za-z0-9_.+:]*$"


def _make_pattern_check(pattern: str, wanted: tuple[str, str]) -> Any:
    def check(value: object) -> str:
        written = values.text(value).strip()
        if not re.search(pattern, written):
            raise values.wrong(f"{quoted(written)} is not a valid {wanted[0]}", wanted[1])
        return written

    return check


def _text(pattern: str, wanted: tuple[str, str], example: str) -> Any:
    """Annotations of a text value that must match ``pattern``."""
    return annotate(_make_pattern_check(pattern, wanted), pattern, example)


def _expression(value: object) -> str:
    written = values.text(value)
    try:
        re.compile(written)
    except re.error as error:
        problem = f"{quoted(written)} is not a regular expression: {error}"
        raise values.wrong(
            problem, "correct it, or put a backslash before characters that are meant literally"
        ) from None
    return written


Digest = Annotated[
    str, *_text(_SHA256, ("SHA-256 in hex", "write 64 digits of 0-9 and a-f"), "0" * 64)
]
Url = Annotated[
    str,
    *_text(_URL, ("file address", 'write it like "https://..."'), "https://vendor.example/a"),
]
Inside = Annotated[
    str,
    *_text(_INSIDE, ("path within a medium", 'begin it with "/"'), "/install.amd/vmlinuz"),
]
Word = Annotated[str, *_text(_WORD, ("name", 'use letters, digits, "-", "_", "." and "+"'), "curl")]
ProductKey = Annotated[
    str,
    *_text(
        PATTERN,
        ("product key", "write five groups of five letters and digits"),
        "XXXXX-" * 4 + "XXXXX",
    ),
]
Locale = Annotated[str, *_text(_LOCALE, ("language name", 'write it like "en-US"'), "en-US")]
Keyboard = Annotated[
    str,
    *_text(
        _KEYBOARD,
        ("keyboard layout", 'write language and layout in hex, like "0409:00000409"'),
        "0409:00000409",
    ),
]
TimeZone = Annotated[
    str,
    *_text(
        _TIME_ZONE,
        ("Windows time zone", 'use a name that "tzutil /l" lists, like "UTC"'),
        "W. Europe Standard Time",
    ),
]
Minutes = Annotated[int, Field(ge=1, le=1440)]
Expression = Annotated[
    str,
    BeforeValidator(_expression),
    WithJsonSchema({"type": "string", "examples": ["Installing the base system"]}),
]
Words = Annotated[list[Word], Field(min_length=1)]


class Bootstrap(Section):
    """A root file system made from packages by mmdebstrap, from the host's own mirror."""

    distribution: Word = Field(description='"ID" in os-release.', examples=["debian"])
    suite: Word = Field(description="Release whose packages are taken.", examples=["bookworm"])
    packages: Words = Field(description="Packages beyond the essential ones.", examples=[["curl"]])
    modules: Words = Field(
        description="Kernel modules that the initramfs loads.", examples=[["virtio_blk"]]
    )
    arguments: Sentence = Field(description="Kernel command line.", examples=["console=ttyS0"])


class Cloud(Section):
    """A vendor's disk, downloaded."""

    url: Url = Field(description="The vendor's address of the disk.")
    sha256: Digest | None = Field(default=None, description="Its SHA-256.")
    checksums: Url | None = Field(
        default=None,
        description="The vendor's checksum list (SHA-256 or SHA-512), used if neither the recipe "
        "nor the inventory has sha256.",
    )


class Phase(Section):
    """A stage of an installation."""

    name: Sentence = Field(description="What is being done.", examples=["copying packages"])
    sees: Expression = Field(description="Regular expression on a line of the console.")


class Iso(Section):
    """A vendor's installer medium, which the user provides."""

    medium: Sentence = Field(
        description="What to get, as text.", examples=["the first DVD of Debian 12 for amd64"]
    )
    sha256: Digest | None = Field(default=None, description="Its SHA-256.")
    kernel: Inside = Field(description="Path of the kernel within the medium.")
    initrd: Inside = Field(description="Path of the initramfs within the medium.")
    arguments: Sentence = Field(
        description="Kernel command line; {{ label }} is the medium's volume name.",
        examples=["console=ttyS0"],
    )
    answers: Answers = Field(
        description="How the answer files reach the installer: in a second initramfs, or on a "
        "medium labelled cidata or OEMDRV.",
        examples=["initrd"],
    )
    memory_mib: Memory = Field(
        alias="memory", description="Memory for the installation.", examples=["2GiB"]
    )
    vcpus: int = Field(default=2, ge=1, le=64, description="Processors for the installation.")
    minutes: int = Field(ge=1, le=1440, description="Time limit when emulated.", examples=[120])
    done: Sentence = Field(
        description="Text that the last command of the answers prints on the console.",
        examples=["hybridlab: installed"],
    )
    mirror: Word | None = Field(
        default=None, description="Distribution whose package mirror the answers need."
    )
    suite: Word | None = Field(default=None, description="Release on that mirror.")
    packages: list[Word] = Field(default=[], description="Packages that the answers ask for.")
    phases: list[Phase] = Field(default=[], description="Stages in order.")


class KnownMedium(Section):
    """A medium with a known digest."""

    name: Sentence = Field(description="Name of the vendor's file.", examples=["vendor.iso"])
    sha256: Digest = Field(description="Its SHA-256.")


class Deadlines(Section):
    """Minutes that each phase of an installation may take; ten times as many when emulated."""

    starting: Minutes = Field(default=5, description="Firmware and boot loader.")
    winpe: Minutes = Field(default=10, description="Windows PE; added to 'starting'.")
    disk: Minutes = Field(default=10, description="The disk is partitioned and written to.")
    copy_: Minutes = Field(default=45, alias="copy", description="Windows is copied to the disk.")
    specialize: Minutes = Field(default=30, description="First start from the disk: drivers.")
    oobe: Minutes = Field(default=20, description="Second start, and the first logon.")
    first_logon: Minutes = Field(default=30, description="The lab's own script sets up shells.")
    ready: Minutes = Field(default=30, description="Steps over the shell, with their reboots.")
    sysprep: Minutes = Field(default=30, description="Generalised and shut down.")


class Windows(Section):
    """Microsoft's installation medium, which the user provides, installed unattended."""

    release: Annotated[Year, BeforeValidator(values.text)] = Field(
        description="Release, in quotes.", examples=["2022"]
    )
    edition: Edition = Field(default="standard", description="Edition of the release.")
    surface: Surface = Field(
        default="core", description="core: no graphical shell; desktop: with it."
    )
    virtio: bool = Field(
        default=True,
        description="Whether disk and network card are virtio, which needs the virtio-win medium.",
    )
    key: ProductKey | None = Field(
        default=None,
        repr=False,
        description="Product key; default: Microsoft's public KMS client key on volume media, "
        "none on evaluation media, which accept none.",
    )
    locale: Locale = Field(
        default="en-US", description="Language of system and users; the medium must have it."
    )
    keyboard: Keyboard = Field(
        default="0409:00000409", description="Language and layout of the keyboard, in hex."
    )
    time_zone: TimeZone = Field(default="UTC", description="Time zone, as Windows names it.")
    time_server: Word | None = Field(
        default=None,
        description="NTP server of clones; default: the hypervisor's clock at each start alone.",
        examples=["192.0.2.1"],
    )
    medium: Sentence = Field(
        description="What to get, as text.", examples=["the ISO of Windows Server 2022"]
    )
    known: list[KnownMedium] = Field(
        default=[], description="Published media; others are accepted too."
    )
    memory_mib: Memory = Field(
        alias="memory", description="Memory for the installation.", examples=["4GiB"]
    )
    vcpus: int = Field(default=2, ge=1, le=64, description="Processors for the installation.")
    deadlines: Deadlines = Field(
        default=Deadlines(), description="Minutes that each phase may take."
    )

    @property
    def wanted(self) -> WantedImage:
        """The selection among a medium's images."""
        return WantedImage(self.release, self.edition, self.surface)

    @property
    def storage(self) -> Storage:
        """Disk and network devices of its machines."""
        return "virtio" if self.virtio else "sata"

    @property
    def region(self) -> Region:
        """Language, keyboard and time zone of its guests."""
        return Region(self.locale, self.keyboard, self.time_zone)

    @property
    def minutes(self) -> Mapping[WindowsPhase, int]:
        """Minutes that each phase may take."""
        minutes = self.deadlines.model_dump(by_alias=True)
        minutes["starting"] += minutes["winpe"]  # the transition cannot be seen from outside
        return {phase: minutes[phase.replace("-", "_")] for phase in get_args(WindowsPhase)}


class Recipe(Section):
    """An image recipe as its author writes it; it has exactly one of the four sections."""

    name: Label = Field(description="Name of the image and of its folder.", examples=["debian-12"])
    summary: Sentence = Field(description="What the image is, in one line.")
    os: Os = Field(default="linux", description="Operating system.")
    architecture: Architecture = Field(default="x86_64", description="Processor it runs on.")
    disk_gib: Disk = Field(alias="disk", description="Size of the disk that a machine sees.")
    firmware: Literal["kernel", "bios", "uefi"] = Field(
        description="How it boots; kernel: with the image's own kernel and initramfs.",
        examples=["bios"],
    )
    first_boot: FirstBoot = Field(
        description=("What configures the machine at its first boot."), examples=["cloud-init"]
    )
    user: Word = Field(description="Account that logs in with the lab's key.", examples=["root"])
    templates: Label | None = Field(
        default=None, description="Folder of templates (default: the recipe's own)."
    )
    bootstrap: Bootstrap | None = Field(default=None, description="Made from packages.")
    cloud: Cloud | None = Field(default=None, description="A vendor's disk.")
    iso: Iso | None = Field(default=None, description="A vendor's installer, run unattended.")
    windows: Windows | None = Field(
        default=None, description="Windows Server from Microsoft's medium, unattended."
    )
    files: Unwritten[Mapping[str, bytes]] = Field(default={})
    """Every file of the template folder by relative path."""
    path: Unwritten[str] = ""
    """The recipe's own file."""

    @property
    def kind(self) -> Kind:
        """The section that it has."""
        if self.bootstrap:
            return "bootstrap"
        if self.windows:
            return "windows"
        return "cloud" if self.cloud else "iso"

    def described(self) -> dict[str, object]:
        """Everything that the image depends on except templates, in a canonical form."""
        parts: dict[str, object] = {
            name: getattr(self, name)
            for name in ("name", "os", "architecture", "disk_gib", "firmware", "first_boot", "user")
        }
        for kind in get_args(Kind):
            section = getattr(self, kind)
            parts[kind] = section.model_dump() if section else None
        if self.windows:
            parts["windows"] = {
                **self.windows.model_dump(exclude=_ELSEWHERE),
                "wanted": asdict(self.windows.wanted),
                "region": asdict(self.windows.region),
                "deadlines": dict(self.windows.minutes),
            }
        return {**parts, "summary": "", "path": "", "templates": {}}
