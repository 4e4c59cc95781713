"""A screen's picture, as QEMU gives it, to PNG. Pure."""

from __future__ import annotations

import re
import struct
import zlib

_PNG = b"\x89PNG\r\n\x1a\n"
_PPM = re.compile(rb"P6\s+(?:#[^\n]*\n\s*)*(\d+)\s+(\d+)\s+255\s", re.ASCII)


def png(picture: bytes) -> bytes:
    """A PNG of the picture, which is one already or a binary PPM of 8 bits (P6).

    Raises
    ------
    ValueError
        If it is neither.

    """
    if picture.startswith(_PNG):
        return picture
    head = _PPM.match(picture)
    if head is None:
        raise ValueError(f"no picture that is known: it begins with {picture[:12]!r}")
    width, height = int(head[1]), int(head[2])
    row = width * 3
    pixels = picture[head.end() : head.end() + row * height]
    if len(pixels) < row * height:
        raise ValueError(f"{len(pixels)} bytes of {width}x{height} pixels: it ends too early")
    lines = b"".join(b"\0" + pixels[at : at + row] for at in range(0, len(pixels), row))
    header = struct.pack("!2I5B", width, height, 8, 2, 0, 0, 0)
    return _PNG + b"".join(
        _chunk(kind, data)
        for kind, data in ((b"IHDR", header), (b"IDAT", zlib.compress(lines)), (b"IEND", b""))
    )


def _chunk(kind: bytes, data: bytes) -> bytes:
    """PNG (Third Edition), 5.3: length, kind, data, CRC of kind and data."""
    return struct.pack("!I", len(data)) + kind + data + struct.pack("!I", zlib.crc32(kind + data))
