"""The words of image recipes; those of Windows Server: releases, editions, regions, secrets.

Build numbers and image names are those of Microsoft's media; the keys are Microsoft's published
KMS client keys, which activate nothing without a KMS host.
"""

from __future__ import annotations

import secrets
import string
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

FirstBoot = Literal["light", "cloud-init", "windows"]
"""What reads the seed: the script of light images, cloud-init, or Windows' answer file."""

Storage = Literal["virtio", "sata"]
"""``sata`` needs no driver: the fallback without a virtio-win medium."""

Year = Literal["2019", "2022", "2025"]
Edition = Literal["standard", "datacenter"]
Surface = Literal["core", "desktop"]
"""Without or with the graphical shell."""


@dataclass(frozen=True, slots=True)
class Release:
    """One release of Windows Server."""

    year: Year
    build: int
    least_revision: int
    """Lowest usable revision (fourth part of the version) of the build."""
    why: str
    """What older revisions lack; empty if all are usable."""
    drivers: str
    """Name of its folders on the virtio-win medium."""
    keys: Mapping[Edition, str]
    """KMS client keys for volume media."""

    @property
    def name(self) -> str:
        """The full product name."""
        return f"Windows Server {self.year}"


def _keys(standard: str, datacenter: str) -> Mapping[Edition, str]:
    return {"standard": standard, "datacenter": datacenter}


_VXLAN = "VXLAN overlay networks need KB4489899 (March 2019)"
_2019 = _keys("N69G4-B89J2-4G8F4-WWYCC-J464C", "WMDGN-G9PQG-XVVXX-R3X43-63DFG")
_2022 = _keys("VDYBN-27WPP-V4HQT-9VMD4-VMK7H", "WX4NM-KYWYW-QJJR4-XV3QB-6VM33")
_2025 = _keys("TVRH6-WHNXV-R9WG3-9XRFY-MY832", "D764K-2NDRG-47T6Q-P8T8W-YP6DF")
RELEASES: Mapping[Year, Release] = {
    "2019": Release("2019", 17763, 379, _VXLAN, "2k19", _2019),
    "2022": Release("2022", 20348, 0, "", "2k22", _2022),
    "2025": Release("2025", 26100, 0, "", "2k25", _2025),
}


@dataclass(frozen=True, slots=True)
class WantedImage:
    """A selection among a medium's images."""

    year: Year
    edition: Edition
    surface: Surface

    @property
    def release(self) -> Release:
        """Its release."""
        return RELEASES[self.year]

    @property
    def name(self) -> str:
        """NAME in the WIM, on evaluation and volume media alike."""
        core = "CORE" if self.surface == "core" else ""
        return f"{self.release.name} SERVER{self.edition.upper()}{core}"


Firmware = Literal["bios", "uefi"]


@dataclass(frozen=True, slots=True)
class Region:
    """Language, keyboard and time zone of a guest."""

    locale: str = "en-US"
    """Locale of system, user and user interface; the medium must have it."""
    keyboard: str = "0409:00000409"
    time_zone: str = "UTC"
    """Windows' name of a time zone: ``UTC``, ``W. Europe Standard Time``."""


TIME_ZONES = frozenset(
    Path(__file__).with_name("time_zones.txt").read_text(encoding="ascii").splitlines()
)
"""Names of Windows time zones, as ``tzutil /l`` lists them.

From CLDR (``windowsZones.xml`` in tzlocal 5.4.5), and two that only Windows still has. A name that
Setup does not know stops it in the middle of specialize.
"""


LENGTH = 24
"""Characters, some 143 bits; Windows accepts up to 127."""
_KINDS = (string.ascii_uppercase, string.ascii_lowercase, string.digits, "-_.")
"""All four classes of Windows' complexity rule, which requires three. No character is special in
cmd, PowerShell, XML, JSON or the user part of a URL.
"""
SECRET = "product-key"  # noqa: S105  a name
"""Secret in the inventory: the key of every Windows image; the key for one image has the image's
name appended, ``product-key-windows-server-2022``.
"""
PATTERN = r"^[A-Z0-9]{5}(-[A-Z0-9]{5}){4}$"


def random_password() -> str:
    """A new password that satisfies Windows' complexity rule; it begins with a letter."""
    characters = "".join(_KINDS)
    made = ""
    while not (made[:1].isalpha() and all(set(made) & set(kind) for kind in _KINDS)):
        made = "".join(secrets.choice(characters) for _ in range(LENGTH))
    return made


def secret_name(image: str, known: Collection[str]) -> str | None:
    """Name of the secret with an image's product key; None if the inventory has none."""
    return next((name for name in (f"{SECRET}-{image}", SECRET) if name in known), None)
