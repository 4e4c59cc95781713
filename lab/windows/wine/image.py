"""The image of Windows pods: Linux with Wine, a prefix, and agnhost.exe, as an OCI archive."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lab.windows.wine import pages
from lab.windows.wine.node import run_script
from lab.windows.wine.runtime.places import RUN
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
_EMPTY = ("dev", "proc", "run", "sys", "tmp", "var/tmp", "usr/sbin")
_BLOCK = 1 << 20


def write_image(archive: Path, name: str, root: Path, tree: Path, program: Path) -> None:
    """Write the archive of an image.

    ``root``: the Linux file system; ``tree``: the template's, which lies over it; ``program``:
    agnhost.exe.

    Raises OSError when it cannot be written.
    """
    layer = archive.with_suffix(".layer")
    with (
        layer.open("wb") as file,
        tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        _add_tree(tar, root, {})
        same = {path.name: f"{_BUILTIN}/{path.name}" for path in (root / _BUILTIN).iterdir()}
        _add_tree(tar, tree, {key: root / value for key, value in same.items()})
        for path in _EMPTY:
            member = tarfile.TarInfo(path)
            member.type, member.mode = tarfile.DIRTYPE, 0o1777 if path.endswith("tmp") else 0o755
            tar.addfile(member)
        tar.add(program, f"{DRIVE}/{PROGRAM}", filter=_owned)
        mapped = pages.write(program, archive.parent)
        if mapped is not None:
            tar.add(mapped, f"{DRIVE}/{pages.FOLDER}/{PROGRAM}{pages.ENDING}", filter=_owned)
            mapped.unlink()
        script = run_script().encode()
        member = tarfile.TarInfo(RUN.lstrip("/"))
        member.size, member.mode = len(script), 0o755
        tar.addfile(member, io.BytesIO(script))
    digest, size = _digest(layer), layer.stat().st_size
    _pack(archive, name, layer, digest, size)
    layer.unlink()


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


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _pack(archive: Path, name: str, layer: Path, digest: str, size: int) -> None:
    """An OCI archive of one layer."""
    settings = [f"{key}={value}" for key, value in ENVIRONMENT.items() if key != "HOME"]
    entry = [RUN, f"C:\\{PROGRAM}"]
    configuration = _json(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {
                "Env": settings,
                "Entrypoint": entry,
                "Cmd": ["pause"],
                "StopSignal": STOP_SIGNAL,
            },
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        }
    )
    described = {"mediaType": "application/vnd.oci.image.config.v1+json"} | _blob(configuration)
    layers = [
        {
            "mediaType": "application/vnd.oci.image.layer.v1.tar",
            "digest": f"sha256:{digest}",
            "size": size,
        }
    ]
    kind = "application/vnd.oci.image.manifest.v1+json"
    manifest = _json({"schemaVersion": 2, "mediaType": kind, "config": described, "layers": layers})
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
        tar.add(layer, f"blobs/sha256/{digest}", filter=_owned)


def _blobs(*contents: bytes) -> Iterator[tuple[str, bytes]]:
    for content in contents:
        yield f"blobs/sha256/{hashlib.sha256(content).hexdigest()}", content


def _blob(content: bytes) -> dict[str, Any]:
    return {"digest": f"sha256:{hashlib.sha256(content).hexdigest()}", "size": len(content)}


def _json(document: Any) -> bytes:
    return json.dumps(document, separators=(",", ":"), sort_keys=True).encode()
