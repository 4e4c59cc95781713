"""The variants of answer files that have a golden file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from tables import CASES, table

from lab.machines.images.terms import Region, WantedImage
from lab.windows.images.answer import answer_file, clone_answer_file
from lab.windows.images.medium import Channel
from lab.windows.images.settings import CloneSettings, Settings, product_key

GOLDEN = CASES / "answers"
PASSWORD = "Golden-Password.1"
GERMAN = Region("de-DE", "0407:00000407", "W. Europe Standard Time")
OWN_KEY = "ABCDE-FGHIJ-KLMNO-PQRST-UVWXY"


@dataclass(frozen=True)
class Variant:
    """One installation, and its medium."""

    settings: Settings
    channel: Channel


def install(words: str, key: str | None = None, **changes: Any) -> Variant:
    """An installation, by release, edition, surface, firmware, channel and storage."""
    year, edition, surface, firmware, channel, storage = words.split()
    wanted = WantedImage(year, edition, surface)  # type: ignore[arg-type]
    facts: dict[str, Any] = {
        "wanted": wanted,
        "firmware": firmware,
        "storage": storage,
        "key": product_key(wanted, channel, key),  # type: ignore[arg-type]
        "computer_name": "GOLDEN",
        "administrator_password": PASSWORD,
    }
    return Variant(Settings(**facts | changes), channel)  # type: ignore[arg-type]


SATA = "2022-desktop-bios-evaluation-sata"
UEFI = "2019-datacenter-desktop-uefi-volume-sata"
VIRTIO = "2022-datacenter-core-bios-volume-virtio"
CORE = "2022-core-uefi-evaluation-virtio"
OWN = "2022-desktop-uefi-retail-sata-german"
OTHERS: Mapping[str, dict[str, Any]] = {
    OWN: {"key": OWN_KEY, "region": GERMAN},
    "2025-core-uefi-unknown-sata-awkward-words": {"organization": '<A> & "B\'s" {{ c }}'},
}
INSTALLATIONS: Mapping[str, Variant] = {
    name: install(words, **OTHERS.get(name, {})) for name, words in table("installations").items()
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


LIKE: Mapping[str, str] = {
    VIRTIO: SATA,
    UEFI: SATA,
    "clone-german": "clone",
    **{
        name: UEFI if variant.settings.firmware == "uefi" else VIRTIO
        for name, variant in INSTALLATIONS.items()
        if name not in {SATA, VIRTIO, UEFI}
    },
}
"""Variants whose golden file is a difference from another's."""


@cache
def documents() -> Mapping[str, bytes]:
    """Every variant's document."""
    made = {name: answer_file(variant.settings) for name, variant in INSTALLATIONS.items()}
    return made | {name: clone_answer_file(settings) for name, settings in CLONES.items()}
