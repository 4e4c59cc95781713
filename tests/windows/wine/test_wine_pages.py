"""What a Wine holds in memory without need: sections that it reads, stacks that it clears."""

import struct
from pathlib import Path

import pytest

from lab.windows.wine import pages

CODE, DATA, WRITABLE = 0x60000020, 0x40000040, 0xC0000040
CLEARS_960_KIB = bytes.fromhex("488db90000f1ff")
CLEARS_16_KIB = bytes.fromhex("488db900c0ffff")


def program(*sections: tuple[int, int, bytes, int]) -> bytes:
    """A program of sections: place in memory and in the file, content, characteristics."""
    table = b"".join(
        struct.pack("<8sIIII12xI", b".", len(content), place, len(content) + 512, start, flags)
        for place, start, content, flags in sections
    )
    head = b"MZ".ljust(0x3C, b"\0") + struct.pack("<I", 0x80)
    header = struct.pack("<4s2xH12xH2x", b"PE\0\0", len(sections), 240) + bytes(240)
    whole = bytearray(head.ljust(0x80, b"\0") + header + table)
    for _, start, content, _ in sections:
        whole = whole.ljust(start, b"\0")
        whole[start:] = content
    return bytes(whole)


MADE = program(
    (0x1000, 0x600, b"code", CODE),
    (0x2000, 0x800, b"variables", WRITABLE),
    (0x3000, 0x1000, b"mapped by Wine", DATA),
    (0x4000, 0x1200, b"constants", DATA),
)


def test_sections_that_wine_reads_and_nobody_writes_to_are_found() -> None:
    assert list(pages.sections(MADE)) == [(0x1000, b"code"), (0x4000, b"constants")]


def test_they_are_in_the_file_where_they_are_in_memory(tmp_path: Path) -> None:
    (tmp_path / "a.exe").write_bytes(MADE)
    path = pages.write(tmp_path / "a.exe", tmp_path / "pages")
    assert path == tmp_path / "pages/a.exe.pages"
    content = path.read_bytes()
    assert content[0x1000:0x1004] == b"code"
    assert content[0x4000:] == b"constants"
    assert not content[:0x1000].strip(b"\0")


@pytest.mark.parametrize(
    "content",
    [b"", b"a script", MADE[:0x90], MADE[:0x180], program((0x1000, 0x1000, b"mapped", CODE))],
)
def test_a_file_of_which_nothing_would_be_read_has_none(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.exe").write_bytes(content)
    assert pages.write(tmp_path / "a.exe", tmp_path / "pages") is None
    assert not (tmp_path / "pages").exists()


def test_a_stack_is_cleared_for_16_kib() -> None:
    before = b"\x48\x89\xcb" + CLEARS_960_KIB + b"\x48\x89\xfc"
    assert pages.shorten_clearing(before) == b"\x48\x89\xcb" + CLEARS_16_KIB + b"\x48\x89\xfc"


@pytest.mark.parametrize("ntdll", [b"another Wine", CLEARS_960_KIB * 2])
def test_another_wine_stays_as_it_is(ntdll: bytes) -> None:
    assert pages.shorten_clearing(ntdll) == ntdll
