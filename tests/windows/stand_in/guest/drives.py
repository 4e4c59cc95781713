"""CDs as in Windows: letters from D on in the order of their ports, names ignoring case."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from double.drives import named

Drives = Mapping[str, Path]
"""Letter to mount point."""


def mounted() -> Drives:
    """Mount every CD."""
    found = {}
    for number, device in enumerate(sorted(Path("/sys/block").glob("sr*"))):
        place = Path("/media", device.name)
        place.mkdir(parents=True, exist_ok=True)
        for kind, options in (("udf", "ro"), ("iso9660", "ro,norock")):
            command = ["mount", "-t", kind, "-o", options, f"/dev/{device.name}", str(place)]
            if (
                place.is_mount()
                or subprocess.run(
                    ["/bin/busybox", *command], capture_output=True, check=False
                ).returncode
                == 0
            ):
                found["DEFGHIJ"[number]] = place
                break
    return found


def resolve(drives: Drives, path: str) -> Path | None:
    r"""The local path of ``E:\viostor\2k22\amd64``; None if it does not exist."""
    letter, colon, rest = path.partition(":")
    place = drives.get(letter.upper())
    if not colon or place is None:
        return None
    for part in rest.replace("\\", "/").split("/"):
        if part:
            place = named(place, part)
            if place is None:
                return None
    return place


def in_roots(drives: Drives, name: str) -> list[Path]:
    """Files with this name in the drives' roots, by letter."""
    found = (named(drives[letter], name) for letter in sorted(drives))
    return [path for path in found if path is not None]


def roots(drives: Drives) -> list[dict[str, bytes]]:
    """The XML files in the drives' roots, by letter: lower-case name to content."""
    return [
        {path.name.lower(): path.read_bytes() for path in drives[letter].glob("*.[xX][mM][lL]")}
        for letter in sorted(drives)
    ]
