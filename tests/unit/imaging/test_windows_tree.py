"""Files by name, over a library that answers as pycdlib does."""

from __future__ import annotations

import io
from types import SimpleNamespace

import pytest

pytest.importorskip("pycdlib", reason="pycdlib is not installed")

from lab._errors import PreflightError
from lab.imaging.windows.media import Extent
from lab.imaging.windows.tree import Tree, Window

PARTITION = 100
"""Its first sector."""


class Record:
    def __init__(self, name: str, *pieces: tuple[int, int], flags: int = 0, at: int = 0) -> None:
        self.name = name
        self.icb_tag = SimpleNamespace(flags=flags)
        self.alloc_descs = [
            SimpleNamespace(log_block_num=block, extent_length=size, offset=at)
            for block, size in pieces
        ]

    def is_dot(self) -> bool:
        return False

    is_dotdot = is_dot

    def file_identifier(self) -> bytes:
        return self.name.encode()


class Sized(io.BytesIO):
    """As large as is said, with nothing in it."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self._size = size

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._size if whence == io.SEEK_END else offset


class Iso:
    """A UDF volume whose folders are what is given."""

    def __init__(self, folders: dict[str, list[Record]]) -> None:
        self.folders = folders
        self.udf_main_descs = SimpleNamespace(
            partitions=[SimpleNamespace(part_start_location=PARTITION)]
        )

    def has_udf(self) -> bool:
        return True

    def list_children(self, udf_path: str) -> list[Record]:
        return self.folders[udf_path]

    def full_path_from_dirrecord(self, record: Record) -> str:
        return f"/whatever/{record.name}"


SIZE = 3 << 30
"""Bytes of the medium."""


def tree(*records: Record) -> Tree:
    folders = {"/": [Record("Sources")], "/Sources": list(records)}
    return Tree(Iso(folders), Sized(SIZE), "reading")


def test_path_is_found_in_any_case_and_given_as_written():
    found = tree(Record("Install.wim"))
    assert found.find("/SOURCES/install.WIM") == "/Sources/Install.wim"
    assert found.find("/sources/install.esd") is None
    assert found.find("/boot/install.wim") is None
    assert found.names("/SOURCES") == ("Install.wim",)
    assert found.names("/boot") == ()


GIB = 1 << 30
PIECE = GIB - 2048
"""What one allocation descriptor tells of at most, in whole sectors (ECMA-167, 4/14.14.1.1)."""


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (Record("a", (7, 5000)), Extent(107 * 2048, 5000)),
        (
            Record("a", (7, PIECE), (7 + PIECE // 2048, 10), (0, 0)),
            Extent(107 * 2048, PIECE + 10),
        ),
        (Record("a"), Extent(0, 0)),
        # in its own entry, which the library counts from the medium's beginning
        (Record("a", (107, 90), flags=0x23, at=176), Extent(107 * 2048 + 176, 90)),
    ],
)
def test_place_is_counted_from_the_medium_s_beginning(record, expected):
    assert tree(record).extent("/Sources/a") == expected


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (Record("a", (7, 2048), (9, 2048)), "'/Sources/a' lies in several pieces"),
        (Record("a", (1 << 21, 10)), "it is cut off: its '/Sources/a' ends at byte 4,295,172,106"),
    ],
)
def test_file_that_does_not_lie_whole_in_the_medium_is_refused(record, words):
    with pytest.raises(PreflightError, match=f"reading: .*{words}"):
        tree(record).extent("/Sources/a")


def test_window_is_a_file_of_its_own():
    window = Window(io.BytesIO(b"before content after"), Extent(7, 7))
    assert window.read() == b"content"
    assert window.read(1) == b""
    assert (window.seek(-4, io.SEEK_END), window.read(2), window.tell()) == (3, b"te", 5)
    assert (window.seek(-1, io.SEEK_CUR), window.read(99)) == (4, b"ent")
    assert (window.seek(0, io.SEEK_END), window.seek(50), window.read()) == (7, 50, b"")
