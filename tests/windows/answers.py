"""The variants of answer files that have a golden file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from lab.imaging.windows.answer import answer_file, clone_answer_file
from lab.imaging.windows.medium import Channel
from lab.imaging.windows.settings import (
    CloneSettings,
    Edition,
    Firmware,
    Region,
    Settings,
    Storage,
    Surface,
    WantedImage,
    Year,
    product_key,
)

CASES = Path(__file__).parents[1] / "cases/windows"
GOLDEN = CASES / "answers"
PASSWORD = "Golden-Password.1"
GERMAN = Region("de-DE", "0407:00000407", "W. Europe Standard Time")
OWN_KEY = "ABCDE-FGHIJ-KLMNO-PQRST-UVWXY"


@dataclass(frozen=True)
class Variant:
    """One installation, and its purpose."""

    settings: Settings
    channel: Channel

    def document(self) -> bytes:
        return answer_file(self.settings)


def install(  # noqa: PLR0913, PLR0917  each is one way in which variants differ
    year: Year,
    edition: Edition,
    surface: Surface,
    firmware: Firmware,
    channel: Channel,
    storage: Storage,
    *,
    key: str | None = None,
    region: Region = Region(),  # noqa: B008  frozen
    organization: str = "hybridlab",
) -> Variant:
    wanted = WantedImage(year, edition, surface)
    settings = Settings(
        wanted=wanted,
        firmware=firmware,
        storage=storage,
        key=product_key(wanted, channel, key),
        computer_name="GOLDEN",
        administrator_password=PASSWORD,
        region=region,
        organization=organization,
    )
    return Variant(settings, channel)


INSTALLATIONS: Mapping[str, Variant] = {
    "2019-core-bios-evaluation-virtio": install(
        "2019", "standard", "core", "bios", "evaluation", "virtio"
    ),
    "2019-datacenter-desktop-uefi-volume-sata": install(
        "2019", "datacenter", "desktop", "uefi", "volume", "sata"
    ),
    "2022-core-uefi-evaluation-virtio": install(
        "2022", "standard", "core", "uefi", "evaluation", "virtio"
    ),
    "2022-datacenter-core-bios-volume-virtio": install(
        "2022", "datacenter", "core", "bios", "volume", "virtio"
    ),
    "2022-desktop-bios-evaluation-sata": install(
        "2022", "standard", "desktop", "bios", "evaluation", "sata"
    ),
    "2022-desktop-uefi-retail-sata-german": install(
        "2022", "standard", "desktop", "uefi", "retail", "sata", key=OWN_KEY, region=GERMAN
    ),
    "2025-core-bios-volume-virtio": install("2025", "standard", "core", "bios", "volume", "virtio"),
    "2025-datacenter-desktop-uefi-evaluation-virtio": install(
        "2025", "datacenter", "desktop", "uefi", "evaluation", "virtio"
    ),
    "2025-core-uefi-unknown-sata-awkward-words": install(
        "2025", "standard", "core", "uefi", "unknown", "sata", organization='<A> & "B\'s" {{ c }}'
    ),
}


def clone(region: Region = Region()) -> CloneSettings:  # noqa: B008  frozen
    return CloneSettings(
        computer_name="WIN1",
        administrator_password=PASSWORD,
        authorized_key="ssh-ed25519 AAAAC3Nz lab",
        management_address="192.0.2.10",
        cards=(),
        time_server=None,
        region=region,
    )


CLONES: Mapping[str, CloneSettings] = {"clone": clone(), "clone-german": clone(GERMAN)}


SATA = "2022-desktop-bios-evaluation-sata"
VIRTIO = "2022-datacenter-core-bios-volume-virtio"
LIKE: Mapping[str, str] = {
    VIRTIO: SATA,
    "clone-german": "clone",
    **{
        name: VIRTIO if variant.settings.storage == "virtio" else SATA
        for name, variant in INSTALLATIONS.items()
        if name not in {SATA, VIRTIO}
    },
}
"""Variants whose golden file is a difference from another's."""


@cache
def documents() -> Mapping[str, bytes]:
    """Every variant's document."""
    made = {name: variant.document() for name, variant in INSTALLATIONS.items()}
    return made | {name: clone_answer_file(settings) for name, settings in CLONES.items()}
