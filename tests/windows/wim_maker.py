"""WIM files in Microsoft's layout, by wimlib: the names and properties of server images, with
files that are not Microsoft's."""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import sparse

Channel = Literal["evaluation", "volume", "retail"]
Container = Literal["wim", "esd", "swm"]
BUILDS = {"2019": (17763, 3650), "2022": (20348, 587), "2025": (26100, 32230)}
"""Builds and revisions of the public evaluation media."""
HEADER = 208
"""Bytes of a WIM header."""
ARCHITECTURES = {"i686": 0, "x86_64": 9, "aarch64": 12}
"""Names of processors to Windows' numbers (PROCESSOR_ARCHITECTURE_...)."""


@dataclass(frozen=True)
class Image:
    """One image of a WIM."""

    name: str
    display_name: str
    edition: str
    installation: str
    flags: str
    product_type: str = "ServerNT"
    build: int = BUILDS["2022"][0]
    revision: int = BUILDS["2022"][1]
    languages: tuple[str, ...] = ("en-US",)
    architecture: str = "x86_64"
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Path to content, in addition to the few files of every image."""

    def properties(self) -> dict[str, str]:
        """Properties for the WIM's XML, without empty ones."""
        languages = {
            f"WINDOWS/LANGUAGES/LANGUAGE[{number}]": language
            for number, language in enumerate(self.languages, start=1)
        }
        found = {
            "DISPLAYNAME": self.display_name,
            "DISPLAYDESCRIPTION": f"{self.display_name}, a stand-in",
            "FLAGS": self.flags,
            "WINDOWS/ARCH": str(ARCHITECTURES[self.architecture]),
            "WINDOWS/PRODUCTNAME": "Microsoft® Windows® Operating System",
            "WINDOWS/EDITIONID": self.edition,
            "WINDOWS/INSTALLATIONTYPE": self.installation,
            "WINDOWS/PRODUCTTYPE": self.product_type,
            "WINDOWS/PRODUCTSUITE": "Terminal Server",
            **languages,
            "WINDOWS/LANGUAGES/DEFAULT": self.languages[0] if self.languages else "",
            "WINDOWS/VERSION/MAJOR": "10",
            "WINDOWS/VERSION/MINOR": "0",
            "WINDOWS/VERSION/BUILD": str(self.build),
            "WINDOWS/VERSION/SPBUILD": str(self.revision),
            "WINDOWS/VERSION/SPLEVEL": "0",
            "WINDOWS/SYSTEMROOT": "WINDOWS",
        }
        return {name: value for name, value in found.items() if value}


def server_images(
    year: str = "2022",
    channel: Channel = "evaluation",
    build: int | None = None,
    revision: int | None = None,
    **others: object,
) -> tuple[Image, ...]:
    """The four images of every Windows Server medium, in order."""
    usual_build, usual_revision = BUILDS[year]
    made = []
    for edition in ("Standard", "Datacenter"):
        for core in (True, False):
            evaluation = channel == "evaluation"
            experience = "" if core else " (Desktop Experience)"
            word = " Evaluation" if evaluation else ""
            made.append(
                Image(
                    name=f"Windows Server {year} SERVER{edition.upper()}{'CORE' if core else ''}",
                    display_name=f"Windows Server {year} {edition}{word}{experience}",
                    edition=f"Server{edition}{'Eval' if evaluation else ''}",
                    installation="Server Core" if core else "Server",
                    flags=f"Server{edition}{'Eval' if evaluation else ''}{'Core' if core else ''}",
                    build=usual_build if build is None else build,
                    revision=usual_revision if revision is None else revision,
                    **others,  # type: ignore[arg-type]
                )
            )
    return tuple(made)


def make(directory: Path, images: Sequence[Image], container: Container = "wim") -> list[Path]:
    """Write ``install.wim``, ``install.esd``, or ``install.swm`` with its other parts.

    Returns the files, the first part first.
    """
    directory.mkdir(parents=True, exist_ok=True)
    whole = directory / "install.wim"
    for number, image in enumerate(images, start=1):
        tree = directory / f"tree-{number}"
        _plant(tree, number, image)
        properties = [
            f"--image-property={name}={value}" for name, value in image.properties().items()
        ]
        verb = "capture" if number == 1 else "append"
        words = [image.name, f"{image.display_name}, a stand-in"]
        _wimlib(verb, str(tree), str(whole), *words, "--compress=none", *properties)
    if container == "wim":
        return [whole]
    if container == "esd":
        _wimlib("export", str(whole), "all", str(directory / "install.esd"), "--solid")
        whole.unlink()
        return [directory / "install.esd"]
    _wimlib("split", str(whole), str(directory / "install.swm"), "0.1")
    whole.unlink()
    return sorted(directory.glob("install*.swm"), key=lambda path: (len(path.name), path.name))


def grown(wim: bytes, size: int) -> sparse.Holes:
    """Enlarge a WIM to this many bytes by a hole; the parts at its end stay at the end.

    The resource table (header 0x30) and XML (0x48) move to the end, where they are in real WIMs.
    """
    head, end = bytearray(wim[:HEADER]), size
    moved = {0: b""}
    for field_at in (0x48, 0x30):
        length, offset, _ = struct.unpack_from("<QQQ", head, field_at)
        length &= (1 << 56) - 1
        end -= length
        moved[end] = wim[offset : offset + length]
        struct.pack_into("<Q", head, field_at + 8, end)
    moved[0] = bytes(head) + wim[HEADER:]
    return sparse.Holes(size, moved)


def boot_wim(directory: Path, files: Mapping[str, bytes]) -> Path:
    """``boot.wim``: the two images that Setup runs from."""
    images = tuple(
        Image(name, name, "WindowsPE", "WindowsPE", "9", "WinNT", files=files)
        for name in ("Microsoft Windows PE (amd64)", "Microsoft Windows Setup (amd64)")
    )
    (made,) = make(directory, images)
    return made.rename(directory / "boot.wim")


def _plant(tree: Path, number: int, image: Image) -> None:
    # Enough random data for the images to fill more than one part of a split set.
    filling = bytes((number * 31 + at * at) % 251 for at in range(1 << 10)) * 90
    usual = {
        "Windows/System32/config/SYSTEM": f"{image.name}\n".encode(),
        "Windows/System32/ntoskrnl.exe": filling + bytes([number]),
    }
    for path, content in (usual | dict(image.files)).items():
        target = tree / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)


def _wimlib(*arguments: str) -> None:
    done = subprocess.run(
        ["wimlib-imagex", *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"wimlib-imagex {' '.join(arguments)}: {done.stderr}"
