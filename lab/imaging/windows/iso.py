"""Microsoft's installation media, read: what they hold, with nothing taken out of them."""

from __future__ import annotations

import logging
import re
import stat
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from lab._errors import PreflightError
from lab.imaging.medium import NOT_INSTALLED
from lab.imaging.windows import eltorito, foreign, wim
from lab.imaging.windows.media import Channel, WindowsImage, WindowsMedium
from lab.imaging.windows.tree import Tree

_DESCRIPTOR = 16 * 2048
"""Where the primary volume descriptor is; offsets in it are from ECMA-119, 8.4."""
_LABEL = slice(40, 72)
_BLOCKS, _BLOCK = 80, 128
"""Number of its blocks, u32, and the bytes of each, u16."""
_CONTAINERS = ("/sources/install.wim", "/sources/install.esd", "/sources/install.swm")
_NO_PROMPT = "/efi/microsoft/boot/efisys_noprompt.bin"
_EDITION_FILE = "/sources/ei.cfg"
_EDITION_FILE_MOST = 4096
_CHANNELS: dict[str, Channel] = {"eval": "evaluation", "volume": "volume", "retail": "retail"}
_EVALUATION = re.compile(r"Eval$|\bEvaluation\b")
_CURE = "give the ISO of Windows Server as Microsoft publishes it"
_AGAIN = "fetch it again, and compare its SHA-256 with the one Microsoft gives"
_BROKEN = (struct.error, ValueError, LookupError, OSError)
"""What else the library raises on a damaged medium."""
_FOLDERS = ("images", "sources")
"""Whose names tell what a medium is."""


def read(path: Path) -> WindowsMedium:
    """What an installation medium holds; what it is, where it is none.

    Raises
    ------
    PreflightError
        When it cannot be read, is cut off or damaged, or is something else.

    """
    doing = f"reading the medium '{path}'"
    with _file(doing, path) as file:
        return _read(doing, path, file)


@contextmanager
def opened(path: Path, called: str, cure: str) -> Iterator[tuple[str, str, Tree]]:
    """Any medium: what is being done, for messages; its label; its files.

    Parameters
    ----------
    called
        What it is in a message: ``the virtio-win medium``.
    cure
        What to try where it is something else.

    Raises
    ------
    PreflightError
        As :func:`read` does.

    """
    doing = f"reading {called} '{path}'"
    with _file(doing, path) as file:
        label, _ = _volume(doing, file, cure)
        with _opened(doing, file) as tree:
            yield doing, label, tree


@contextmanager
def _file(doing: str, path: Path) -> Iterator[BinaryIO]:
    """A file or a drive, opened; what has no end, or never begins, is refused."""
    try:
        mode = path.stat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISBLK(mode) or stat.S_ISDIR(mode)):
            raise PreflightError(doing, "it is no file", _CURE)
        with path.open("rb") as file:
            yield file
    except OSError as error:
        raise PreflightError(doing, f"{error.strerror}", "check the path") from error


def _read(doing: str, path: Path, file: BinaryIO) -> WindowsMedium:
    label, size = _volume(doing, file, _CURE)
    boots = eltorito.boots(doing, file)
    with _opened(doing, file) as tree:
        container = next(filter(None, map(tree.find, _CONTAINERS)), None)
        if container is None:
            raise PreflightError(doing, foreign.of_names(label, _names(tree)), _CURE)
        images = _images(doing, tree, container)
        no_prompt = tree.find(_NO_PROMPT)
        return WindowsMedium(
            path=path,
            label=label,
            bytes=size,
            container=container,
            images=images,
            channel=channel(_edition_file(tree), images),
            boots=boots,
            no_prompt=tree.extent(no_prompt) if no_prompt else None,
        )


def channel(edition_file: str, images: Sequence[WindowsImage]) -> Channel:
    """How copies of the medium are licensed.

    Evaluation editions are so whatever else is said: no product key goes with them.

    Parameters
    ----------
    edition_file
        Content of ``sources/ei.cfg``; empty where there is none.

    """
    if any(_EVALUATION.search(f"{one.display_name} {one.edition}") for one in images):
        return "evaluation"
    lines = [line.strip().lower() for line in edition_file.splitlines()]
    told = [line for line in lines if line]
    if "[channel]" not in told[:-1]:
        return "unknown"
    return _CHANNELS.get(told[told.index("[channel]") + 1], "unknown")


def _volume(doing: str, file: BinaryIO, cure: str) -> tuple[str, int]:
    """Label of the volume and size of the file, which is found to have all of the volume."""
    size = file.seek(0, 2)
    file.seek(0)
    first = file.read(foreign.FIRST)
    descriptor = first[_DESCRIPTOR:]
    if descriptor[:6] != b"\x01CD001" or len(first) < foreign.FIRST:
        raise PreflightError(doing, foreign.of_bytes(first), cure)
    label = descriptor[_LABEL].decode("ascii", errors="replace").strip(" \0")
    (blocks,) = struct.unpack_from("<I", descriptor, _BLOCKS)
    (block,) = struct.unpack_from("<H", descriptor, _BLOCK)
    whole = blocks * block
    if size < whole:
        raise PreflightError(
            doing,
            f"it is cut off: the medium '{label}' has {whole:,} bytes, and the file {size:,} "
            f"({size / whole:.0%})",
            _AGAIN,
        )
    return label, size


@contextmanager
def _opened(doing: str, file: BinaryIO) -> Iterator[Tree]:
    try:
        import pycdlib  # noqa: PLC0415  an extra: only who uses hypervisors has it
    except ImportError as error:
        raise PreflightError(doing, f"{error}", NOT_INSTALLED) from error
    logging.getLogger("pycdlib").setLevel(logging.ERROR)  # what it tolerates is no news
    iso = pycdlib.PyCdlib()
    try:
        iso.open_fp(file)
    except Exception as error:  # a damaged medium breaks its reader in many ways
        raise PreflightError(doing, f"it is damaged: {_told(error)}", _AGAIN) from error
    try:
        yield Tree(iso, file, doing)
    except (pycdlib.pycdlibexception.PyCdlibException, *_BROKEN) as error:
        raise PreflightError(doing, f"it is damaged: {_told(error)}", _AGAIN) from error
    finally:
        iso.close()


def _told(error: Exception) -> str:
    return str(error) or type(error).__name__


def _images(doing: str, tree: Tree, container: str) -> tuple[WindowsImage, ...]:
    within = f"{doing}: its '{container}'"
    header, images = wim.read(within, tree.opened(container))
    if header.parts > 1:
        stem = container.rpartition(".")

        def name(number: int) -> str:
            return f"{stem[0]}{number}.{stem[2]}"

        def part(number: int) -> wim.Header | None:
            found = tree.find(name(number))
            if found is None:
                return None
            return wim.header_of(f"{doing}: its '{found}'", tree.opened(found))

        wim.check_set(within, header, name, part)
    return images


def _edition_file(tree: Tree) -> str:
    path = tree.find(_EDITION_FILE)
    if path is None:
        return ""
    return tree.opened(path).read(_EDITION_FILE_MOST).decode("utf-8-sig", errors="replace")


def _names(tree: Tree) -> list[str]:
    inside = [f"{folder}/{name}" for folder in _FOLDERS for name in tree.names(f"/{folder}")]
    return [*tree.names(), *inside]
