import io
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("pycdlib", reason="pycdlib is not installed")

from lab._errors import PreflightError
from lab.machines.images import medium
from lab.machines.images.medium import Extent, Medium, opened

FILES = {"user-data": b"#cloud-config\n", "meta-data": b"", "a.long-name.with_dots": b"x" * 5000}


@pytest.fixture
def image(tmp_path):
    path = tmp_path / "image.iso"
    path.write_bytes(medium.medium("OEMDRV", FILES))
    return path


def read(image: Path, path: str) -> bytes:
    with opened(image, "reading the medium", "give the vendor's ISO") as medium:
        return medium.read(path)


def test_same_files_are_the_same_bytes_at_another_time_and_place(monkeypatch):
    first = medium.medium("cidata", FILES)
    moment = time.time() + 86_400 * 400
    monkeypatch.setattr(time, "time", lambda: moment)
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert medium.medium("cidata", dict(reversed(FILES.items()))) == first
    finally:
        monkeypatch.undo()
        time.tzset()


def test_files_come_out_by_their_own_names(image):
    for name, content in FILES.items():
        assert read(image, f"/{name}") == content


def test_names_are_the_same_in_upper_and_lower_case(image):
    with opened(image, "reading", "") as medium:
        assert medium.find("/USER-data") == "/user-data"
        assert medium.find("/user-data/x") is None
        assert medium.names("/absent") == ()


def test_missing_file_is_refused_with_what_is_there(image):
    with pytest.raises(PreflightError, match=r"its folder holds a\.long-name"):
        read(image, "/vmlinuz")


FIRST = 34 * 1024
UDF_ALONE = bytes(32768) + b"\0BEA01\x01"
DISK = bytes(510) + b"\x55\xaa"


@pytest.mark.parametrize(
    ("first", "words"),
    [
        (b"", "it is empty"),
        (b"hello", "it has 5 bytes, too few for a medium"),
        (b"x" * 1000, "it has 1,000 bytes, too few for a medium"),
        (b"x" * FIRST, "it is not an ISO 9660 image"),
        (bytes(FIRST), "its beginning is all zeros: the download was not written"),
        (b"QFI\xfb\0\0\0\3", "it is a qcow2 disk"),
        (b"MSWIM\0\0\0", "it is a WIM file, which is only a part of a medium"),
        (b"vhdxfile", r"it is a Hyper-V disk \(VHDX\)"),
        (b"PK\x03\x04\x14", "it is a ZIP archive"),
        (b"MZ\x90\0", "it is a Windows program"),
        (b"\r\n<!DOCTYPE HTML>\n<p>Sign in", "it is a web page, not the medium"),
        (b"\xef\xbb\xbf<html lang='en'>", "it is a web page, not the medium"),
        (b'<?xml version="1.0"?><Error>', "it is an XML document"),
        (DISK.ljust(FIRST, b"\1"), "it is a disk image with a boot sector"),
        (UDF_ALONE.ljust(FIRST, b"\0"), "it is a UDF volume without ISO 9660"),
    ],
)
def test_a_file_that_is_no_medium_is_identified_by_its_first_bytes(first, words, tmp_path):
    path = tmp_path / "image.iso"
    path.write_bytes(first)
    with pytest.raises(PreflightError, match=words) as refused:
        read(path, "/vmlinuz")
    assert refused.value.hint == "give the vendor's ISO"


class Record:
    """A file of a UDF volume, as the library has it."""

    def __init__(self, *pieces: tuple[int, int], flags: int = 0, at: int = 0) -> None:
        self.icb_tag = SimpleNamespace(flags=flags)
        self.alloc_descs = [
            SimpleNamespace(log_block_num=block, extent_length=size, offset=at)
            for block, size in pieces
        ]

    def is_dot(self) -> bool:
        return False

    is_dotdot = is_dot


def volume(record: Record) -> Medium:
    """A UDF volume of 3 GiB whose partition begins at sector 100, with one file."""
    partition = SimpleNamespace(part_start_location=100)
    iso = SimpleNamespace(
        has_udf=lambda: True,
        list_children=lambda **_: [record],
        full_path_from_dirrecord=lambda *_, **__: "/a",
        udf_main_descs=SimpleNamespace(partitions=[partition]),
    )
    return Medium(Path("a.iso"), "L", 3 << 30, "reading", iso, io.BytesIO())


PIECE = (1 << 30) - 2048
"""What one allocation descriptor tells of at most, in whole sectors (ECMA-167, 4/14.14.1.1)."""


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (Record((7, 5000)), Extent(107 * 2048, 5000)),
        (
            Record((7, PIECE), (7 + PIECE // 2048, 10), (0, 0)),
            Extent(107 * 2048, PIECE + 10),
        ),
        (Record(), Extent(0, 0)),
        # in its own entry, which the library counts from the medium's beginning
        (Record((107, 90), flags=0x23, at=176), Extent(107 * 2048 + 176, 90)),
    ],
)
def test_place_is_counted_from_the_medium_s_beginning(record, expected):
    assert volume(record).extent("/a") == expected


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (Record((7, 2048), (9, 2048)), "'/a' is split into several pieces"),
        (Record((1 << 21, 10)), "it is cut off: '/a' ends at byte 4,295,172,106"),
    ],
)
def test_file_that_does_not_lie_whole_in_the_medium_is_refused(record, words):
    with pytest.raises(PreflightError, match=f"reading: .*{words}"):
        volume(record).extent("/a")
