"""Finds and reads image recipes; reports every error at once, each with its place in the file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from lab._errors import FileError, UsageError
from lab._plugins import objects
from lab.machines.images.terms import TIME_ZONES
from lab.scenario.findings import (
    YAML_LANGUAGE,
    FileFinding,
    FileKind,
    Problem,
    did_you_mean,
    lines,
    quoted,
)
from lab.state.permissions import writer

if TYPE_CHECKING:
    from lab.machines.images.recipe import Recipe, Windows
    from lab.scenario.findings import Document

FILE = "image.yaml"
_RECIPE = FileKind(
    noun="recipe",
    language=YAML_LANGUAGE,
    absent="check the path, or give the name of an image",
    large="no recipe needs this much: put texts into templates",
    entries={"phases": "phase", "known": "medium"},
    example="my-image",
)
_KINDS = ("bootstrap", "cloud", "iso", "windows")
WINDOWS = "windows"
"""Folder of the templates and scripts for Windows images."""
_WINDOWS_FILES = (".j2", ".ps1", ".psm1")
_WINDOWS_DISK_GIB = 32
"""Disk and memory that Microsoft requires (learn.microsoft.com, hardware requirements of Windows
Server).
"""
_WINDOWS_MEMORY_MIB = {"core": 512, "desktop": 2048}
_OWN = frozenset({FILE, "README.md"})
"""Files in a folder that are not templates."""


class RecipeError(FileError):
    """A recipe is invalid."""


def directory() -> Path:
    """Directory of the shipped recipes: inside the package in a wheel, beside it in a checkout."""
    package = Path(__file__).resolve().parents[2]
    inside = package / "images"
    return inside if inside.is_dir() else package.parent / "images"


SHIPPED = directory()


def shipped(folder: Path | None = None) -> tuple[str, ...]:
    """Names of the recipes in a folder, in alphabetical order; None: in those of all plug-ins."""
    return tuple(sorted(_files(folder)))


def _files(folder: Path | None) -> dict[str, Path]:
    """The recipes by name."""
    folders = (folder,) if folder else (SHIPPED, *objects("images", Path))
    files = (file for each in folders for file in each.glob(f"*/{FILE}"))
    by_name: dict[str, Path] = {}
    for file in files:
        by_name.setdefault(file.parent.name, file)
    return by_name


def load(name: str, folder: Path | None = None) -> Recipe:
    """The recipe of this name.

    Raises UsageError when there is none, with the nearest name and the whole list. Raises
    RecipeError with every finding, in file order.
    """
    files = _files(folder)
    known = sorted(files)
    if name not in known:
        listed = f"the images are {', '.join(known)}"
        raise UsageError(
            f"looking for image {quoted(name)}",
            "there is no recipe of that name",
            "; ".join(filter(None, (did_you_mean(name, known, ""), listed))),
        )
    path = files[name]
    recipe, findings = check(path)
    if recipe is None or findings:
        raise RecipeError(f"reading recipe {quoted(path)}", lines(str(path), findings))
    return recipe


def require_own(recipe: Recipe) -> None:
    """Refuse a recipe that another user may write: building its image runs its commands.

    Raises UsageError naming the file, and how to fix it.
    """
    path = Path(recipe.path)
    folder = _template_folder(recipe, path)
    for file in (path, *(folder / name for name in recipe.files)):
        if wrong := writer(file):
            action = f"building image {quoted(recipe.name)}"
            raise UsageError(action, f"{wrong[0]}, and a recipe has commands", wrong[1])


def check(path: Path) -> tuple[Recipe | None, tuple[FileFinding, ...]]:
    """The recipe in a file, as far as it can be read, and everything wrong with it."""
    from lab.machines.images.recipe import Recipe  # noqa: PLC0415  pydantic is slow
    from lab.scenario import source, validation  # noqa: PLC0415  the same

    document, findings = source.read(path, _RECIPE)
    if document is None:
        return None, findings
    validated = validation.parse_document(document, Recipe, _RECIPE)
    problems = [*validated.problems]
    recipe = None
    if validated.model is not None:
        problems += _check_combinations(document, validated.model, path)
        files = _templates(_template_folder(validated.model, path))
        recipe = validated.model.replace(files=files, path=str(path))
    return recipe, (*findings, *(document.finding(problem) for problem in problems))


def _check_combinations(document: Document, model: Recipe, path: Path) -> Iterator[Problem]:
    """Errors between values that are valid alone."""
    kinds = [kind for kind in _KINDS if kind in document.value]
    if not kinds:
        yield Problem(
            (), ("the recipe does not say how the image is made"), f"add one of {', '.join(_KINDS)}"
        )
    for kind in kinds[1:]:
        problem = f'"{kind}" conflicts with "{kinds[0]}"'
        yield Problem((kind,), problem, "keep one of the two", at_key=True)
    if document.at(("name",)) == model.name != path.parent.name:  # else reported already
        problem = f"{quoted(model.name)} is not the name of the folder"
        yield Problem(("name",), problem, f"write {quoted(path.parent.name)}, or rename the folder")
    if model.templates is not None and not (path.parent.parent / model.templates).is_dir():
        problem = f"there is no folder {quoted(model.templates)} beside the recipe's"
        yield Problem(("templates",), problem, "make it, or leave the key out")
    if (model.firmware == "kernel") != (model.bootstrap is not None) and kinds:
        hint = 'write "kernel" for bootstrap, "bios" or "uefi" for the others'
        problem = f'"{kinds[0]}" images do not boot with firmware {quoted(model.firmware)}'
        yield Problem(("firmware",), problem, hint)
    if model.iso is not None and model.iso.mirror and not model.iso.suite:
        yield Problem(("iso", "mirror"), "the mirror has no release", 'add "suite"')
    if model.windows is not None:
        yield from _windows_together(model, model.windows)
        yield from _windows_templates(model, path)


def _windows_together(model: Recipe, windows: Windows) -> Iterator[Problem]:
    """Requirements for Windows recipes."""
    needs = {"os": "windows", "first_boot": "windows", "architecture": "x86_64"}
    for key, needed in needs.items():
        written = getattr(model, key)
        if written != needed:
            problem = f"{quoted(written)} does not fit Windows"
            yield Problem((key,), problem, f"write {key}: {needed}")
    if model.disk_gib < _WINDOWS_DISK_GIB:
        problem = f"a disk of {model.disk_gib} GiB is too small for Windows Server"
        yield Problem(("disk",), problem, f"write disk: {_WINDOWS_DISK_GIB}GiB or more")
    least = _WINDOWS_MEMORY_MIB[windows.surface]
    if windows.memory_mib < least:
        problem = f"{windows.memory_mib} MiB of memory is too little for Setup ({windows.surface})"
        yield Problem(("windows", "memory"), problem, f"write memory: {least}MiB or more")
    zone = windows.time_zone
    if zone not in TIME_ZONES:
        hint = did_you_mean(zone, sorted(TIME_ZONES), 'use a name that "tzutil /l" lists')
        yield Problem(("windows", "time_zone"), f"Windows has no time zone {quoted(zone)}", hint)
    if model.user != "Administrator":
        problem = f"{quoted(model.user)} does not exist after Windows is installed"
        yield Problem(("user",), problem, "write user: Administrator")


def _windows_templates(model: Recipe, path: Path) -> Iterator[Problem]:
    """Files that every Windows image needs and this recipe's folder lacks."""
    folder = _template_folder(model, path)
    every = (entry.name for entry in (directory() / WINDOWS).iterdir())
    needed = sorted(name for name in every if name.endswith(_WINDOWS_FILES))
    lacking = [name for name in needed if not (folder / name).is_file()]
    if folder.is_dir() and lacking:
        problem = f"folder {quoted(folder.name)} has no {quoted(lacking[0])}"
        more = f" and lacks {len(lacking) - 1} more" if lacking[1:] else ""
        hint = "write templates: windows, or copy that folder and change the copy"
        key = ("templates",) if model.templates else ("windows",)
        yield Problem(key, problem + more, hint, at_key=not model.templates)


def _template_folder(model: Recipe, path: Path) -> Path:
    return path.parent.parent / model.templates if model.templates else path.parent


def _templates(folder: Path) -> dict[str, bytes]:
    if not folder.is_dir():
        return {}
    paths = (path for path in sorted(folder.rglob("*")) if path.is_file())
    named = {path.relative_to(folder).as_posix(): path for path in paths}
    return {name: path.read_bytes() for name, path in named.items() if name not in _OWN}
