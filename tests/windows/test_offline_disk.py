"""A disk of Windows that is off: what it keeps is found, and what cannot be read is refused."""

from __future__ import annotations

import subprocess
from pathlib import Path

import ntfs_maker
import pytest

from lab._errors import BrokenError
from lab.windows.images import offline

pytestmark = pytest.mark.skipif(
    bool(ntfs_maker.missing()), reason=f"not installed: {ntfs_maker.missing()}"
)
CLEAN = {"Windows/System32/ntoskrnl.exe": b"MZ", "Windows/Panther/setupact.log": b"begins\r\n"}


def made(folder: Path, files: dict[str, bytes], firmware: str = "bios") -> tuple[Path, Path]:
    """A disk, and a scratch directory."""
    (folder / "work, or so").mkdir()
    disk = folder / "work, or so" / "disk"
    ntfs_maker.disk(disk, files, firmware)
    (folder / "scratch").mkdir()
    return disk, folder / "scratch"


@pytest.mark.parametrize("firmware", ["bios", "uefi"])
def test_a_disk_without_answer_files_is_taken_and_nothing_is_left(firmware, tmp_path):
    disk, scratch = made(tmp_path, CLEAN, firmware)
    before = disk.read_bytes()
    offline.refuse_answer_files(disk, scratch, "sealing")
    assert disk.read_bytes() == before
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize("path", offline.ANSWER_FILES)
def test_an_answer_file_is_refused_wherever_windows_would_look(path, tmp_path):
    """W4: in whatever case it is written."""
    folder, _, name = path.rpartition("/")
    written = f"{folder}/{name.upper()}".lstrip("/")
    disk, scratch = made(tmp_path, {**CLEAN, written: b"<unattend/>"})
    with pytest.raises(BrokenError, match="every clone would obey") as refused:
        offline.refuse_answer_files(disk, scratch, "sealing")
    assert written.replace("/", "\\") in refused.value.happened
    assert list(scratch.iterdir()) == []


def _no_ntfs(disk: Path) -> None:
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", disk, "64M"], check=True)


def _no_windows(disk: Path) -> None:
    ntfs_maker.disk(disk, {"data/file": b"x"})


def _broken_volume(disk: Path) -> None:
    ntfs_maker.disk(disk, CLEAN)
    raw = disk.with_suffix(".raw")
    subprocess.run(["qemu-img", "convert", "-O", "raw", disk, raw], check=True)
    with raw.open("r+b") as file:  # the table of files of drive C, past its boot sector
        file.seek((2048 * 512) + (8 << 20) + 4096)
        file.write(b"\xff" * (16 << 20))
    subprocess.run(["qemu-img", "convert", "-O", "qcow2", raw, disk], check=True)


@pytest.mark.parametrize("make", [_no_ntfs, _no_windows, _broken_volume])
def test_a_disk_that_cannot_be_read_is_refused(make, tmp_path):
    disk = tmp_path / "disk"
    make(disk)
    with pytest.raises(BrokenError):
        offline.refuse_answer_files(disk, tmp_path, "sealing")


def test_logs_are_read_whatever_they_are_encoded_in(tmp_path):
    disk, scratch = made(
        tmp_path,
        {
            **CLEAN,
            "Windows/Panther/UnattendGC/setuperr.log": "grün\r\n".encode("utf-16"),
            "hybridlab/log/bootstrap.log": b"step ports\r\n",
        },
    )
    assert offline.read_logs(disk, scratch, "reading") == {
        "windows-panther-setupact.log": "begins\r\n",
        "windows-panther-unattendgc-setuperr.log": "grün\r\n",
        "hybridlab-log-bootstrap.log": "step ports\r\n",
    }
