"""A guest's drives as a directory: ``C:\\x`` is ``root/C/x``."""

from __future__ import annotations

import posixpath
from pathlib import Path


def clean(path: str) -> str:
    """The path as SFTP has it, with one ``/`` between names."""
    return "/" + posixpath.normpath("/" + path.replace("\\", "/")).strip("/")


def place(root: Path, path: str) -> Path:
    """Where a path of the guest lies; upper and lower case are one.

    Raises
    ------
    FileNotFoundError
        When it is on no drive.

    """
    parts = [part for part in clean(path).split("/") if part]
    if not parts:
        return root
    if len(parts[0]) != 2 or parts[0][1] != ":":
        raise FileNotFoundError(2, "no such drive", path)
    found = root
    for part in (parts[0][0].upper(), *parts[1:]):
        found = _same(found, part)
    return found


def text_of(root: Path | None, path: str) -> str:
    """What a text file holds; empty where there is none."""
    if root is None or not path:
        return ""
    try:
        return place(root, path).read_text(encoding="utf-8-sig")
    except (OSError, ValueError):
        return ""


def _same(directory: Path, name: str) -> Path:
    """The entry of that name, however it is written; as given where there is none."""
    if not (directory / name).exists() and directory.is_dir():
        for one in directory.iterdir():
            if one.name.lower() == name.lower():
                return one
    return directory / name
