"""Images for Windows of a user's own on the Wine nodes of a lab."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from lab._deadline import Deadline
from lab._errors import BrokenError
from lab.machines.bundle.images import read_archive
from lab.machines.bundle.manifest import ContainerImage
from lab.machines.bundle.store import Scratch
from lab.machines.cluster import rules
from lab.machines.cluster.linux.bring_up import import_archive as import_on_linux
from lab.machines.images.golden import guarded
from lab.shells.parallel import on_each
from lab.shells.shell import Shell
from lab.windows.wine.foreign import convert
from lab.windows.wine.image import Layer
from lab.windows.wine.node import BASE, BUNDLE

_LOOK_SECONDS = 20.0


def import_archive(
    archive: Path,
    nodes: Mapping[str, Shell],
    deadline: Callable[[float], Deadline],
    say: Callable[[str], None],
) -> None:
    """Import the images for Windows of an archive; of several builds of one, the newest.

    ``nodes``: a shell on the Linux of each node. ``deadline``: makes one of seconds on hardware.

    Raises PreflightError when the archive cannot be read; BrokenError with what a node's containerd
    says; DeadlineError when it takes too long.
    """
    base = _base(nodes, deadline(_LOOK_SECONDS))
    with (
        guarded(f"importing '{archive}'"),
        tempfile.TemporaryDirectory(prefix="hybridlab-import-") as directory,
    ):
        scratch = Scratch(Path(directory))
        converted = Path(directory) / "image.tar"
        newest: dict[str, ContainerImage] = {}
        for image in read_archive(archive, str(archive), scratch):
            if image.os == "windows" and _build(image) >= _build(newest.get(image.name, image)):
                newest[image.name] = image
        for image in newest.values():
            for remark in convert(image, scratch.path, base, converted):
                say(f"note: image '{image.name}': not kept: {remark}")
            on_each(nodes, lambda name: import_on_linux(name, converted, nodes[name], deadline))


def _build(image: ContainerImage) -> int:
    return rules.windows_build(image.os_version or "") or 0


def _base(nodes: Mapping[str, Shell], deadline: Deadline) -> Layer:
    """The layer that images of these nodes begin with, which they have."""
    name, shell = next(iter(nodes.items()))
    done = shell.run(("cat", f"{BUNDLE}/{BASE}"), deadline)
    digest, _, size = done.stdout.strip().partition(" ")
    if done.code or not size.isdecimal():
        raise BrokenError(
            f"reading the medium of Wine node '{name}'",
            "it does not say what images for Windows begin with: an earlier version made it",
            "'lab down', then 'lab up'",
        )
    return Layer(digest, int(size))
