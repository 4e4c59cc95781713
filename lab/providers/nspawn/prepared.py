"""Prepare a bundle for system containers: its files, and a containerd store with its images.

Both are created once per bundle. The files are bind-mounted into every node; the store is linked
into each, so that no node imports an image.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from lab._deadline import Deadline
from lab._errors import BrokenError, PreflightError
from lab._log import quantity
from lab.cluster.bundle import medium
from lab.cluster.bundle.manifest import Manifest
from lab.cluster.bundle.store import BundleStore
from lab.remote.programs import MORE_ROOM
from lab.state.failure import guarded_files
from lab.state.lock import lab_lock

BUNDLE, STORE = "bundle", "containerd"
_FOLDER = "containers"
"""Directory in the cache."""
_SHORT = 16
_WAIT = 1800.0
"""Seconds to wait for another command that prepares the same bundle."""
_START_SECONDS = 30.0
_IMPORT_SECONDS = 300.0
"""For one image; the largest unpacks about 100 MB."""
_NAMESPACE = "k8s.io"
_ROOM = 3
"""Size of the files and unpacked images, as a multiple of the bundle's archives."""
_DATABASES = "*.db"


def prepared(
    cache: Path, store: BundleStore, manifest: Manifest, say: Callable[[str], None]
) -> Path:
    """The directory with the bundle's files and the store; created if it does not exist.

    Raises PreflightError when the disk has too little space, or the bundle is damaged. Raises
    BrokenError when containerd rejects an image.
    """
    final = place(cache, manifest)
    if final.is_dir():
        return final
    with lab_lock(cache / "locks" / f"{_FOLDER}-{final.name}", "preparing a bundle", wait=_WAIT):
        if not final.is_dir():
            _prepare(final, store, manifest, say)
    return final


def place(cache: Path, manifest: Manifest) -> Path:
    """The path of a prepared bundle, whether it exists or not."""
    return cache / _FOLDER / medium.identity(manifest, "linux")[:_SHORT]


def _prepare(
    final: Path, store: BundleStore, manifest: Manifest, say: Callable[[str], None]
) -> None:
    medium.check(store, manifest, "linux")
    draft = final.with_name(f".{final.name}.partial")
    began = time.monotonic()
    with guarded_files(f"preparing bundle '{final.name}' for system containers"):
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True, mode=0o755)
        try:
            _check_room(draft, manifest)
            medium.unpack(store, manifest, "linux", draft / BUNDLE)
            images = sorted((draft / BUNDLE / "images").iterdir())
            say(f"importing {quantity(len(images), 'container image')}, once for this bundle")
            with _containerd(draft) as socket:
                for image in images:
                    _import(draft, socket, image)
            draft.rename(final)
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise
    say(f"bundle prepared for system containers in {time.monotonic() - began:.0f} s")


def _check_room(draft: Path, manifest: Manifest) -> None:
    blobs = {one.blob.sha256: one.blob.size for one in manifest.programs}
    blobs |= {layer.blob.sha256: layer.blob.size for one in manifest.images for layer in one.layers}
    needed = _ROOM * sum(blobs.values())
    figures = os.statvfs(draft)
    free = figures.f_bavail * figures.f_frsize
    if free < needed:
        raise PreflightError(
            "preparing a bundle for system containers",
            f"'{draft.parent}' has {free >> 20} MiB free, and it takes up to {needed >> 20} MiB",
            MORE_ROOM,
        )


@contextmanager
def _containerd(draft: Path) -> Iterator[str]:
    """Run containerd on the draft's store, in a new mount namespace; yields its socket."""
    socket, log = str(draft / "containerd.sock"), draft / "containerd.log"
    config = draft / "containerd.toml"
    config.write_text(
        "version = 3\n"
        "disabled_plugins = ['io.containerd.grpc.v1.cri', 'io.containerd.cri.v1.runtime', "
        "'io.containerd.cri.v1.images', 'io.containerd.nri.v1.nri']\n",
        encoding="ascii",
    )
    program = draft / BUNDLE / "bin/containerd"
    words = (f"--root={draft / STORE}", f"--state={draft / 'state'}", f"--address={socket}")
    with log.open("wb") as out:
        process = subprocess.Popen(  # noqa: S603  the bundle's own program
            ("unshare", "--mount", "--", program, f"--config={config}", *words),  # noqa: S607
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    try:
        _wait_for(draft, socket, process, log)
        yield socket
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_START_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    shutil.rmtree(draft / "state", ignore_errors=True)
    for path in (draft / "containerd.sock", draft / "containerd.sock.ttrpc", log, config):
        path.unlink(missing_ok=True)


def _wait_for(draft: Path, socket: str, process: subprocess.Popen[bytes], log: Path) -> None:
    def look() -> str:
        if process.poll() is not None:
            tail = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-3:]
            raise BrokenError("starting containerd", " / ".join(tail) or "it ended at once")
        done = _ctr(draft, socket, ("version",), Deadline(_START_SECONDS))
        return "" if done.returncode == 0 else done.stderr.strip()

    Deadline(_START_SECONDS).wait(
        "starting containerd", look, until=lambda said: not said, every=0.05
    )


def _import(draft: Path, socket: str, archive: Path) -> None:
    words = ("--namespace", _NAMESPACE, "images", "import", "--local", str(archive))
    done = _ctr(draft, socket, words, Deadline(_IMPORT_SECONDS))
    if done.returncode:
        raise BrokenError(
            f"importing image '{archive.name}'",
            done.stderr.strip() or f"ctr ended with {done.returncode}",
            "check the bundle: 'lab bundle verify'",
        )


def _ctr(
    draft: Path, socket: str, words: tuple[str, ...], deadline: Deadline
) -> subprocess.CompletedProcess[str]:
    command = (str(draft / BUNDLE / "bin/ctr"), "--address", socket, *words)
    return subprocess.run(  # noqa: S603  the bundle's own program
        command, capture_output=True, text=True, check=False, timeout=deadline.left()
    )


def link_store(ready: Path, target: Path) -> None:
    """Give a node its containerd store: hard-linked files and copied databases.

    Image files are never modified; each node has its own databases. If the cache is on another
    file system, everything is copied.

    Raises OSError when the disk is full.
    """
    draft = target.with_name(f".{target.name}.partial")
    shutil.rmtree(draft, ignore_errors=True)
    same = ready.stat().st_dev == target.parent.stat().st_dev
    how = ("--link",) if same else ("--reflink=auto",)
    subprocess.run(  # noqa: S603  our own arguments
        ("cp", "--archive", *how, "--", str(ready / STORE), str(draft)),  # noqa: S607
        check=True,
        capture_output=True,
    )
    for linked in draft.rglob(_DATABASES):
        if linked.parent.parent == draft:
            own = linked.with_suffix(".own")
            shutil.copy2(linked, own)
            own.replace(linked)
    draft.rename(target)
