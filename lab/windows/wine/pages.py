"""What a Wine holds in memory without need: code that is not mapped, stacks that are cleared. Pure.

``standins/pages.c`` says what Windows and Wine do with a program's sections.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

FOLDER = "hybridlab/pages"
"""On drive C: the files that ``standins/pages.c`` maps, by a program's name."""
ENDING = ".pages"
NTDLL = "usr/lib/x86_64-linux-gnu/wine/x86_64-windows/ntdll.dll"
_PAGE = 4096
_WRITABLE = 0x80000000
"""IMAGE_SCN_MEM_WRITE."""
_HEADER_PLACE = struct.Struct("<I")
_HEADER = struct.Struct("<4s2xH12xH2x")
"""Signature, number of sections, size of the optional header that follows."""
_SECTION = struct.Struct("<8xIIII12xI")
"""Size and place in memory, size and place in the file, characteristics."""
_CLEARING, _SHORTER = (
    b"\x48\x8d\xb9" + offset.to_bytes(4, "little", signed=True) for offset in (-0xF0000, -0x4000)
)
"""``lea -0xf0000(%rcx),%rdi``, from where ntdll's signal_start_thread clears a thread's stack."""


def sections(program: bytes) -> Iterator[tuple[int, bytes]]:
    """Place in memory and content of a program's sections that Wine would read, not map.

    They are those that do not begin at a whole page of the file, and that nothing writes to. What
    is no program of Windows has none.
    """
    try:
        (header,) = _HEADER_PLACE.unpack_from(program, 0x3C)
        signature, count, optional = _HEADER.unpack_from(program, header)
        if signature != b"PE\0\0":
            return
        table = header + _HEADER.size + optional
        for number in range(count):
            at = table + number * _SECTION.size
            size, place, raw, start, flags = _SECTION.unpack_from(program, at)
            if start % _PAGE and not flags & _WRITABLE:
                yield place, program[start : start + min(size, raw)]
    except struct.error:
        return


def write(program: Path, folder: Path) -> Path | None:
    """Write a program's file for ``standins/pages.c``; None if nothing of it would be read.

    ``folder``: where it gets the program's name, and ``.pages``.

    Raises OSError when it cannot be written.
    """
    parts = list(sections(program.read_bytes()))
    if not parts:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{program.name}{ENDING}"
    with path.open("wb") as file:
        for place, content in parts:
            file.seek(place)
            file.write(content)
    return path


def shorten_clearing(ntdll: bytes) -> bytes:
    """Wine's ntdll.dll with 16 KiB of a new thread's stack cleared, instead of 960 KiB.

    It clears pages that nobody has used, and each then takes memory: 1 MB for each thread of each
    program. Windows clears none. A Wine that has another way of it stays as it is.
    """
    return ntdll.replace(_CLEARING, _SHORTER) if ntdll.count(_CLEARING) == 1 else ntdll
