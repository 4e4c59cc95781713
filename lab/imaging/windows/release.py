"""Releases of Windows Server: what differs between them, as data.

Build numbers and image names are those of Microsoft's media; the keys are Microsoft's published
KMS client keys, which activate nothing without a KMS host.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Year = Literal["2019", "2022", "2025"]
Edition = Literal["standard", "datacenter"]
Surface = Literal["core", "desktop"]
"""Without or with the graphical shell."""


@dataclass(frozen=True, slots=True)
class Release:
    """One release."""

    year: Year
    build: int
    least_revision: int
    """Of the build, the fourth part of the version: older ones cannot be used."""
    why: str
    """What older ones lack; empty where every one will do."""
    drivers: str
    """Name of its folders on the virtio-win medium."""
    keys: Mapping[Edition, str]
    """KMS client key, for volume media."""

    @property
    def name(self) -> str:
        """As people write it."""
        return f"Windows Server {self.year}"


RELEASES: Mapping[Year, Release] = {
    "2019": Release(
        "2019",
        17763,
        379,
        "VXLAN overlay networks need KB4489899 (March 2019)",
        "2k19",
        {
            "standard": "N69G4-B89J2-4G8F4-WWYCC-J464C",
            "datacenter": "WMDGN-G9PQG-XVVXX-R3X43-63DFG",
        },
    ),
    "2022": Release(
        "2022",
        20348,
        0,
        "",
        "2k22",
        {
            "standard": "VDYBN-27WPP-V4HQT-9VMD4-VMK7H",
            "datacenter": "WX4NM-KYWYW-QJJR4-XV3QB-6VM33",
        },
    ),
    "2025": Release(
        "2025",
        26100,
        0,
        "",
        "2k25",
        {
            "standard": "TVRH6-WHNXV-R9WG3-9XRFY-MY832",
            "datacenter": "D764K-2NDRG-47T6Q-P8T8W-YP6DF",
        },
    ),
}


@dataclass(frozen=True, slots=True)
class WantedImage:
    """Which of a medium's images is asked for."""

    year: Year
    edition: Edition
    surface: Surface

    @property
    def release(self) -> Release:
        """The release that it is of."""
        return RELEASES[self.year]

    @property
    def name(self) -> str:
        """Its NAME in the WIM, on evaluation and on volume media alike."""
        core = "CORE" if self.surface == "core" else ""
        return f"{self.release.name} SERVER{self.edition.upper()}{core}"
