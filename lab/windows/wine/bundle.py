"""The bundle of Wine nodes: the Windows programs, with stand-ins for those that Wine cannot run.

containerd.exe and ctr.exe are the lab's own (``standins/containerd.c``); images for Windows are
Linux images that run Windows programs on Wine, under the names that Kubernetes asks for.
"""

from __future__ import annotations

import io
import json
import shutil
import tarfile
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from lab._errors import PreflightError
from lab.machines.bundle import medium
from lab.machines.bundle.manifest import POWERSHELL, Blob, ContainerImage, Manifest
from lab.machines.bundle.store import BundleStore
from lab.machines.cluster import rules
from lab.machines.images.golden import cache_lock
from lab.machines.images.terms import RELEASES
from lab.machines.nspawn import prepared
from lab.machines.nspawn.system import Bundle
from lab.state.failure import guarded_files
from lab.windows.nodes.join_checks import AGNHOST, NEEDED, PAUSE
from lab.windows.nodes.join_plan import program_path
from lab.windows.wine import pages, registry, standins
from lab.windows.wine.image import AGNHOST_SETTINGS, write_archive, write_base, write_program
from lab.windows.wine.node import BASE, CONSOLE_SCRIPT, PAGES, SANDBOX, run_script
from lab.windows.wine.runtime.places import linux_path
from lab.windows.wine.template import TREE

_FORM = "5"
"""Increment when a bundle is prepared differently from the same inputs."""
_WAIT = 1800.0
_SHORT = 16
SANDBOX_NAME = "localhost/hybridlab-sandbox"
"""What the image of pods' sandboxes, Linux' pause, is called on Wine nodes: a pod may have Windows'
pause under its own name."""
REPLACED = ("containerd.exe", "ctr.exe")
RUNNING = ("flanneld.exe", "kube-log-runner.exe", "kube-proxy.exe", "kubelet.exe")
"""Programs that run as long as the node is on."""
SERVER = "agnhost.exe"
_IN_LAYER = ("Files/agnhost.exe", "Files/agnhost")
"""Its path in a layer of the published image, whose files for drive C are below ``Files``."""


def wine_manifest(manifest: Manifest, blobs: Mapping[str, Blob]) -> Manifest:
    """The manifest as Wine nodes have it. ``blobs``: the programs that are stand-ins. Pure."""
    programs = tuple(
        replace(program, blob=blobs[program.name], source="a stand-in for Wine")
        if program.name in blobs
        else program
        for program in manifest.programs
    )
    linux = tuple(image for image in manifest.images if image.os == "linux")
    made = NEEDED if has_agnhost(manifest) else tuple(name for name in NEEDED if name != AGNHOST)
    return replace(manifest, programs=programs, images=(*linux, *_images(linux, made)))


def has_agnhost(manifest: Manifest) -> bool:
    """Whether a bundle has agnhost for Windows, as a program or in an image."""
    return any(program.name == SERVER for program in manifest.programs) or any(
        image.os == "windows" and image.name.rpartition(":")[0] == AGNHOST
        for image in manifest.images
    )


def lacks_powershell(manifest: Manifest) -> str:
    """Why a bundle has no PowerShell; empty if it has one."""
    if any(program.name == POWERSHELL for program in manifest.programs):
        return ""
    return f"the bundle has no PowerShell for Windows ('{POWERSHELL}')"


def powershell(bundle: Bundle | None) -> Path:
    """PowerShell's release archive in a bundle.

    Raises PreflightError when there is none.
    """
    lacking = lacks_powershell(bundle[1]) if bundle else "PowerShell for Windows is in a bundle"
    if bundle is None or lacking:
        raise PreflightError(
            "making the template of Wine nodes",
            lacking,
            "'lab bundle create' makes one with all that Wine nodes need; '--only linux' leaves "
            "them out",
        )
    store, manifest = bundle
    return store.blob(manifest, manifest.program(POWERSHELL, "windows").blob)


def _images(linux: tuple[ContainerImage, ...], made: Collection[str]) -> Iterator[ContainerImage]:
    """What stands for Windows' images: one of each that a node needs, for each build."""
    for image in linux:
        if image.name.rpartition(":")[0] in made:
            for year, release in RELEASES.items():
                version = f"10.0.{release.build}.{registry.REVISIONS[year]}"
                yield replace(image, os="windows", os_version=version)


def place(cache: Path, manifest: Manifest, template: Path) -> Path:
    """The path of a prepared bundle, whether it exists or not."""
    made_of = (medium.identity(manifest, "windows"), template.name, standins.digest())
    parts = (_FORM, *made_of, run_script(), CONSOLE_SCRIPT)
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
        if program.os == "windows" and not program.is_archive:
            own = compiled / program.name
            source = own if program.name in REPLACED else store.blob(manifest, program.blob)
            target = draft / prepared.BUNDLE / medium.program_path(program.name)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
            target.chmod(0o755)  # Wine starts only what may be executed
            place = draft / prepared.ROOT / linux_path(program_path(program.name)).lstrip("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            place.hardlink_to(target)
            if program.name in RUNNING:
                pages.write(target, draft / prepared.BUNDLE / PAGES)
    linux = prepared.prepared(cache, store, manifest, say) / prepared.BUNDLE
    pause, agnhost = manifest.image(PAUSE).name, manifest.image(AGNHOST).name
    server = draft / prepared.BUNDLE / medium.program_path(SERVER)
    if not server.exists():
        take_agnhost(store, manifest, server)
    say(f"writing image '{agnhost}' of Windows pods, once: 2.6 GB, half a minute")
    scratch = draft / "images"
    scratch.mkdir()
    base = write_base(scratch / "base", root, template / TREE)
    layers = (base, write_program(scratch / "program", server))
    write_archive(scratch / "agnhost.tar", agnhost, layers, AGNHOST_SETTINGS)
    sandbox = f"{SANDBOX_NAME}:{pause.rpartition(':')[2]}"
    renamed(linux / medium.image_path(pause), scratch / "sandbox.tar", sandbox)
    for name, text in ((SANDBOX, sandbox), (BASE, f"{base.digest} {base.size}")):
        (draft / prepared.BUNDLE / name).write_text(text + "\n", encoding="ascii")
    archives = (linux / medium.image_path(pause), scratch / "sandbox.tar", scratch / "agnhost.tar")
    prepared.fill_store(draft, linux, archives)
    shutil.rmtree(scratch)


def renamed(archive: Path, target: Path, name: str) -> None:
    """Write a bundle's archive of one image with another name of it.

    Raises OSError when it cannot be written.
    """
    with tarfile.open(archive) as given, tarfile.open(target, "w") as out:
        for member in given:
            content = given.extractfile(member)
            if member.name == "index.json" and content is not None:
                index = json.load(content)
                index["manifests"][0]["annotations"] = {"io.containerd.image.name": name}
                text = json.dumps(index).encode()
                member.size, content = len(text), io.BytesIO(text)
            out.addfile(member, content)


def take_agnhost(store: BundleStore, manifest: Manifest, target: Path) -> None:
    """Write agnhost.exe out of the bundle's image for the newest Windows to a file.

    Raises PreflightError when a layer cannot be read, or none has it.
    """
    image = max(
        (
            image
            for image in manifest.images
            if image.os == "windows" and image.name.rpartition(":")[0] == AGNHOST
        ),
        key=lambda image: rules.windows_build(image.os_version or "") or 0,
    )
    action = f"taking {SERVER} out of image '{image.name}' for Windows {image.os_version}"
    problem = "none of its layers has it"
    for layer in reversed(image.layers):
        try:
            with tarfile.open(store.blob(manifest, layer.blob)) as tar:
                for member in tar:
                    content = tar.extractfile(member) if member.name in _IN_LAYER else None
                    if content is not None:
                        target.parent.mkdir(parents=True, exist_ok=True)
                        with target.open("wb") as file:
                            shutil.copyfileobj(content, file)
                        return
        except (tarfile.TarError, EOFError, zlib.error) as error:
            problem = f"layer {layer.blob.sha256[:12]} cannot be read ({error})"
    raise PreflightError(action, problem, "lab bundle verify")
