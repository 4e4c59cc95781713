"""Prepare a bundle for system containers: its files, and a containerd store with its images.

Both are created once per bundle. The files are bind-mounted into every node; the store is linked
into each, so that no node imports an image. A list of all files and sizes is kept with them, so
that a truncated file is noticed before a node is built from it.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import stat
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from lab._deadline import Deadline
from lab._errors import BrokenError, PreflightError
from lab._log import quantity
from lab.machines.bundle import medium
from lab.machines.bundle.manifest import Manifest
from lab.machines.bundle.store import BundleStore
from lab.machines.images.golden import PARTIAL, cache_lock, entries
from lab.shells.programs import MORE_ROOM
from lab.state.failure import guarded_files
from lab.state.lock import holder

BUNDLE, STORE, ROOT = "bundle", "containerd", "root"
_LISTING = "files"
"""File with the size and path of every file, one per line."""
_FORM = "2"
"""Increment when a bundle is prepared differently."""
_SHOWN = 4
_OWN = re.compile(rf"\.?[0-9a-f]{{16}}(?:{re.escape(PARTIAL)})?")
"""Names of those for Linux, and of drafts."""
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
    with cache_lock(_lock(final), "preparing a bundle", wait=_WAIT):
        if not final.is_dir():
            _prepare(final, store, manifest, say)
    return final


def place(cache: Path, manifest: Manifest) -> Path:
    """The path of a prepared bundle, whether it exists or not."""
    parts = (medium.identity(manifest, "linux"), _FORM)
    return cache / _FOLDER / sha256("\n".join(parts).encode()).hexdigest()[:_SHORT]


def check(ready: Path) -> None:
    """Check that every file of a prepared bundle exists with its recorded size.

    Raises PreflightError naming the first files that do not.
    """
    action = f"looking at the prepared bundle '{ready}'"
    with guarded_files(action):
        listed = _read_listing(ready / _LISTING)
        sizes = dict(_sizes(ready))
    wrong = [
        f"'{path}' has {sizes[path]:,} bytes of {size:,}" if path in sizes else f"'{path}' is gone"
        for path, size in listed.items()
        if sizes.get(path) != size
    ]
    if wrong or not listed:
        more = [f"and {len(wrong) - _SHOWN} more"] if len(wrong) > _SHOWN else []
        raise PreflightError(
            action,
            "; ".join([*wrong[:_SHOWN], *more]) or "it has no list of its files",
            f"rm -r '{ready}', once no lab uses it; the next 'lab up' prepares the bundle again",
        )


def _read_listing(listing: Path) -> dict[str, int]:
    """Recorded size of each file by path; empty if there is no list."""
    text = listing.read_text(encoding="utf-8") if listing.is_file() else ""
    lines = (line.partition(" ") for line in text.splitlines())
    return {path: int(size) for size, _, path in lines if size.isdecimal()}


def _sizes(ready: Path) -> Iterator[tuple[str, int]]:
    """Path and size of each file except the list."""
    for directory, _, names in os.walk(ready):
        for name in names:
            path = os.path.join(directory, name)  # noqa: PTH118  thousands
            status = os.lstat(path)
            if stat.S_ISREG(status.st_mode) and path != str(ready / _LISTING):
                yield os.path.relpath(path, ready), status.st_size


def find_unused(cache: Path, kept: Iterable[Manifest]) -> tuple[Path, ...]:
    """Prepared forms of bundles not in ``kept`` that no command is preparing now.

    Those of other systems than Linux, whose names begin with the system's, are the systems'.
    """
    wanted = {place(cache, digest).name for digest in kept}
    return tuple(
        entry
        for entry in entries(cache / _FOLDER)
        if _OWN.fullmatch(entry.name) and entry.name not in wanted and not is_in_making(entry)
    )


def is_in_making(final: Path) -> bool:
    """Whether a command is preparing this directory, or its draft, now."""
    return holder(_lock(final)) is not None


def _lock(final: Path) -> Path:
    """The directory of the preparation lock, also for a draft's name."""
    name = final.name.removeprefix(".").removesuffix(PARTIAL)
    return final.parents[1] / "locks" / f"{_FOLDER}-{name}"


def _prepare(
    final: Path, store: BundleStore, manifest: Manifest, say: Callable[[str], None]
) -> None:
    medium.check(store, manifest, "linux")
    draft = final.with_name(f".{final.name}{PARTIAL}")
    began = time.monotonic()
    with guarded_files(f"preparing bundle '{final.name}' for system containers"):
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True, mode=0o755)
        try:
            _check_room(draft, manifest)
            medium.unpack(store, manifest, "linux", draft / BUNDLE)
            images = sorted((draft / BUNDLE / "images").iterdir())
            say(f"importing {quantity(len(images), 'container image')}, once for this bundle")
            fill_store(draft, draft / BUNDLE, images)
            finish(draft, final)
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise
    say(f"bundle prepared for system containers in {time.monotonic() - began:.0f} s")


def fill_store(draft: Path, bundle: Path, images: Iterable[Path]) -> None:
    """Import images into the store of a directory that is being prepared.

    ``bundle``: the unpacked bundle for Linux, whose containerd does it. Raises BrokenError when it
    rejects an image.
    """
    with _containerd(draft, bundle / "bin") as ctr:
        for image in images:
            _import(ctr, draft, image)


def finish(draft: Path, final: Path) -> None:
    """Record a prepared directory's files, and give it its name."""
    lines = (f"{size} {path}\n" for path, size in sorted(_sizes(draft)))
    (draft / _LISTING).write_text("".join(lines), encoding="utf-8")
    os.sync()  # a power failure must not leave empty files under their final names
    draft.rename(final)


def _check_room(draft: Path, manifest: Manifest) -> None:
    blobs = {program.blob.sha256: program.blob.size for program in manifest.programs}
    blobs |= {
        layer.blob.sha256: layer.blob.size for image in manifest.images for layer in image.layers
    }
    needed = _ROOM * sum(blobs.values())
    figures = os.statvfs(draft)
    free = figures.f_bavail * figures.f_frsize
    if free < needed:
        raise PreflightError(
            "preparing a bundle for system containers",
            f"'{draft.parent}' has {free >> 20} MiB free, and it takes up to {needed >> 20} MiB",
            MORE_ROOM,
        )


_SOCKET = "containerd.sock"
_ADDRESS = f"/proc/self/cwd/{_SOCKET}"
"""For programs that run in its directory: a socket's path has at most 104 characters."""
_OWN_MOUNTS = ("unshare", "--mount", "--propagation=slave", "--")


@contextmanager
def _containerd(draft: Path, programs: Path) -> Iterator[Path]:
    """Run containerd on the draft's store, in a new mount namespace; yields ctr."""
    log = draft / "containerd.log"
    config = draft / "containerd.toml"
    config.write_text(
        "version = 3\n"
        "disabled_plugins = ['io.containerd.grpc.v1.cri', 'io.containerd.cri.v1.runtime', "
        "'io.containerd.cri.v1.images', 'io.containerd.nri.v1.nri']\n",
        encoding="ascii",
    )
    ctr = programs / "ctr"
    words = (f"--root={draft / STORE}", f"--state={draft / 'state'}", f"--address={_ADDRESS}")
    with log.open("wb") as out:
        process = subprocess.Popen(  # noqa: S603  the bundle's own program
            (*_OWN_MOUNTS, programs / "containerd", f"--config={config}", *words),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
            cwd=draft,
        )
    try:
        _wait_for(ctr, draft, process, log)
        yield ctr
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_START_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    shutil.rmtree(draft / "state", ignore_errors=True)
    for path in (draft / _SOCKET, draft / f"{_SOCKET}.ttrpc", log, config):
        path.unlink(missing_ok=True)


def _wait_for(ctr: Path, draft: Path, process: subprocess.Popen[bytes], log: Path) -> None:
    def look() -> str:
        if process.poll() is not None:
            tail = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-3:]
            raise BrokenError("starting containerd", " / ".join(tail) or "it ended at once")
        done = _ctr(ctr, draft, ("version",), Deadline(_START_SECONDS))
        return "" if done.returncode == 0 else done.stderr.strip()

    Deadline(_START_SECONDS).wait(
        "starting containerd", look, until=lambda why: not why, every=0.05
    )


def _import(ctr: Path, draft: Path, archive: Path) -> None:
    words = ("--namespace", _NAMESPACE, "images", "import", "--local", str(archive))
    done = _ctr(ctr, draft, words, Deadline(_IMPORT_SECONDS))
    if done.returncode:
        raise BrokenError(
            f"importing image '{archive.name}'",
            done.stderr.strip() or f"ctr ended with {done.returncode}",
            "check the bundle: 'lab bundle verify'",
        )


def _ctr(
    ctr: Path, draft: Path, words: tuple[str, ...], deadline: Deadline
) -> subprocess.CompletedProcess[str]:
    command = (str(ctr), "--address", _ADDRESS, *words)
    return subprocess.run(  # noqa: S603  the bundle's own program
        command, capture_output=True, text=True, check=False, timeout=deadline.left(), cwd=draft
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
