from __future__ import annotations

import io
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab._errors import PreflightError
from lab.imaging.windows.eltorito import Entry, Patch, boot_of, boots, catalogue, patches
from lab.imaging.windows.media import Boot, Extent, WindowsMedium

ENTRY = 32
VALID = bytes([1, 0]) + bytes(28) + b"\x55\xaa"
CATALOGUE = 20
"""Sector of the medium below."""


def entry(sector: int, sectors: int, emulation: int = 0, mark: int = 0x88) -> bytes:
    return struct.pack("<BBHBBHI", mark, emulation, 0, 0, 0, sectors, sector).ljust(ENTRY, b"\0")


def section(platform: int, *entries: bytes, last: bool = True) -> bytes:
    head = struct.pack("<BBH", 0x91 if last else 0x90, platform, len(entries))
    return head.ljust(ENTRY, b"\0") + b"".join(entries)


def fat(sectors: int, unit: int = 512, name: bytes = b"FAT12   ") -> bytes:
    sector = bytearray(512)
    sector[:3] = b"\xeb\x3c\x90"
    struct.pack_into("<H", sector, 11, unit)
    small = sectors if sectors < 1 << 16 else 0
    struct.pack_into("<H", sector, 19, small)
    struct.pack_into("<I", sector, 32, 0 if small else sectors)
    sector[54:62] = name
    sector[510:] = b"\x55\xaa"
    return bytes(sector)


def medium(table: bytes, contents: dict[int, bytes], sectors: int = 1000) -> io.BytesIO:
    """A medium whose boot record leads to a catalogue in sector 20."""
    image = bytearray(sectors * 2048)
    record = b"\0CD001\x01EL TORITO SPECIFICATION".ljust(0x47, b"\0") + struct.pack("<I", CATALOGUE)
    for sector, content in {17: record, CATALOGUE: table, **contents}.items():
        image[sector * 2048 : sector * 2048 + len(content)] = content
    return io.BytesIO(bytes(image))


BIOS = Entry(0, 0, 8, 30 * 2048)
WINDOWS = VALID + entry(30, 8) + section(0xEF, entry(40, 2880))


def test_entries_of_both_firmwares_are_found():
    found = boots("reading", medium(WINDOWS, {30: b"\xfa", 40: fat(2880)}))
    assert found == (
        Boot("bios", Extent(30 * 2048, 8 * 512)),
        Boot("uefi", Extent(40 * 2048, 1_474_560)),
    )


def test_medium_without_a_catalogue_starts_nothing():
    assert boots("reading", io.BytesIO(bytes(40 * 2048))) == ()
    assert boots("reading", io.BytesIO(b"")) == ()


@pytest.mark.parametrize(
    ("found", "first", "expected"),
    [
        (Entry(0, 0, 8, 4096), b"\xfa".ljust(512), Boot("bios", Extent(4096, 4096))),
        (Entry(0xEF, 0, 2880, 4096), fat(2880), Boot("uefi", Extent(4096, 1_474_560))),
        # the catalogue tells of one sector, or none: the image tells itself
        (Entry(0xEF, 0, 1, 4096), fat(2880), Boot("uefi", Extent(4096, 1_474_560))),
        (Entry(0xEF, 0, 0, 4096), fat(2880), Boot("uefi", Extent(4096, 1_474_560))),
        (Entry(0xEF, 0, 1, 0), fat(100_000), Boot("uefi", Extent(0, 51_200_000))),
        (Entry(0xEF, 0, 1, 4096), bytes(512), Boot("uefi", Extent(4096, 0))),
        # platform 0 with a file system is UEFI's all the same
        (Entry(0, 0, 2880, 4096), fat(2880), Boot("uefi", Extent(4096, 1_474_560))),
        # unless no processor would start it
        (Entry(0, 0, 8, 4096), b"\xfa" + fat(2880)[1:], Boot("bios", Extent(4096, 4096))),
        # but a floppy disk that the BIOS emulates is the BIOS's
        (Entry(0, 2, 1, 4096), fat(2880), Boot("bios", Extent(4096, 512))),
        # two others have their own
        (Entry(1, 0, 8, 4096), b"", None),
        (Entry(2, 0, 8, 4096), b"", None),
    ],
)
def test_entry_is_told_by_its_platform_or_its_content(found, first, expected):
    assert boot_of(found, first) == expected


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        (VALID, []),
        (VALID + entry(30, 8), [BIOS]),
        (VALID + entry(30, 8, mark=0), []),
        (VALID + entry(30, 8) + bytes(64), [BIOS]),
        (WINDOWS, [BIOS, Entry(0xEF, 0, 2880, 40 * 2048)]),
        (
            VALID
            + entry(30, 8)
            + section(1, entry(50, 1), last=False)
            + section(0xEF, entry(40, 9, mark=0), entry(60, 7)),
            [BIOS, Entry(1, 0, 1, 50 * 2048), Entry(0xEF, 0, 7, 60 * 2048)],
        ),
        # an extension of an entry is no entry, and is not counted
        (
            VALID
            + entry(30, 8)
            + section(0xEF, entry(9, 9, mark=0x44), last=True)
            + entry(40, 2880)
            + entry(99, 9),
            [BIOS, Entry(0xEF, 0, 2880, 40 * 2048)],
        ),
        # what follows the last section is no part of it
        (WINDOWS + section(0xEF, entry(70, 5)), [BIOS, Entry(0xEF, 0, 2880, 40 * 2048)]),
    ],
)
def test_catalogue_is_read_to_its_end(table, expected):
    assert list(catalogue("reading", table.ljust(2048, b"\0"))) == expected


def test_catalogue_whose_sections_never_end_is_read_once():
    table = VALID + entry(30, 8) + section(0xEF, last=False) * 62
    assert catalogue("reading", table) == (BIOS,)
    endless = VALID + entry(30, 8) + struct.pack("<BBH", 0x90, 0xEF, 0xFFFF).ljust(ENTRY, b"\0")
    assert len(catalogue("reading", endless + entry(40, 8) * 200)) == 201


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (b"", "leads to something that is no boot catalogue"),
        (bytes(2048), "leads to something that is no boot catalogue"),
        (VALID + entry(30, 8) + section(0xEF, entry(1 << 31, 8)), "its uefi loader is said to end"),
        (VALID + entry(999, 8), "its bios loader is said to end at byte 2,050,048, and the medium"),
        (VALID + entry(30, 8) + section(0xEF, entry(40, 1)), "its uefi loader is said to end at"),
    ],
)
def test_damaged_catalogue_is_refused(table, words):
    with pytest.raises(PreflightError, match=words):
        boots("reading", medium(table, {30: b"\xfa", 40: fat(60_000)}))


def test_boot_record_that_leads_beyond_the_medium_is_refused():
    image = bytearray(medium(WINDOWS, {}).getvalue())
    struct.pack_into("<I", image, 17 * 2048 + 0x47, 0xFFFFFFFF)
    with pytest.raises(PreflightError, match="no boot catalogue"):
        boots("reading", io.BytesIO(bytes(image)))


@given(st.binary(max_size=300))
def test_any_catalogue_is_read_or_refused(noise):
    try:
        found = boots("reading", medium(VALID + noise, {}, sectors=64))
    except PreflightError:
        return
    assert all(boot.extent.offset + boot.extent.length <= 64 * 2048 for boot in found)


def having(*found: Boot) -> WindowsMedium:
    path = Path("/media/windows.iso")
    return WindowsMedium(path, "L", 0, "/sources/install.wim", (), "volume", found, None)


def test_patch_is_padded_to_the_room_that_there_is():
    uefi = Boot("uefi", Extent(4096, 1024))
    found = patches("making", having(Boot("bios", Extent(2048, 512)), uefi), b"x" * 1000)
    assert found == (Patch(4096, b"x" * 1000 + b"\0" * 24),)


def test_every_uefi_loader_is_patched():
    found = patches(
        "making", having(*(Boot("uefi", Extent(at, 512)) for at in (2048, 4096))), b"x" * 512
    )
    assert [patch.offset for patch in found] == [2048, 4096]


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ((), "it does not start under UEFI"),
        ((Boot("bios", Extent(2048, 4096)),), "it does not start under UEFI"),
        ((Boot("uefi", Extent(2048, 999)),), "has 1,000 bytes, and there is room for 999"),
    ],
)
def test_medium_that_cannot_be_patched_is_refused(found, words):
    with pytest.raises(PreflightError, match=words) as raised:
        patches("making", having(*found), b"x" * 1000)
    assert "firmware bios" in raised.value.cure
