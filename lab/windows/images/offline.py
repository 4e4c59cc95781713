"""Reads the disk of a Windows machine that is off, on this host; starts and writes nothing.

qemu-img extracts an NTFS partition into a temporary sparse file, which ntfs-3g's ``ntfsls`` and
``ntfscat`` read. Nothing is mounted, so no privileges are needed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lab._deadline import Deadline
from lab._errors import BrokenError
from lab.shells import programs

PROGRAMS = ("qemu-img", "setpriv", "ntfsls", "ntfscat")
ANSWER_FILES = (
    "Windows/Panther/unattend.xml",
    "Windows/Panther/autounattend.xml",
    "Windows/Panther/Unattend/unattend.xml",
    "Windows/Panther/Unattend/autounattend.xml",
    "Windows/System32/Sysprep/unattend.xml",
    "Windows/System32/Sysprep/Panther/unattend.xml",
    "unattend.xml",
    "autounattend.xml",
)
"""Where Windows finds an answer file on its own disk before it looks at a medium."""
LOGS = (
    "Windows/Panther/setupact.log",
    "Windows/Panther/setuperr.log",
    "Windows/Panther/UnattendGC/setupact.log",
    "Windows/Panther/UnattendGC/setuperr.log",
    "Windows/System32/Sysprep/Panther/setupact.log",
    "Windows/System32/Sysprep/Panther/setuperr.log",
    "$WINDOWS.~BT/Sources/Panther/setupact.log",
    "$WINDOWS.~BT/Sources/Panther/setuperr.log",
    "hybridlab/log/bootstrap.log",
    "hybridlab/log/clone.log",
)
_SECONDS = 1800.0
"""Seconds for one program: a partition of some ten GiB is copied."""
_SECTOR = 512
_HEAD = 64 << 10
"""Bytes of a disk with its partition table, including GPT's entries (UEFI 5.3)."""
_NTFS = b"NTFS    "
_MOST_PARTITIONS = 128


@dataclass(frozen=True, slots=True)
class Volume:
    """An NTFS volume in a file."""

    path: Path
    action: str
    scratch: Path

    def names(self, folder: str) -> tuple[str, ...]:
        """Names in a folder, as the volume writes them.

        Raises BrokenError when it cannot be read.
        """
        listed = self._run("ntfsls", "--all", "--system", "--path", f"/{folder}", str(self.path))
        return tuple(
            name for name in listed.decode(errors="replace").splitlines() if name not in {".", ".."}
        )

    def find(self, path: str) -> str | None:
        """The path as the volume writes it, found regardless of case, or None."""
        place = ""
        for part in path.split("/"):
            entries = {name.lower(): name for name in self.names(place)}
            if part.lower() not in entries:
                return None
            place = f"{place}/{entries[part.lower()]}".lstrip("/")
        return place

    def read(self, path: str) -> bytes:
        """A file's content; ``path`` as the volume writes it."""
        return self._run("ntfscat", "--force", str(self.path), f"/{path}")

    def _run(self, *command: str) -> bytes:
        out = self.scratch / "said"
        programs.run(
            self.action, command, Deadline(_SECONDS), redirection=programs.Redirection(output=out)
        )
        content = out.read_bytes()
        out.unlink()
        return content


@contextmanager
def windows_volume(disk: Path, scratch: Path, action: str) -> Iterator[Volume]:
    """Drive C of a qcow2 disk.

    ``scratch``: a directory with room for the disk's content. ``action``: for messages.

    Raises BrokenError when no partition is an NTFS volume with a folder ``Windows``, or one cannot
    be read.
    """
    programs.need(action, *PROGRAMS)
    head = scratch / "head"
    _copy(disk, 0, _HEAD, head, action)
    partitions = _partitions(head.read_bytes())
    head.unlink()
    part = scratch / "partition"
    try:
        for offset, size in sorted(partitions, key=lambda partition: -partition[1]):
            _copy(disk, offset, _SECTOR, part, action)
            if part.read_bytes()[3:11] != _NTFS:
                continue
            _copy(disk, offset, size, part, action)
            volume = Volume(part, action, scratch)
            if volume.find("Windows") is not None:
                yield volume
                return
    finally:
        part.unlink(missing_ok=True)
    raise BrokenError(
        action,
        f"none of the {len(partitions)} partitions of '{disk}' is an NTFS volume with a "
        "folder Windows",
        "look at it with 'virt-filesystems -a DISK' or in another machine",
    )


def refuse_answer_files(disk: Path, scratch: Path, action: str) -> None:
    """Check that a generalised disk has no answer file; every clone would obey it, not its own.

    Raises BrokenError when it has one, or cannot be read.
    """
    with windows_volume(disk, scratch, action) as volume:
        kept = [path for file in ANSWER_FILES if (path := volume.find(file))]
    if kept:
        listed = ", ".join(log.replace("/", "\\") for log in kept)
        raise BrokenError(
            action,
            f"the generalised disk has {listed}: every clone would obey that answer file, "
            "with the build's name and password, instead of its own",
            "sysprep has found an answer medium: see C:\\hybridlab\\log\\sysprep.log; build again",
        )


def read_logs(disk: Path, scratch: Path, action: str) -> dict[str, str]:
    """Logs of Setup and the lab's scripts: text by file name.

    Raises BrokenError when they cannot be read.
    """
    with windows_volume(disk, scratch, action) as volume:
        paths = {log: path for log in LOGS if (path := volume.find(log))}
        return {
            log.lower().replace("/", "-"): _decode(volume.read(path)) for log, path in paths.items()
        }


def _decode(content: bytes) -> str:
    unicode = content.startswith((b"\xff\xfe", b"\xfe\xff"))
    return content.decode("utf-16" if unicode else "utf-8-sig", errors="replace")


def _copy(disk: Path, offset: int, size: int, target: Path, action: str) -> None:
    """Copy bytes of a qcow2 disk, as its guest sees it, into a sparse raw file."""
    name = str(disk).replace(",", ",,")
    options = f"driver=raw,offset={offset},size={size},file.driver=qcow2"
    where = f"{options},file.file.driver=file,file.file.filename={name}"
    command = ["qemu-img", "convert", "-O", "raw", "--image-opts", where, str(target)]
    programs.run(action, command, Deadline(_SECONDS))


def _partitions(head: bytes) -> list[tuple[int, int]]:
    """Offset and size in bytes of every partition, from GPT if present, else from MBR. Pure."""
    spans = []
    if head[_SECTOR : _SECTOR + 8] == b"EFI PART":
        first, count, size = struct.unpack_from("<QII", head, _SECTOR + 72)
        for number in range(min(count, _MOST_PARTITIONS)):
            at = first * _SECTOR + number * size
            if at + 48 <= len(head) and any(head[at : at + 16]):
                begin, end = struct.unpack_from("<QQ", head, at + 32)
                spans.append((begin, end - begin + 1))
    else:
        spans = [struct.unpack_from("<II", head, 446 + 16 * number + 8) for number in range(4)]
    return [(begin * _SECTOR, length * _SECTOR) for begin, length in spans if length > 0]
