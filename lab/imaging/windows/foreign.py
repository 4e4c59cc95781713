"""What a file is that is no installation medium of Windows: told by its first bytes and names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

FIRST: Final = 34 * 1024
"""Bytes of a file's beginning that tell what it is; the volume's descriptor is among them."""
_SHOWN: Final = 8
"""Names of an unknown medium's root that a message has."""
_AT: Final = 32768
"""Where a medium's first volume descriptor is (ECMA-119, 6.2.1); its identifier is at 1."""
_TEXT: Final = 512
_MAGIC: Final[Mapping[bytes, str]] = {
    b"QFI\xfb": "a disk in qcow2 format",
    b"MSWIM\0\0\0": "a WIM file, which is only one part of a medium",
    b"vhdxfile": "a disk of Hyper-V (VHDX)",
    b"conectix": "a disk of Hyper-V (VHD)",
    b"KDMV": "a disk of VMware (VMDK)",
    b"# Disk Desc": "a disk of VMware (VMDK)",
    b"PK\x03\x04": "a ZIP archive",
    b"7z\xbc\xaf\x27\x1c": "a 7-Zip archive",
    b"Rar!": "a RAR archive",
    b"\x1f\x8b": "a gzip archive",
    b"\xfd7zXZ\0": "an xz archive",
    b"BZh": "a bzip2 archive",
    b"MSCF": "a cabinet file",
    b"MZ": "a program of Windows",
    b"\x7fELF": "a program of Linux",
    b"%PDF": "a PDF document",
}
_WORDS: Final[Mapping[bytes, str]] = {
    b"<!doctype html": "a web page: the download led to words, not to the medium",
    b"<html": "a web page: the download led to words, not to the medium",
    b"<?xml": "an XML document",
}
_LINUX: Final[Sequence[str]] = (
    "casper",
    "isolinux",
    "syslinux",
    "pool",
    "dists",
    "images/pxeboot",
    ".treeinfo",
    ".discinfo",
    "live",
    "liveos",
    "install.amd",
    "arch",
)
_DRIVERS: Final[Sequence[str]] = ("netkvm", "viostor", "vioscsi")
_ANSWERS: Final[Sequence[str]] = ("autounattend.xml", "unattend.xml")


def of_bytes(first: bytes) -> str:
    """What a file is whose beginning is this, for one that has no ISO 9660 volume.

    Parameters
    ----------
    first
        Its first :data:`FIRST` bytes, fewer if it has fewer.

    """
    beginning = first[:_TEXT].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    known = [what for magic, what in _MAGIC.items() if first.startswith(magic)]
    known += [what for words, what in _WORDS.items() if beginning.startswith(words)]
    if known:
        return f"it is {known[0]}"
    if first[_AT + 1 : _AT + 6] == b"BEA01":
        return "it is a UDF volume without ISO 9660, as Microsoft's media are not"
    if len(first) < FIRST:
        return f"it has {len(first):,} bytes, too few for a medium" if first else "it is empty"
    if not any(first):
        return "it begins with nothing but zeros: the download has not been written"
    if first[510:512] == b"\x55\xaa":
        return "it is a disk's image, with a boot sector and no volume of a medium"
    return "it is no ISO 9660 image"


def of_names(label: str, names: Sequence[str]) -> str:
    """What a medium is that holds no images of Windows.

    Parameters
    ----------
    label
        Its volume identifier.
    names
        What is in its root folder, and of ``images`` and ``sources`` what is in those.

    """
    there = {name.lower() for name in names}
    called = f"the medium '{label}'"
    if any(name in there for name in _LINUX):
        return f"{called} is one of Linux"
    if any(name in there for name in _DRIVERS):
        return f"{called} holds drivers (virtio-win), which goes beside Windows' own"
    if any(name in there for name in _ANSWERS):
        return f"{called} holds answers for Setup, which goes beside Windows' own"
    if "sources/boot.wim" in there:
        return (
            f"{called} starts Windows PE and holds no Windows to install: "
            f"'sources/install.wim', '.esd' or '.swm' is not there"
        )
    top = sorted({name for name in there if "/" not in name})
    listed = ", ".join(f"'{name}'" for name in top[:_SHOWN]) or "nothing"
    more = f" and {len(top) - _SHOWN} more" if len(top) > _SHOWN else ""
    return f"{called} holds no 'sources/install.wim', '.esd' or '.swm', but {listed}{more}"
