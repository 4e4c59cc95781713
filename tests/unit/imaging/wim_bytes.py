"""WIM files in memory, for their reader: a header and whatever XML a test wants."""

from __future__ import annotations

import struct
from collections.abc import Sequence

HEADER = 208
IMAGE = """
<IMAGE INDEX="{index}"><TOTALBYTES>9000000000</TOTALBYTES><NAME>{name}</NAME>
<DISPLAYNAME>{name} shown</DISPLAYNAME><FLAGS>ServerStandard</FLAGS><WINDOWS><ARCH>9</ARCH>
<EDITIONID>ServerStandard</EDITIONID><INSTALLATIONTYPE>Server</INSTALLATIONTYPE>
<LANGUAGES><LANGUAGE>de-DE</LANGUAGE><LANGUAGE>en-US</LANGUAGE><DEFAULT>de-DE</DEFAULT></LANGUAGES>
<VERSION><MAJOR>10</MAJOR><BUILD>20348</BUILD><SPBUILD>587</SPBUILD></VERSION></WINDOWS></IMAGE>"""


def xml(names: Sequence[str]) -> str:
    images = "".join(IMAGE.format(index=at, name=name) for at, name in enumerate(names, start=1))
    return f"<WIM>{images}</WIM>"


def wim(  # noqa: PLR0913  a header's fields
    text: str | bytes,
    *,
    images: int = 1,
    part: tuple[int, int] = (1, 1),
    offset: int | None = None,
    length: int | None = None,
    flags: int = 2,
    magic: bytes = b"MSWIM\0\0\0",
    identity: bytes = b"i" * 16,
) -> bytes:
    """A WIM of nothing but XML, whose header says what is given, true or not."""
    content = b"\xff\xfe" + text.encode("utf-16-le") if isinstance(text, str) else text
    head = bytearray(HEADER)
    head[:8] = magic
    struct.pack_into("<II", head, 8, HEADER, 0x10D00)
    head[0x18:0x28] = identity
    struct.pack_into("<HHI", head, 0x28, *part, images)
    size = len(content) if length is None else length
    where = HEADER if offset is None else offset
    struct.pack_into("<QQQ", head, 0x48, size | flags << 56, where, size)
    return bytes(head) + content
