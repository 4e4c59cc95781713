"""WIM files: what images they hold, read from header and XML alone (never the files within).

The header is that of Microsoft's "Windows Imaging File Format" white paper, and the same in
``.wim``, ``.esd`` and ``.swm``. All in it is little-endian; offsets below are in bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

from lab._errors import PreflightError
from lab._log import quantity
from lab.imaging.windows.media import Extent, WindowsImage

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

MAGIC = b"MSWIM\0\0\0"
_HEADER = 208
_IDENTITY = slice(0x18, 0x28)
"""The same in all parts of one set."""
_PARTS = 0x28
"""Number of this part, and of all: two u16; then the count of images, u32."""
_XML = 0x48
"""A resource: u64 whose low 56 bits are its size, u64 its offset, u64 its size unpacked."""
_SIZE_BITS = (1 << 56) - 1
_PACKED = 0x04
"""Of the upper 8 bits: the resource is compressed, which the XML never is."""
_LARGEST_XML = 4 << 20
"""Bytes. Of media with four images it is about 20 kB."""
_CURE = "fetch the medium again, and compare its SHA-256 with the one Microsoft gives"
_ARCHITECTURES = {"0": "i686", "5": "arm", "9": "x86_64", "12": "aarch64"}
"""PROCESSOR_ARCHITECTURE_... of Windows to the names that Python and libvirt have."""


@dataclass(frozen=True, slots=True)
class Header:
    """What a WIM tells of itself."""

    identity: bytes
    part: int
    """Number of this file in its set, from 1."""
    parts: int
    """How many files the set has: 1, but for ``.swm``."""
    images: int
    xml: Extent
    """Within the file."""


def read(doing: str, file: BinaryIO) -> tuple[Header, tuple[WindowsImage, ...]]:
    """The images of a WIM, of which this is the first or only file.

    Parameters
    ----------
    doing
        For messages: ``"reading '/sources/install.wim' of the medium 'x.iso'"``.
    file
        Seekable; read at its beginning and where the XML is.

    Raises
    ------
    PreflightError
        When it is no WIM, a damaged one, or a later part of a set.

    """
    found = header_of(doing, file)
    if found.part != 1:
        raise PreflightError(
            doing,
            f"it is part {found.part} of {found.parts}, and the images are told of in part 1",
            "give the first part, whose name has no number",
        )
    file.seek(found.xml.offset)
    return found, images(doing, found, file.read(found.xml.length))


def header_of(doing: str, file: BinaryIO) -> Header:
    """The header of a file, and see that the XML that it speaks of lies within the file.

    Raises
    ------
    PreflightError
        When it is no WIM or a damaged one.

    """
    end = file.seek(0, 2)
    file.seek(0)
    return header(doing, file.read(_HEADER), end)


def header(doing: str, data: bytes, size: int) -> Header:
    """The header from the first 208 bytes of a file of ``size`` bytes.

    Raises
    ------
    PreflightError
        When it is no WIM or a damaged one.

    """
    if not data.startswith(MAGIC):
        raise PreflightError(doing, f"it is no WIM: it begins with {data[:8]!r}", _CURE)
    if len(data) < _HEADER:
        raise _damaged(doing, f"it ends after {quantity(len(data), 'byte')}, within its header")
    part, parts, count = struct.unpack_from("<HHI", data, _PARTS)
    packed_size, offset, _ = struct.unpack_from("<QQQ", data, _XML)
    length, flags = packed_size & _SIZE_BITS, packed_size >> 56
    if not 1 <= part <= parts:
        raise _damaged(doing, f"it says that it is part {part} of {parts}")
    if flags & _PACKED:
        raise _damaged(doing, "it says that its XML is compressed, which no WIM's is")
    if length > _LARGEST_XML:
        raise _damaged(
            doing, f"its XML is said to be {length:,} bytes long, and {_LARGEST_XML:,} are the most"
        )
    if not _HEADER <= offset <= size - length:
        raise _damaged(
            doing, f"its XML is said to end at byte {offset + length:,}, and the file has {size:,}"
        )
    return Header(data[_IDENTITY], part, parts, count, Extent(offset, length))


def images(doing: str, told: Header, xml: bytes) -> tuple[WindowsImage, ...]:
    """The images that the XML of a WIM describes, in the order of their numbers.

    Raises
    ------
    PreflightError
        When it is no such XML, or describes other images than the header counts.

    """
    root = _parsed(doing, xml)
    found = sorted((_image(doing, one) for one in root.iter("IMAGE")), key=lambda one: one.index)
    numbers = [image.index for image in found]
    if not numbers and not told.images:
        raise _damaged(doing, "it holds no images")
    if numbers != list(range(1, told.images + 1)):
        listed = ", ".join(map(str, numbers)) or "none"
        counted = quantity(told.images, "image")
        raise _damaged(doing, f"its header counts {counted}, and its XML describes {listed}")
    return tuple(found)


def check_set(
    doing: str, first: Header, name: Callable[[int], str], part: Callable[[int], Header | None]
) -> None:
    """See that all parts of a split set are there, and belong together.

    Parameters
    ----------
    first
        Header of part 1.
    name
        Gives the name of the part of that number.
    part
        Gives the header of the part of that number, None where there is none.

    Raises
    ------
    PreflightError
        Naming the parts that are missing, or are of another set.

    """
    headers = {number: part(number) for number in range(2, first.parts + 1)}
    missing = [name(number) for number, found in headers.items() if found is None]
    if missing:
        listed = ", ".join(f"'{one}'" for one in missing)
        of = quantity(first.parts, "part")
        raise PreflightError(doing, f"of its {of} there is no {listed}", _CURE)
    for number, found in headers.items():
        if found is not None and (found.identity, found.part) != (first.identity, number):
            what = f"'{name(number)}' is part {found.part} of {found.parts}"
            other = "" if found.identity == first.identity else " of another set"
            raise PreflightError(doing, f"{what}{other}, and not part {number} of this one", _CURE)


def _parsed(doing: str, xml: bytes) -> Element:
    from xml.etree import ElementTree as ET  # noqa: PLC0415  rarely needed

    try:
        text = xml.decode("utf-16" if xml[:2] in {b"\xff\xfe", b"\xfe\xff"} else "utf-16-le")
    except UnicodeDecodeError as error:
        raise _damaged(doing, "its XML is no UTF-16") from error
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise _damaged(doing, "its XML declares a document type, which no WIM's does")
    try:
        root = ET.fromstring(text.rstrip("\0"))  # noqa: S314  nothing is declared in it, see above
    except (ET.ParseError, ValueError) as error:
        raise _damaged(doing, f"its XML cannot be read: {error}") from error
    if root.tag != "WIM":
        raise _damaged(doing, f"its XML has '{root.tag}' where 'WIM' stands")
    return root


def _image(doing: str, element: Element) -> WindowsImage:
    def text(path: str) -> str:
        return (element.findtext(path) or "").strip()

    def number(path: str) -> int:
        return _number(doing, path.rpartition("/")[2], text(path) or "0")

    name = text("NAME")
    languages = [(one.text or "").strip() for one in element.findall("WINDOWS/LANGUAGES/LANGUAGE")]
    processor = text("WINDOWS/ARCH")
    return WindowsImage(
        index=_number(doing, "INDEX", element.get("INDEX", "")),
        name=name,
        display_name=text("DISPLAYNAME") or name,
        edition=text("WINDOWS/EDITIONID"),
        installation=text("WINDOWS/INSTALLATIONTYPE"),
        build=number("WINDOWS/VERSION/BUILD"),
        revision=number("WINDOWS/VERSION/SPBUILD"),
        languages=tuple(languages),
        default_language=text("WINDOWS/LANGUAGES/DEFAULT") or next(iter(languages), ""),
        architecture=_ARCHITECTURES.get(processor, f"processor {processor or 'unknown'}"),
        bytes=number("TOTALBYTES"),
    )


def _number(doing: str, name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(1 << 64))):
        raise _damaged(doing, f"its XML gives '{text[:40]}' as {name}, which is no number")
    return int(text)


def _damaged(doing: str, happened: str) -> PreflightError:
    return PreflightError(doing, happened, _CURE)
