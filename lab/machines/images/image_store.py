"""The golden images of this machine: built once, stored by digest, removed when unused.

.. code-block:: text

    <cache>/images/debian-12-0123456789abcdef/          disk.qcow2 kernel initrd image.json
    <cache>/images/.debian-12-0123456789abcdef.partial/ a build in progress, or interrupted
    <cache>/roots/debian-12-0123456789abcdef/           root/ image.json: for system containers
    <cache>/downloads/                                  downloaded files, complete or partial
    <cache>/locks/                                      locks of builds

A finished image's directory gets its name by one rename, so a named image is always complete.

``lab image build NAME --iso PATH`` records the path in the cache, so that ``lab up`` finds the
image built from it. The inventory takes precedence, so a path that differs from the inventory's is
refused: ``lab up`` would look for another image. ``--firmware`` is recorded for the same reason,
unless it equals the recipe's.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from lab._errors import LabError, PreflightError, UsageError
from lab.inventory.inventory import ImageSource, Inventory
from lab.machines.images import bootstrap, golden, inputs, recipes
from lab.machines.images.golden import (
    PARTIAL,
    Built,
    CollectedEntries,
    GoldenImage,
    cache_lock,
    entries,
    guarded,
    make_own,
    read_json,
    remove,
    require_own,
    size,
)
from lab.machines.images.inputs import ImageInputs
from lab.machines.images.job import UNFINISHED, BuildJob, BuildSystem, Installer, Say
from lab.machines.images.recipe import Kind, Recipe
from lab.machines.images.terms import Firmware
from lab.machines.system import system_of
from lab.state.directory import fsync
from lab.state.failure import guarded_files
from lab.state.files import write_private
from lab.state.lock import holder

FILE = "inputs.json"
FIRMWARE = "firmware.json"


_WAIT = 6 * 3600.0
"""Seconds to wait for another process's build: an emulated installation takes hours."""
_SHORT = 16
"""Hex digits of the digest in a directory's name."""
_BUILT = re.compile(rf"[^.].*-(?P<digest>[0-9a-f]{{{_SHORT}}})")
"""Name of an image's directory."""


@dataclass(frozen=True, slots=True)
class ListedImage:
    """One recipe and the state of its image."""

    name: str
    kind: str
    state: str
    """``built``, ``absent``, or ``unusable`` with the reason in ``detail``."""
    digest: str | None
    bytes: int
    """Bytes on disk of a built image."""
    detail: str
    """The recipe's summary, or why the image is not available."""


class ImageStore:
    """Golden images below one cache directory."""

    def __init__(
        self,
        cache: Path,
        inventory: Inventory,
        installer: Installer | None = None,
        folder: Path | None = None,
    ) -> None:
        """Use a cache; reads and creates nothing yet.

        ``cache``: the directory; created when first needed. ``inventory``: image sources, mirrors
        and proxies. ``installer``: runs installers for ``iso`` recipes; None without a hypervisor.
        ``folder``: directory of the recipes; None for the shipped ones.
        """
        self._cache = cache
        self._images = cache / "images"
        self._roots = cache / "roots"
        self._downloads = cache / "downloads"
        self._said = inventory
        self._inventory = self._merged()
        self._installer = installer
        self._folder = folder

    def get(self, name: str, say: Say) -> GoldenImage:
        """A recipe's image; builds it if it does not exist.

        When several processes ask, one builds; the others wait and report that.

        Raises UsageError when there is no such recipe, or it is invalid. Raises PreflightError when
        something that the build needs is missing, and how to get it. Raises BrokenError when a step
        fails, with its last output lines.
        """
        made_from = self._inputs(name, say)
        made_from.check()
        digest = made_from.digest()
        if image := self._stored(name, digest):
            return image
        with self._locked(name, digest, say):
            return self._stored(name, digest) or self._build(made_from, digest)

    def root(self, name: str, say: Say) -> Path:
        """The root file system of a recipe made from packages; builds it if it does not exist.

        System containers share it read-only. Waits and raises like :meth:`get`.

        Raises PreflightError when the recipe is not made from packages, or something that the build
        needs is missing. Raises BrokenError when a step of the build fails, with its last output
        lines.
        """
        made_from, action = (
            self._inputs(name, say),
            f"making the root file system of image '{name}'",
        )
        if made_from.recipe.bootstrap is None:
            raise PreflightError(
                action,
                f"its recipe is of kind '{made_from.recipe.kind}', and system containers boot "
                "images that are made from packages",
                "use image 'debian-12', or '--provider libvirt'",
            )
        digest = made_from.digest()
        final = self._roots / _directory_name(name, digest)
        if not final.is_dir():
            with self._locked(name, digest, say):
                if not final.is_dir():
                    say(f"image '{name}': making its root file system, once: a minute or two")
                    with guarded(action):
                        shutil.rmtree(_scratch_of(final), ignore_errors=True)
                        self._fill(made_from, digest, final, bootstrap.build_root)
                    say(f"image '{name}': root file system made")
        return final / bootstrap.ROOT

    def has_root(self, name: str) -> bool:
        """Whether :meth:`root` would build nothing."""
        digest = self._inputs(name).known_digest()
        return digest is not None and (self._roots / _directory_name(name, digest)).is_dir()

    @property
    def logs(self) -> Path:
        """Directory for the console logs of builds."""
        return self._downloads.parent / "logs"

    def peek(self, name: str) -> GoldenImage | None:
        """What ``get`` would return, without building or using the network; None if it would."""
        digest = self._inputs(name).known_digest()
        return self._stored(name, digest) if digest else None

    def require(self, name: str) -> None:
        """Check that the inputs of a recipe's image exist, without reading them.

        Raises PreflightError with what to get and where to put it.
        """
        self._inputs(name).check()

    def recipe(self, name: str) -> Recipe:
        """The recipe of this name, with the firmware chosen last.

        Raises UsageError when there is none, or it is invalid.
        """
        recipe = recipes.load(name, self._folder)
        kept = self._recorded(FIRMWARE).get(name)
        firmware = next((candidate for candidate in get_args(Firmware) if candidate == kept), None)
        return (
            recipe if firmware is None or not recipe.windows else recipe.replace(firmware=firmware)
        )

    def choose(self, name: str, firmware: Firmware) -> None:
        """Make a recipe's image boot with this firmware from now on.

        Raises UsageError when the recipe's firmware cannot be changed: its answers are for one
        firmware.
        """
        recipe = recipes.load(name, self._folder)
        if recipe.windows is None:
            raise UsageError(
                f"building image '{name}'",
                f"--firmware is only for Windows images; this one boots with '{recipe.firmware}'",
                "leave the option out",
            )
        known = self._recorded(FIRMWARE)
        chosen = {recipe_name: kept for recipe_name, kept in known.items() if recipe_name != name}
        if firmware != recipe.firmware:
            chosen[name] = firmware
        if chosen != known:
            self._keep("recording the firmware of images", FIRMWARE, chosen)

    def remember(self, name: str, given: Mapping[str, Path]) -> None:
        """Record the paths of the files that a recipe's image is made from, by input name.

        Raises PreflightError when the recipe has no such input, or the file does not exist or is
        the wrong one. Raises UsageError when the inventory has another path.
        """
        recipe, action = self.recipe(name), f"building image '{name}'"
        every = inputs.needs(recipe, self._said)
        needs = {need.name: need for need in every if need.name != inputs.FILE}
        kept = dict(self._recorded(FILE))
        for option, path in given.items():
            if option not in needs:
                options = ", ".join(f"--{known}" for known in needs)
                hint = f"give it {options}" if options else "leave the option out"
                raise PreflightError(action, f"it is not made from '{option}'", hint)
            need = needs[option]
            if not path.is_file():
                happened = f"--{option}: '{path}' is not a file"
                raise PreflightError(action, happened, f"give the path of {need.description}")
            inputs.check_file(recipe, option, path)
            own = self._said.images.get(need.image)
            if own is not None and own.url is not None and not _is_same(own.url, path):
                raise UsageError(
                    action,
                    f"--{option} is '{path}', but [images.{need.image}] of the inventory says "
                    f"'{own.url}'",
                    "leave the option out, or change the inventory, which 'lab up' reads",
                )
            kept[need.image] = str(path.absolute())
        self._keep("recording where media are", FILE, kept)
        self._inventory = self._merged()

    def _merged(self) -> Inventory:
        """The inventory, completed by the recorded paths of images without a source in it."""
        images = dict(self._said.images)
        for name, path in self._recorded(FILE).items():
            source = images.get(name)
            if source is None or source.url is None:
                images[name] = ImageSource(url=path, sha256=source.sha256 if source else None)
        return self._said.replace(images=images)

    def _keep(self, action: str, file: str, kept: Mapping[str, str]) -> None:
        with guarded_files(action):
            make_own(self._cache)
            write_private(self._cache / file, json.dumps(kept, indent=1, sort_keys=True) + "\n")

    def _recorded(self, file: str) -> Mapping[str, str]:
        document = read_json(self._cache / file)
        if not isinstance(document, dict):
            return {}
        return {str(name): str(value) for name, value in document.items()}

    def is_building(self, scratch: Path) -> bool:
        """Whether a process is building in that directory, or keeps an unfinished build there."""
        if scratch.parent != self._images:
            return scratch.is_dir()
        return scratch.is_dir() and self._is_held(scratch)

    def media(self) -> frozenset[str]:
        """Hex SHA-256 of all inputs of all recipes, as far as they are known."""
        digests: set[str] = set()
        for name in recipes.shipped(self._folder):
            with suppress(LabError):
                known = self._inputs(name).known_digests() or {}
                digests |= {digest.rpartition(":")[2] for digest in known.values()}
        return frozenset(digests)

    def digest(self, name: str) -> str:
        """Hex SHA-256 of everything that goes into the image.

        Raises PreflightError when an input is missing: what to get and where to put it.
        """
        return self._inputs(name).digest()

    def list(self) -> tuple[ListedImage, ...]:
        """Every recipe and the state of its image."""
        return tuple(self._listed(name) for name in recipes.shipped(self._folder))

    def show(self, name: str) -> golden.ImageFacts:
        """The facts of a built image.

        Raises UsageError when it is not built.
        """
        image = self.peek(name)
        if image is None:
            raise UsageError(
                f"looking at image '{name}'", "it has not been built", f"lab image build {name}"
            )
        return golden.read_facts(image.disk.parent)

    def gc(self, in_use: Collection[str], yes: bool) -> CollectedEntries:
        """Find, and with ``yes`` remove, what no recipe uses any more.

        Images of older recipes or tools, interrupted builds, and downloads that no image is waiting
        for. Builds in progress are left alone.

        ``in_use``: digests of images that labs have cloned. ``yes``: remove; False only reports.
        """
        paths = [*self._old_images(in_use), *self._dead_scratch(), *self._old_downloads()]
        total = sum(size(path) for path in paths)
        if yes:
            require_own(self._cache, self._images, self._roots, self._downloads)
            for path in paths:
                remove(path)
        names = tuple(str(path.relative_to(self._cache)) for path in paths)
        return CollectedEntries(names, total, yes)

    def _inputs(self, name: str, say: Say = lambda _: None) -> ImageInputs:
        return ImageInputs(self.recipe(name), self._inventory, self._downloads, say)

    def _build(self, made_from: ImageInputs, digest: str) -> GoldenImage:
        name, say = made_from.recipe.name, made_from.say
        recipes.require_own(made_from.recipe)
        final = self._images / _directory_name(name, digest)
        scratch = _scratch_of(final)
        with guarded(f"building image '{name}'"):
            if final.exists():
                say(f"image '{name}': {golden.damage(final)}: building it again")
                remove(final)
            if (scratch / UNFINISHED).exists():
                say(f"image '{name}': continuing an interrupted build")
            elif scratch.exists():
                say(f"image '{name}': starting the interrupted build over")
                shutil.rmtree(scratch)
            if self._others_left(name, scratch):
                say(
                    f"image '{name}': an interrupted installation from other media or "
                    "another recipe is still running: 'lab image gc --yes' removes it"
                )
            self._fill(made_from, digest, final, build)
        say(f"image '{name}': built, {size(final) / 1e6:.0f} MB")
        return golden.load(final)

    def _fill(
        self, made_from: ImageInputs, digest: str, final: Path, make: Callable[[BuildJob], Built]
    ) -> None:
        """Create an image's directory, and give it its final name once it is complete."""
        scratch = _scratch_of(final)
        scratch.mkdir(parents=True, mode=0o755, exist_ok=True)
        self._downloads.mkdir(exist_ok=True)
        try:
            built = make(BuildJob(made_from, scratch, self._installer))
            golden.write_facts(scratch, made_from.recipe, digest, built)
            for path in (*scratch.iterdir(), scratch):
                fsync(path)
            scratch.rename(final)
        except BaseException:
            if not (scratch / UNFINISHED).exists():
                shutil.rmtree(scratch, ignore_errors=True)
            raise

    def _others_left(self, name: str, scratch: Path) -> bool:
        """Whether another build of this name continues although no process waits for it."""
        every = self._images.glob(f".{name}-{'[0-9a-f]' * _SHORT}{PARTIAL}/{UNFINISHED}")
        directories = {path.parent for path in every} - {scratch}
        return any(not self._is_held(directory) for directory in directories)

    def _is_held(self, scratch: Path) -> bool:
        return holder(self._lock(scratch.name.removeprefix(".").removesuffix(PARTIAL))) is not None

    def _stored(self, name: str, digest: str) -> GoldenImage | None:
        directory = self._images / _directory_name(name, digest)
        with guarded(f"looking for image '{name}'"):
            whole = directory.is_dir() and not golden.damage(directory)
            return golden.load(directory) if whole else None

    @contextmanager
    def _locked(self, name: str, digest: str, say: Say) -> Iterator[None]:
        with guarded(f"building image '{name}'"):
            make_own(self._cache, self._images)
            require_own(self._roots, self._downloads)
        directory = self._lock(_directory_name(name, digest))
        with cache_lock(directory, f"lab image build {name}", wait=_WAIT, say=say):
            yield

    def _lock(self, name: str) -> Path:
        return self._cache / "locks" / name

    def _listed(self, name: str) -> ListedImage:
        kind = "-"
        try:
            recipe = self.recipe(name)
            kind = recipe.kind
            image = self.peek(name)
        except LabError as error:
            return ListedImage(name, kind, "unusable", None, 0, error.happened)
        if image is None:
            return ListedImage(name, kind, "absent", None, 0, recipe.summary)
        taken = size(image.disk.parent)
        return ListedImage(name, kind, "built", image.digest, taken, recipe.summary)

    def _old_images(self, in_use: Collection[str]) -> Iterator[Path]:
        current = {digest[:_SHORT] for digest in (*self._current(), *in_use)}
        for directory in (*entries(self._images), *entries(self._roots)):
            named = _BUILT.fullmatch(directory.name)
            if named and named["digest"] not in current:
                yield directory

    def _current(self) -> Iterator[str]:
        """Digests of the recipes' current images, as far as they are known."""
        for name in recipes.shipped(self._folder):
            if digest := self._inputs(name).known_digest():
                yield digest

    def _dead_scratch(self) -> Iterator[Path]:
        for directory in (*entries(self._images), *entries(self._roots)):
            if directory.name.startswith(".") and not self._is_held(directory):
                yield directory

    def _old_downloads(self) -> Iterator[Path]:
        wanted = inputs.referenced_names(self._folder, self._inventory)
        wanted |= inputs.pinned_names(self._downloads)
        for path in entries(self._downloads):
            if path.name.partition(".")[0] not in wanted:
                yield path


def _is_same(kept: str, path: Path) -> bool:
    """Whether the inventory's path is that file, after resolving links."""
    try:
        return Path(kept).samefile(path)
    except (OSError, ValueError):  # a web address, or no such file
        return False


def build(job: BuildJob) -> Built:
    """Fill the job's scratch directory; raises like the builders."""
    from lab.machines.images import cloud, iso  # noqa: PLC0415  most calls build nothing

    builders: Mapping[Kind, Callable[[BuildJob], Built]] = {
        "bootstrap": bootstrap.build,
        "cloud": cloud.build,
        "iso": iso.build,
        "windows": lambda job: system_of("windows", BuildSystem, job.action).build_image(job),
    }
    return builders[job.recipe.kind](job)


def _directory_name(name: str, digest: str) -> str:
    return f"{name}-{digest[:_SHORT]}"


def _scratch_of(final: Path) -> Path:
    """The directory in which an image is built."""
    return final.with_name(f".{final.name}{PARTIAL}")
