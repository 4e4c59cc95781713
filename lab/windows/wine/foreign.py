r"""An image for Windows, made into one of Wine nodes: files above Windows, and configuration.

Wine cannot start from Windows' own files, so the layers of Windows itself are left out, and the
others lie over Linux with Wine. In such a layer ``Files/`` is drive C and ``Hives/`` has changes of
the registry in Windows' binary form, which Wine's reg.exe cannot read.
"""

from __future__ import annotations

import json
import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from posixpath import normpath
from typing import Any

from lab._errors import PreflightError
from lab._log import quantity
from lab.machines.bundle.manifest import Blob, ContainerImage
from lab.windows.wine.image import Layer, measured, write_archive
from lab.windows.wine.runtime.places import PREFIX, RUN, linux_path
from lab.windows.wine.runtime.tasks import split_arguments
from lab.windows.wine.runtime.translate import USERS
from lab.windows.wine.template import DRIVE

_FILES, _HIVES, _WHITEOUT = "Files", "Hives", ".wh."
_OF_WINDOWS = ("UtilityVM", "Files/Windows/System32/ntdll.dll")
"""What only layers of Windows itself have."""
_OF_WINE = ("windows", "users", "Program Files", "Program Files (x86)", "ProgramData")
"""Folders of drive C, as Wine has written their names."""


def convert(
    image: ContainerImage, blob: Callable[[Blob], Path], base: Layer, archive: Path
) -> tuple[str, ...]:
    """Write the archive of an image for Wine nodes; returns what of the image is not kept.

    ``blob``: where the image's parts are. ``base``: of :func:`~lab.windows.wine.image.write_base`.

    Raises PreflightError when a layer cannot be read; OSError when the archive cannot be written.
    """
    given = json.loads(blob(image.config).read_bytes()).get("config") or {}
    names = Names()
    layers, remarks = [base], list(_unkept(given))
    hives = 0
    for number, layer in enumerate(image.layers):
        source = blob(layer.blob)
        action = f"reading layer {layer.blob.sha256[:12]} of image '{image.name}'"
        try:
            if len(layers) == 1 and _is_windows(source):
                continue
            target = archive.with_name(f"{archive.name}.{number}")
            with tarfile.open(source) as tar, tarfile.open(target, "w") as out:
                hives += _write_layer(tar, out, names)
        except (tarfile.TarError, EOFError, zlib.error) as error:
            raise PreflightError(action, str(error), "save the image again") from error
        layers.append(measured(target))
    if hives:
        remarks.append(f"{quantity(hives, 'change')} of the registry, which Wine cannot read")
    write_archive(archive, image.name, layers, settings(given, names))
    for layer_file in layers[1:]:
        assert layer_file.path is not None, "just written"
        layer_file.path.unlink()
    return tuple(remarks)


def settings(given: Mapping[str, Any], names: Names) -> dict[str, Any]:
    r"""What containers are started with, of an image's configuration, in Linux' words. Pure.

    As containerd on Windows reads it: without a folder ``C:\``; with ``ArgsEscaped`` the first word
    is a whole command line.
    """
    entry, words = list(given.get("Entrypoint") or ()), list(given.get("Cmd") or ())
    if given.get("ArgsEscaped"):
        first = entry or words
        first[:1] = split_arguments(first[0]) if first else []
    folder = linux_path(given.get("WorkingDir") or "C:\\")
    below = names.on_drive(folder.removeprefix(PREFIX).strip("/"))
    return {
        "Entrypoint": [RUN, *entry],
        "Cmd": words,
        "Env": list(given.get("Env") or ()),
        "WorkingDir": f"{PREFIX}/{below}".rstrip("/"),
    }


def _unkept(given: Mapping[str, Any]) -> Iterator[str]:
    user = given.get("User") or ""
    if user and user.lower() not in USERS:
        yield f"user '{user}': every program on Wine is ContainerAdministrator"


class Names:
    """Names on drive C, where a path in any case means the same file."""

    def __init__(self) -> None:
        """Know Wine's own folders."""
        self._written = {name.lower(): name for name in _OF_WINE}

    def on_drive(self, path: str) -> str:
        """A path with its names as they were written first; below ``windows`` in lower case."""
        done = ""
        for name in path.split("/"):
            hidden = name.startswith(_WHITEOUT)
            plain = name.removeprefix(_WHITEOUT) if hidden else name
            key = f"{done}/{plain}".lstrip("/")
            own = plain.lower() if key.lower().startswith("windows/") else plain
            own = self._written.setdefault(key.lower(), own)
            done = f"{done}/{_WHITEOUT * hidden}{own}".lstrip("/")
        return done


def _is_windows(source: Path) -> bool:
    """Whether a layer is of Windows itself."""
    with tarfile.open(source) as tar:
        paths = (normpath(member.name).lower() for member in tar)
        own = tuple(name.lower() for name in _OF_WINDOWS)
        return any(path == name or path.startswith(f"{name}/") for path in paths for name in own)


def _write_layer(tar: tarfile.TarFile, out: tarfile.TarFile, names: Names) -> int:
    """Copy a layer's files to where they are on Wine; returns how many hives it has."""
    hives = 0
    for member in tar:
        top, _, below = normpath(member.name.replace("\\", "/")).partition("/")
        hives += top == _HIVES and member.isfile()
        if top != _FILES or not below or ":" in below:  # a stream of a file is none of Linux'
            continue
        copy = tarfile.TarInfo(f"{DRIVE}/{names.on_drive(below)}")
        copy.mtime, copy.mode, copy.type = member.mtime, 0o755, member.type
        if member.isfile():
            copy.size = member.size
            out.addfile(copy, tar.extractfile(member))
        elif member.islnk() or member.issym():
            copy.linkname = _target(member, names)
            out.addfile(copy)
        elif member.isdir():
            out.addfile(copy)
    return hives


def _target(member: tarfile.TarInfo, names: Names) -> str:
    """Where a link leads. A builder may have put ``Files/`` before a symbolic link's target."""
    path = member.linkname.replace("\\", "/")
    drive = path[1:2] == ":"
    path = path[2:] if drive else path
    below = normpath(path).lstrip("/").removeprefix(f"{_FILES}/")
    if member.issym() and not drive and not path.startswith("/"):
        return below
    return f"{'/' if member.issym() else ''}{DRIVE}/{names.on_drive(below)}"
