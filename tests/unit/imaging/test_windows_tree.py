"""Files by name, over a library that answers as pycdlib does."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

pytest.importorskip("pycdlib", reason="pycdlib is not installed")

from lab._errors import PreflightError
from lab.imaging.windows.media import Extent
from lab.imaging.windows.tree import Tree

PARTITION = 100
"""Its first sector."""


class Record:
    def __init__(self, name: str, length: int, *pieces: tuple[int, int]) -> None:
        self.name = name
        self._length = length
        self.alloc_descs = [
            SimpleNamespace(log_block_num=block, extent_length=size) for block, size in pieces
        ]

    def is_dot(self) -> bool:
        return False

    is_dotdot = is_dot

    def file_identifier(self) -> bytes:
        return self.name.encode()

    def get_data_length(self) -> int:
        return self._length


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


def tree(*records: Record) -> Tree:
    folders = {"/": [Record("Sources", 0)], "/Sources": list(records)}
    return Tree(Iso(folders), "reading")


def test_path_is_found_in_any_case_and_given_as_written():
    found = tree(Record("Install.wim", 1))
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
        (Record("a", 5000, (7, 5000)), Extent(107 * 2048, 5000)),
        (
            Record("a", PIECE + 10, (7, PIECE), (7 + PIECE // 2048, 10), (0, 0)),
            Extent(107 * 2048, PIECE + 10),
        ),
        (Record("a", 0), Extent(0, 0)),
    ],
)
def test_place_is_counted_from_the_medium_s_beginning(record, expected):
    assert tree(record).extent("/Sources/a") == expected


def test_file_in_pieces_is_refused():
    with pytest.raises(PreflightError, match=r"reading: '/Sources/a' lies in several pieces"):
        tree(Record("a", 4096, (7, 2048), (9, 2048))).extent("/Sources/a")
