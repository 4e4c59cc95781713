"""The programs of Kubernetes that tests/bundle has built, if it has."""

from __future__ import annotations

import json
import os
import tarfile
from pathlib import Path
from typing import IO

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "hybridlab/test-bundle")
VARIABLE = "HYBRIDLAB_TEST_BUNDLE"
HOW = f"'python tests/bundle/make.py' builds it, or {VARIABLE} names the directory"


def programs(*names: str) -> Path | None:
    """The directory that holds all of them for Linux, the newest first; None if there is none."""
    folders = (home / "linux-amd64" for home in _homes())
    return next((at for at in folders if all((at / name).is_file() for name in names)), None)


def _homes() -> list[Path]:
    told = os.environ.get(VARIABLE)
    if told:
        return [Path(told)]
    return sorted(CACHE.glob("*/"), key=_age) if CACHE.is_dir() else []


def image(name: str, into: Path) -> Path | None:
    """Unpack the newest image of that name; None if there is none."""
    archives = [path for home in _homes() for path in sorted(home.glob(f"images/{name}-v*.tar"))]
    if not archives:
        return None
    with tarfile.open(archives[0]) as archive:
        (manifest,) = json.loads(_member(archive, "manifest.json").read())
        for layer in manifest["Layers"]:
            with tarfile.open(fileobj=_member(archive, layer)) as files:
                files.extractall(into, filter="tar")
    return into


def _member(archive: tarfile.TarFile, name: str) -> IO[bytes]:
    member = archive.extractfile(name)
    assert member, name
    return member


def _age(path: Path) -> float:
    return -path.stat().st_mtime
