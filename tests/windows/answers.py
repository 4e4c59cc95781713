"""The variants of answer files that have a golden file, and the program that renews those.

``python tests/windows/answers.py`` writes ``tests/cases/windows/answers/`` and the findings of
``tests/cases/windows/answer_rules/`` anew: look at what ``git diff`` says of them before they are
committed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lab.imaging.windows import answer_rules
from lab.imaging.windows.answer import DRIVERS, answer_file, clone_answer_file
from lab.imaging.windows.answer_rules import CLONE, Facts
from lab.imaging.windows.media import Channel
from lab.imaging.windows.product_key import product_key
from lab.imaging.windows.release import Edition, Surface, Wanted, Year
from lab.imaging.windows.settings import CloneSettings, Firmware, Region, Settings, Storage

CASES = Path(__file__).parents[1] / "cases/windows"
GOLDEN = CASES / "answers"
BROKEN = CASES / "answer_rules"
RENEW = "python tests/windows/answers.py"
PASSWORD = "Golden-Password.1"
FEW = ("viostor", "NetKVM")
GERMAN = Region("de-DE", "0407:00000407", "W. Europe Standard Time")
OWN_KEY = "ABCDE-FGHIJ-KLMNO-PQRST-UVWXY"


@dataclass(frozen=True)
class Variant:
    """One installation, and what it is for."""

    settings: Settings
    facts: Facts
    drivers: tuple[str, ...] = FEW

    def document(self) -> bytes:
        return answer_file(self.settings, self.drivers)


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
    drivers: tuple[str, ...] = FEW,
) -> Variant:
    wanted = Wanted(year, edition, surface)
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
    return Variant(settings, Facts("install", firmware, storage, channel), drivers)


INSTALLATIONS: Mapping[str, Variant] = {
    "2019-core-bios-evaluation-virtio": install(
        "2019", "standard", "core", "bios", "evaluation", "virtio"
    ),
    "2019-datacenter-desktop-uefi-volume-sata": install(
        "2019", "datacenter", "desktop", "uefi", "volume", "sata"
    ),
    "2022-core-bios-evaluation-virtio-all-drivers": install(
        "2022", "standard", "core", "bios", "evaluation", "virtio", drivers=DRIVERS
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


def documents() -> Mapping[str, bytes]:
    """Every variant's document as it is made now."""
    made = {name: variant.document() for name, variant in INSTALLATIONS.items()}
    return made | {name: clone_answer_file(settings) for name, settings in CLONES.items()}


def facts(name: str) -> Facts:
    """What a variant's document is for."""
    return CLONE if name in CLONES else INSTALLATIONS[name].facts


def golden(name: str) -> bytes:
    """A variant's golden file."""
    return (GOLDEN / f"{name}.xml").read_bytes()


@dataclass(frozen=True)
class Broken:
    """A golden file with changes, and what must be said of it."""

    of: str
    change: tuple[tuple[str, str], ...]
    findings: tuple[str, ...]

    @classmethod
    def read(cls, path: Path) -> Broken:
        case = json.loads(path.read_text(encoding="utf-8"))
        return cls(case["of"], tuple(map(tuple, case["change"])), tuple(case["findings"]))

    def document(self) -> bytes:
        text = golden(self.of).decode()
        for old, new in self.change:
            assert old in text, f"{old!r} is not in {self.of}.xml"
            text = text.replace(old, new, 1)
        return text.encode()

    def found(self) -> tuple[str, ...]:
        return answer_rules.findings(self.document(), facts(self.of))


def _renew() -> None:
    for name, document in documents().items():
        (GOLDEN / f"{name}.xml").write_bytes(document)
    for path in sorted(BROKEN.glob("*.json")):
        broken = Broken.read(path)
        case = {"of": broken.of, "change": broken.change, "findings": broken.found()}
        text = json.dumps(case, indent=2, ensure_ascii=False)
        path.write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    _renew()
