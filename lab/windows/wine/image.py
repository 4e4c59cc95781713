"""Images of Windows pods: Linux with Wine and a prefix below a program's files, as OCI archives."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from lab.windows.wine import pages
from lab.windows.wine.node import CONSOLE_SCRIPT, run_script
from lab.windows.wine.runtime.places import CONSOLE, RUN
from lab.windows.wine.template import DRIVE, ENVIRONMENT

PROGRAM = "agnhost.exe"
_LEFT_OUT = (
    "boot",
    "dev",
    "proc",
    "run",
    "sys",
    "tmp",
    "usr/lib/modules",
    "usr/lib/systemd",
    "usr/lib/x86_64-linux-gnu/wine/i386-windows",
    "usr/lib/x86_64-linux-gnu/systemd",
    "usr/sbin",
    "var",
    f"{DRIVE}/Program Files/PowerShell",
    f"{DRIVE}/windows/winsxs",
)
"""What a pod does not need."""
_BUILTIN = "usr/lib/x86_64-linux-gnu/wine/x86_64-windows"
STOP_SIGNAL = "SIGINT"
"""Ctrl+C to the program. Windows sends CTRL_SHUTDOWN_EVENT, which ends it as well. Nothing ends by
SIGTERM: Wine does not take it, and a container's first process is not ended by it."""
AGNHOST_SETTINGS: Mapping[str, Any] = {
    "Entrypoint": [RUN, f"C:\\{PROGRAM}"],
    "Cmd": ["pause"],
}
_EMPTY = ("dev", "proc", "run", "sys", "tmp", "var/tmp", "usr/sbin")
_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer of an image, uncompressed."""

    digest: str
    """``sha256:`` and hex digits, of its content."""
    size: int
    path: Path | None = None
    """Its file; None if the store that gets the image has it."""


def write_base(path: Path, root: Path, tree: Path) -> Layer:
    """Write the layer that every image of Windows pods begins with: Linux with Wine, and a prefix.

    ``root``: the Linux file system; ``tree``: the template's, which lies over it.

    Raises OSError when it cannot be written.
    """
    with path.open("wb") as file, _new_tar(file) as tar:
        _add_tree(tar, root, {})
        same = {each.name: f"{_BUILTIN}/{each.name}" for each in (root / _BUILTIN).iterdir()}
        _add_tree(tar, tree, {key: root / value for key, value in same.items()})
        for place in _EMPTY:
            member = tarfile.TarInfo(place)
            member.type, member.mode = tarfile.DIRTYPE, 0o1777 if place.endswith("tmp") else 0o755
            tar.addfile(member)
        for place, text in ((RUN, run_script()), (CONSOLE, CONSOLE_SCRIPT)):
            member = tarfile.TarInfo(place.lstrip("/"))
            member.size, member.mode = len(text.encode()), 0o755
            tar.addfile(member, io.BytesIO(text.encode()))
    return measured(path)


def write_program(path: Path, program: Path) -> Layer:
    """Write the layer with agnhost.exe.

    Raises OSError when it cannot be written.
    """
    with path.open("wb") as file, _new_tar(file) as tar:
        tar.add(program, f"{DRIVE}/{PROGRAM}", filter=_owned)
        mapped = pages.write(program, path.parent)
        if mapped is not None:
            tar.add(mapped, f"{DRIVE}/{pages.FOLDER}/{PROGRAM}{pages.ENDING}", filter=_owned)
            mapped.unlink()
    return measured(path)


def measured(path: Path) -> Layer:
    """A layer's file that has been written."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return Layer(f"sha256:{digest}", path.stat().st_size, path)


def _new_tar(file: IO[bytes]) -> tarfile.TarFile:
    return tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT)


def _owned(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def _add_tree(tar: tarfile.TarFile, root: Path, same: dict[str, Path]) -> None:
    """Add a tree; a file that is the same as one of ``same`` becomes a link to it.

    Wine's prefix has copies of all of Wine's own DLLs, 400 MB.
    """
    for folder, folders, names in os.walk(root):
        below = os.path.relpath(folder, root)
        inside = "" if below == "." else f"{below}/"
        folders[:] = [each for each in sorted(folders) if f"{inside}{each}" not in _LEFT_OUT]
        for name in (*folders, *sorted(names)):
            path, place = Path(folder, name), f"{inside}{name}"
            twin = same.get(name)
            if twin is not None and path.is_file() and _is_same(path, twin):
                member = tarfile.TarInfo(place)
                member.type = tarfile.LNKTYPE
                member.linkname = f"{_BUILTIN}/{name}"
                tar.addfile(member)
            else:
                tar.add(path, place, recursive=False, filter=_owned)


def _is_same(first: Path, second: Path) -> bool:
    return (
        first.stat().st_size == second.stat().st_size and first.read_bytes() == second.read_bytes()
    )


def write_archive(
    archive: Path, name: str, layers: Sequence[Layer], settings: Mapping[str, Any]
) -> None:
    """Write an OCI archive.

    ``settings``: of a container, as an image's configuration has them; environment and stop signal
    of Wine are added.

    Raises OSError when it cannot be written.
    """
    own = [f"{key}={value}" for key, value in ENVIRONMENT.items() if key != "HOME"]
    # what is added comes first: of a variable that is given twice, containerd takes the last
    started = {**settings, "Env": [*own, *settings.get("Env", ())], "StopSignal": STOP_SIGNAL}
    configuration = _json(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": started,
            "rootfs": {"type": "layers", "diff_ids": [layer.digest for layer in layers]},
        }
    )
    described = {"mediaType": "application/vnd.oci.image.config.v1+json"} | _blob(configuration)
    kind = "application/vnd.oci.image.layer.v1.tar"
    each = [{"mediaType": kind, "digest": layer.digest, "size": layer.size} for layer in layers]
    kind = "application/vnd.oci.image.manifest.v1+json"
    manifest = _json({"schemaVersion": 2, "mediaType": kind, "config": described, "layers": each})
    notes = {"io.containerd.image.name": name}
    top = {"mediaType": kind, "annotations": notes} | _blob(manifest)
    index = _json({"schemaVersion": 2, "manifests": [top]})
    with tarfile.open(archive, "w") as tar:
        for path, content in (
            ("oci-layout", _json({"imageLayoutVersion": "1.0.0"})),
            ("index.json", index),
            *_blobs(configuration, manifest),
        ):
            member = tarfile.TarInfo(path)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
        for layer in layers:
            if layer.path is not None:
                tar.add(layer.path, f"blobs/{layer.digest.replace(':', '/')}", filter=_owned)


def _blobs(*contents: bytes) -> Iterator[tuple[str, bytes]]:
    for content in contents:
        yield f"blobs/sha256/{hashlib.sha256(content).hexdigest()}", content


def _blob(content: bytes) -> dict[str, Any]:
    return {"digest": f"sha256:{hashlib.sha256(content).hexdigest()}", "size": len(content)}


def _json(document: Any) -> bytes:
    return json.dumps(document, separators=(",", ":"), sort_keys=True).encode()
