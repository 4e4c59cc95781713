"""Golden images in the cache: built, generalised disks, named by the hash of their inputs.

Each is a directory, described by its file ``image.json``.
"""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from lab._errors import PreflightError
from lab.inventory.inventory import Inventory
from lab.machines.images.terms import FirstBoot, Storage
from lab.scenario.terms import Os
from lab.shells.programs import MORE_ROOM
from lab.state.failure import guarded_files
from lab.state.files import read_regular
from lab.state.lock import lab_lock
from lab.state.permissions import writer

if TYPE_CHECKING:
    from lab.machines.images.recipe import Recipe


Firmware = Literal["kernel", "bios", "uefi"]
"""How it boots. ``kernel``: the hypervisor loads kernel and initrd itself (fastest)."""
FILE = "image.json"
FORMAT = 1
DISK = "disk.qcow2"
KERNEL = "kernel"
INITRD = "initrd"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Image:
    """What an image is, for the machines that are cloned from it."""

    name: str
    """Name of the recipe: ``debian-12``."""
    digest: str
    """Hex SHA-256 of recipe, templates and inputs."""
    os: Os
    virtual_gib: int
    """Size that the guest sees; a clone may be larger, never smaller."""
    firmware: Firmware
    arguments: str
    """Kernel command line; empty unless ``firmware`` is ``kernel``."""
    first_boot: FirstBoot
    user: str
    """The account that logs in with the lab's key and may become root without a password."""
    storage: Storage = "virtio"
    """Disk and network devices that its drivers are for; ``sata`` implies e1000e."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldenImage(_Image):
    """One image in the cache; complete and never changed."""

    disk: Path
    """A qcow2 file without a backing file."""
    kernel: Path | None
    initrd: Path | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageFacts(_Image):
    """The content of ``image.json``."""

    format: int
    summary: str
    architecture: str
    built: float
    """Seconds since 1970."""
    packages: tuple[str, ...]
    """``name version``, if known."""
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Bytes of each file beside ``image.json``, by name."""


@dataclass(frozen=True, slots=True)
class Built:
    """The result of a builder, besides the files in the scratch directory."""

    arguments: str = ""
    """Kernel command line, if there are kernel and initramfs."""
    virtual_gib: int | None = None
    """Size that a guest sees; None for the recipe's."""
    packages: tuple[str, ...] = ()
    """``name version`` of the installed packages, if known."""


def write_facts(directory: Path, recipe: Recipe, digest: str, built: Built) -> None:
    """Write ``image.json`` beside a builder's results."""
    facts = ImageFacts(
        format=FORMAT,
        name=recipe.name,
        digest=digest,
        summary=recipe.summary,
        os=recipe.os,
        architecture=recipe.architecture,
        virtual_gib=built.virtual_gib or recipe.disk_gib,
        firmware=recipe.firmware,
        arguments=built.arguments,
        first_boot=recipe.first_boot,
        user=recipe.user,
        storage=recipe.windows.storage if recipe.windows else "virtio",
        built=time.time(),
        packages=built.packages,
        sizes={path.name: path.stat().st_size for path in sorted(directory.iterdir())},
    )
    (directory / FILE).write_text(json.dumps(asdict(facts), indent=1) + "\n", encoding="utf-8")


def read_facts(directory: Path) -> ImageFacts:
    """Read an image's ``image.json``.

    Raises OSError, ValueError when there is none, or it is damaged.
    """
    from pydantic import TypeAdapter  # noqa: PLC0415  most importers read no image

    facts: ImageFacts = TypeAdapter(ImageFacts).validate_json(read_regular(directory / FILE))
    if not math.isfinite(facts.built):
        raise ValueError("its date is not valid")
    return facts


def damage(directory: Path) -> str | None:
    """Describe the damage of an image in the cache; None if every file is complete."""
    try:
        sizes = read_facts(directory).sizes
    except (OSError, ValueError):
        return f"'{directory / FILE}' cannot be read"
    for name, size in sizes.items():
        try:
            length = (directory / name).stat().st_size
        except (OSError, ValueError):
            return f"'{directory / name}' is missing"
        if length != size:
            return f"'{directory / name}' has {length} of {size} bytes"
    return None


def load(directory: Path) -> GoldenImage:
    """The image in a directory of the cache."""
    known = read_facts(directory)
    own_kernel = known.firmware == "kernel"
    return GoldenImage(
        **{entry.name: getattr(known, entry.name) for entry in fields(_Image)},
        disk=directory / DISK,
        kernel=directory / KERNEL if own_kernel else None,
        initrd=directory / INITRD if own_kernel else None,
    )


def cache_directory(inventory: Inventory) -> Path:
    """The inventory's ``cache``, or ``hybridlab`` below ``$XDG_CACHE_HOME``."""
    if inventory.cache is not None:
        return inventory.cache
    shared = os.environ.get("XDG_CACHE_HOME", "")
    home = Path(shared) if shared.startswith("/") else Path.home() / ".cache"
    return home / "hybridlab"


@dataclass(frozen=True, slots=True)
class CollectedEntries:
    """What a ``gc`` found."""

    paths: tuple[str, ...]
    """Paths, relative to the cache."""
    bytes: int
    removed: bool


ELSEWHERE = "or name another 'cache' in the inventory"
PARTIAL = ".partial"
"""Ending of a directory's name while it is being created or removed."""
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


@contextmanager
def guarded(action: str) -> Iterator[None]:
    """Turn an OSError into a LabError; for a full disk, with a hint about the cache."""
    try:
        with guarded_files(action, ELSEWHERE):
            yield
    except PreflightError as error:
        cause = error.__cause__
        if isinstance(cause, OSError) and cause.errno in _FULL:
            raise PreflightError(action, error.happened, MORE_ROOM) from cause
        raise


@contextmanager
def cache_lock(
    directory: Path, command: str, *, wait: float, say: Callable[[str], None] = lambda _: None
) -> Iterator[None]:
    """Hold a lock in the cache; see :func:`lab.state.lock.lab_lock`.

    Raises HeldError when another command still holds it. Raises PreflightError, with a hint about
    the cache, when the lock file cannot be created.
    """
    with ExitStack() as held:
        with guarded(f"locking '{directory.name}'"):
            lock = lab_lock(directory, command, wait=wait, say=say, elsewhere=ELSEWHERE)
            held.enter_context(lock)
        yield


def require_own(*directories: Path, exists: bool = False) -> None:
    """As root, refuse to write where another user could redirect files through links.

    ``directories``: directories of the cache that will be written, and the cache itself.
    ``exists``: whether they must exist: otherwise another user may still create them.

    Raises PreflightError with the directory and who may write it.
    """
    for path in directories if os.geteuid() == 0 else ():
        if wrong := writer(path, exists=exists):
            raise PreflightError(
                f"writing into '{path}'",
                wrong[0],
                "set 'cache' in the inventory to a directory that only root can write",
            )


def make_own(cache: Path, *directories: Path) -> None:
    """Create the cache and directories in it if they do not exist; see :func:`require_own`.

    Raises OSError when one cannot be created. Raises PreflightError when another user could
    redirect the files, or has created one meanwhile.
    """
    require_own(cache, *directories)
    for path in (cache, *directories):
        path.mkdir(parents=True, exist_ok=True)
    require_own(cache, *directories, exists=True)


def read_json(path: Path) -> object:
    """The content of a small JSON file of the cache; None if it cannot be read."""
    try:
        document: object = json.loads(read_regular(path))
    except (OSError, ValueError, RecursionError):
        return None
    return document


def read_line(path: Path) -> str:
    """The text of a small file of the cache without its newline; empty if there is none."""
    try:
        return read_regular(path).decode("ascii", "replace").strip()
    except OSError:
        return ""


def entries(directory: Path) -> list[Path]:
    """The sorted entries of a directory; empty if there is no directory.

    Raises StateError when it cannot be read.
    """
    with guarded(f"looking into '{directory}'"):
        try:
            return sorted(directory.iterdir())
        except FileNotFoundError:
            return []


def size(path: Path) -> int:
    """Bytes on disk of a file, or of everything below a directory; unreadable files count as 0.

    Links are not followed.
    """
    files = [path]
    if not path.is_symlink():
        for directory, _, names in os.walk(path):
            files += (Path(directory, name) for name in names)
    return sum(map(_blocks, files)) * 512


def _blocks(path: Path) -> int:
    try:
        status = path.lstat()
    except OSError:  # removed meanwhile, or not permitted
        return 0
    return 0 if stat.S_ISDIR(status.st_mode) else status.st_blocks


def remove(path: Path) -> None:
    """Remove a directory, or a file in its place."""
    with guarded(f"removing '{path}'"):
        if path.is_symlink() or not path.is_dir():
            path.unlink(missing_ok=True)
            return
        if not path.name.startswith("."):
            hidden = path.with_name(f".{path.name}{PARTIAL}")
            if hidden.is_dir():  # left by an interrupted removal
                shutil.rmtree(hidden)
            path.rename(hidden)  # a directory under its final name is never half removed
            path = hidden
        shutil.rmtree(path)
