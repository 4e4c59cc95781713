"""The bundle of Wine nodes: the Windows programs, with stand-ins for those that Wine cannot run.

containerd.exe and ctr.exe are the lab's own (``standins/containerd.c``); images for Windows are
Linux images that run Windows programs on Wine, under the names that Kubernetes asks for.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from lab.machines.bundle import medium
from lab.machines.bundle.manifest import Blob, ContainerImage, Manifest
from lab.machines.bundle.store import BundleStore
from lab.machines.images.golden import cache_lock
from lab.machines.images.terms import RELEASES
from lab.machines.nspawn import prepared
from lab.state.failure import guarded_files
from lab.windows.nodes.join_checks import AGNHOST, NEEDED, PAUSE
from lab.windows.wine import registry, standins
from lab.windows.wine.image import write_image
from lab.windows.wine.node import SANDBOX
from lab.windows.wine.template import TREE

_FORM = "1"
"""Increment when a bundle is prepared differently from the same inputs."""
_WAIT = 1800.0
_SHORT = 16
REPLACED = ("containerd.exe", "ctr.exe")


def wine_manifest(manifest: Manifest, blobs: Mapping[str, Blob]) -> Manifest:
    """The manifest as Wine nodes have it. ``blobs``: the programs that are stand-ins. Pure."""
    programs = tuple(
        replace(program, blob=blobs[program.name], source="a stand-in for Wine")
        if program.name in blobs
        else program
        for program in manifest.programs
    )
    linux = tuple(image for image in manifest.images if image.os == "linux")
    return replace(manifest, programs=programs, images=(*linux, *_images(linux)))


def _images(linux: tuple[ContainerImage, ...]) -> Iterator[ContainerImage]:
    """What stands for Windows' images: one of each that a node needs, for each build."""
    for image in linux:
        if image.name.rpartition(":")[0] in NEEDED:
            for year, release in RELEASES.items():
                version = f"10.0.{release.build}.{registry.REVISIONS[year]}"
                yield replace(image, os="windows", os_version=version)


def place(cache: Path, manifest: Manifest, template: Path) -> Path:
    """The path of a prepared bundle, whether it exists or not."""
    parts = (_FORM, medium.identity(manifest, "windows"), template.name, standins.digest())
    digest = sha256("\n".join(parts).encode()).hexdigest()[:_SHORT]
    return cache / "containers" / f"wine-{digest}"


def prepare(  # noqa: PLR0913, PLR0917  each is an input of it
    cache: Path,
    store: BundleStore,
    manifest: Manifest,
    root: Path,
    template: Path,
    say: Callable[[str], None],
) -> Path:
    """The directory with drive D and the image store of Wine nodes; made if it does not exist.

    ``root``, ``template``: what the image of Windows pods is made of.

    Raises PreflightError when the bundle is damaged; BrokenError when containerd rejects an image.
    """
    final = place(cache, manifest, template)
    if final.is_dir():
        return final
    locked = cache / "locks" / f"containers-{final.name}"
    with cache_lock(locked, "preparing a bundle for Wine nodes", wait=_WAIT, say=say):
        if not final.is_dir():
            draft = final.with_name(f".{final.name}.partial")
            with guarded_files("preparing a bundle for Wine nodes"):
                shutil.rmtree(draft, ignore_errors=True)
                try:
                    _prepare(draft, cache, store, manifest, root, template, say)
                    prepared.finish(draft, final)
                except BaseException:
                    shutil.rmtree(draft, ignore_errors=True)
                    raise
    return final


def _prepare(  # noqa: PLR0913, PLR0917  each is an input of it
    draft: Path,
    cache: Path,
    store: BundleStore,
    manifest: Manifest,
    root: Path,
    template: Path,
    say: Callable[[str], None],
) -> None:
    compiled = standins.compiled(cache)
    for program in manifest.programs:
        if program.os == "windows":
            own = compiled / program.name
            source = own if program.name in REPLACED else store.blob(manifest, program.blob)
            target = draft / prepared.BUNDLE / medium.program_path(program.name)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
    linux = prepared.prepared(cache, store, manifest, say) / prepared.BUNDLE
    pause, agnhost = manifest.image(PAUSE).name, manifest.image(AGNHOST).name
    archive = draft / "agnhost.tar"
    server = draft / prepared.BUNDLE / medium.program_path("agnhost.exe")
    (draft / prepared.BUNDLE / SANDBOX).write_text(pause + "\n", encoding="ascii")
    say(f"writing image '{agnhost}' of Windows pods")
    write_image(archive, agnhost, root, template / TREE, server)
    prepared.fill_store(draft, linux, [linux / medium.image_path(pause), archive])
    archive.unlink()
