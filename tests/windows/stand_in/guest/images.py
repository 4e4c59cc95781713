"""Images of ``install.wim``: a minimal parser of its header and XML."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

from stand_in.guest.answer import Answer
from stand_in.guest.screen import StopError

_XML = 0x48
FOLDERS = {17763: "2k19", 20348: "2k22", 26100: "2k25"}
"""Build of a release to its folder on virtio-win."""
NONE = "No images are available"
"""Setup's message for a name that is not in the WIM, and for a key on an evaluation medium."""


@dataclass(frozen=True)
class Image:
    name: str
    edition: str
    build: int
    revision: int
    languages: tuple[str, ...]

    @property
    def evaluation(self) -> bool:
        return self.edition.endswith("Eval")


def read(wim: Path) -> tuple[Image, ...]:
    """All images; StopError if it is not a WIM."""
    with wim.open("rb") as file:
        header = file.read(208)
        if header[:8] != b"MSWIM\0\0\0":
            raise StopError(f"{wim.name} is no WIM")
        size, offset = struct.unpack_from("<QQ", header, _XML)
        file.seek(offset)
        text = file.read(size & ((1 << 56) - 1)).decode("utf-16")
    return tuple(_image(one) for one in ET.fromstring(text).iter("IMAGE"))


def _image(element: ET.Element) -> Image:
    windows = element.find("WINDOWS")
    assert windows is not None
    return Image(
        name=element.findtext("NAME", ""),
        edition=windows.findtext("EDITIONID", ""),
        build=int(windows.findtext("VERSION/BUILD", "0")),
        revision=int(windows.findtext("VERSION/SPBUILD", "0")),
        languages=tuple(one.text or "" for one in windows.iterfind("LANGUAGES/LANGUAGE")),
    )


def chosen(images: tuple[Image, ...], told: Answer) -> Image:
    """The image that an answer file selects; StopError with Setup's message if there is none."""
    kind, value = told.image
    if kind != "/IMAGE/NAME":
        raise StopError(f"unknown element MetaData/Key {kind!r}")
    found = [one for one in images if one.name == value]
    if not found:
        names = ", ".join(one.name for one in images)
        raise StopError(f"{NONE}: the answer file says {value!r}, the medium has {names}")
    image = found[0]
    key = told.text("windowsPE/Setup", "UserData/ProductKey/Key")
    if image.evaluation and key:
        raise StopError(f"{NONE}: a product key, and this is an evaluation medium")
    if not image.evaluation and not key:
        raise StopError("Setup asks for a product key: a volume medium, and the file has none")
    region = "windowsPE/International-Core-WinPE"
    language = told.text(region, "SetupUILanguage/UILanguage")
    if language not in image.languages:
        raise StopError(f"Setup asks for a language: {language!r} is not of the medium's")
    return image


def drivers(folders: list[Path], image: Image) -> tuple[str, ...]:
    """Names of the drivers for an image's release in folders and their subfolders."""
    release = FOLDERS.get(image.build)
    found = {}
    for folder in folders:
        for file in sorted(folder.rglob("*")):
            parts = [part.lower() for part in file.parts]
            if re.fullmatch(r"(?i).+\.inf", file.name) and {release, "amd64"} <= set(parts):
                found[file.stem.lower()] = None
    return tuple(found)
