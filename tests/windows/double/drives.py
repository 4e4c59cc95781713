"""A guest's drives as a directory: ``C:\\x`` is ``root/C/x``."""

from __future__ import annotations

import posixpath
from pathlib import Path


def clean(path: str) -> str:
    """The path in SFTP's form, with one ``/`` between names."""
    return "/" + posixpath.normpath("/" + path.replace("\\", "/")).strip("/")


def place(root: Path, path: str) -> Path:
    """The local file of a guest's path; case is ignored.

    Raises FileNotFoundError when the path is on no drive.
    """
    parts = [part for part in clean(path).split("/") if part]
    if not parts:
        return root
    if len(parts[0]) != 2 or parts[0][1] != ":":
        raise FileNotFoundError(2, "no such drive", path)
    found = root
    for part in (parts[0][0].upper(), *parts[1:]):
        found = named(found, part) or found / part
    return found


def text_of(root: Path | None, path: str) -> str:
    """The content of a text file; empty if it does not exist."""
    if root is None or not path:
        return ""
    found = place(root, path)
    return found.read_text(encoding="utf-8-sig") if found.exists() else ""


def named(folder: Path, name: str) -> Path | None:
    """The entry of a folder, ignoring case."""
    if not folder.is_dir():
        return None
    return next(
        (path for path in sorted(folder.iterdir()) if path.name.lower() == name.lower()), None
    )
