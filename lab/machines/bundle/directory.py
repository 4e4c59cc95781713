"""Makes a bundle from a directory that the user filled, across an air gap or from a build.

.. code-block:: text

    versions.json                 {"kubernetes": "1.36.1", "containerd": "2.3.7", ...}
    linux-amd64/kubelet           programs, CNI plugins in cni/
    windows-amd64/kubelet.exe
    images/*.tar                  docker-archives or OCI archives
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from os import fsencode
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from lab._errors import PreflightError, UsageError
from lab._log import quantity
from lab.machines.bundle.images import LARGEST, read_archive
from lab.machines.bundle.manifest import (
    KUBERNETES,
    PATCH,
    SHORT,
    Component,
    ContainerImage,
    Manifest,
    Program,
    Version,
    at_least,
    component_of,
    first_problem,
    is_archive_name,
    is_program_name,
)
from lab.machines.bundle.store import BundleStore, Scratch
from lab.machines.images.golden import guarded
from lab.machines.images.job import Say
from lab.scenario.findings import did_you_mean
from lab.scenario.terms import Os
from lab.scenario.versions import unsupported

VERSIONS = "versions.json"
IMAGES = "images"
SOURCE = "a directory of the user's"
_FOLDERS: Mapping[Os, str] = {"linux": "linux-amd64", "windows": "windows-amd64"}
_PLUGINS = "cni"
_ELF, _X86_64 = b"\x7fELF\x02", b"\x3e\x00"
_MACHINE_AT = 18
"""Machine type in the ELF and PE headers, and where a file gives the offset of the PE header."""
_PE_AT, _PE, _AMD64 = 0x3C, b"PE\0\0", b"\x64\x86"
_HEAD = 4096


def create(
    store: BundleStore, source: Path, systems: Sequence[Os], kubernetes: str | None, say: Say
) -> Manifest:
    """Make a bundle from a directory.

    ``systems``: operating systems to take; empty for those that the directory has. ``kubernetes``:
    the minor or patch version it must have; None for any.

    Raises PreflightError naming everything that the directory lacks or should not have.
    """
    action = f"making a bundle from '{source}'"
    with guarded(action):
        if not source.is_dir():
            hint = "name a directory that has a versions.json"
            raise UsageError(action, "there is no such directory", hint)
    versions = _versions(source, action)
    _check_version(versions.get(KUBERNETES, ""), kubernetes, action)
    with guarded(action):
        own = tuple(os for os, name in _FOLDERS.items() if (source / name).exists())
        taken = tuple(systems) or own
        programs_by_os = {os: _programs(source / _FOLDERS[os]) for os in taken}
        problems = [*_strangers(source), *_problems(programs_by_os)]
    if problems:
        raise PreflightError(action, "; ".join(problems), "fix that and try again")

    def fill(into: Scratch) -> Manifest:
        programs: list[Program] = []
        for os, paths in programs_by_os.items():
            say(f"copying {quantity(len(paths), 'program')} for {os}")
            for name, path in paths.items():
                component = component_of(name)
                assert component is not None, "_problems() has checked"
                programs.append(Program(name, component, os, into.keep_file(path), SOURCE))
        images = tuple(_images(source / IMAGES, taken, into, say))
        return Manifest(tuple(sorted(versions.items())), tuple(programs), images)

    name = sha256(fsencode(source.resolve())).hexdigest()[:SHORT]
    return store.add(f"directory-{name}", fill, say, goes_on=False)


def _versions(source: Path, action: str) -> dict[str, str]:
    path = source / VERSIONS
    with guarded(action):
        if not path.is_file():
            hint = 'write one: {"kubernetes": "1.36.1", "containerd": "2.3.7", ...}'
            raise PreflightError(action, f"it has no '{VERSIONS}'", hint)
        with path.open("rb") as file:
            content = file.read(LARGEST)
    try:
        return TypeAdapter(dict[Component, Version]).validate_json(content, strict=True)
    except ValidationError as error:
        hint = 'write it like {"kubernetes": "1.36.1", "containerd": "2.3.7"}, without a "v"'
        raise PreflightError(action, f"'{path}': {first_problem(error)}", hint) from error


def _check_version(own: str, requested: str | None, action: str) -> None:
    if not PATCH.fullmatch(own):
        happened = f"'{own}' in '{VERSIONS}' is not a version of Kubernetes"
        raise PreflightError(action, happened, 'write one such as "1.36.1"')
    why = unsupported(own.rpartition(".")[0])
    if why is not None:
        raise PreflightError(action, f"Kubernetes {own} {why}", "build another one")
    if requested is not None and requested not in {own, own.rpartition(".")[0]}:
        happened = f"it has Kubernetes {own}, but {requested} was requested"
        raise PreflightError(
            action, happened, f"leave --kubernetes out, or give --kubernetes {own}"
        )


def _programs(folder: Path) -> dict[str, Path]:
    """Path of every program by name; other files are included, for error messages."""
    programs: dict[str, Path] = {}
    for path in _list_visible(folder):
        if path.name == _PLUGINS and path.is_dir():
            programs |= {f"{_PLUGINS}/{plugin.name}": plugin for plugin in _list_visible(path)}
        else:
            programs[path.name] = path
    return programs


def _list_visible(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if not path.name.startswith("."))


def _strangers(source: Path) -> Iterator[str]:
    known = {*_FOLDERS.values(), IMAGES}
    for path in _list_visible(source):
        if path.is_dir() and path.name not in known:
            its = ", ".join(sorted(known))
            yield f"unknown directory '{path.name}': it may have {its}"
        if path.name in known and not path.is_dir():
            yield f"'{path.name}' is not a directory"
    for path in _list_visible(source / IMAGES):
        if path.suffix != ".tar" or not path.is_file():
            yield f"'{IMAGES}/{path.name}' is not a .tar file"


def _problems(programs_by_os: Mapping[Os, Mapping[str, Path]]) -> Iterator[str]:
    if not programs_by_os:
        yield f"it has neither '{_FOLDERS['linux']}' nor '{_FOLDERS['windows']}'"
    for os, programs in programs_by_os.items():
        folder = _FOLDERS[os]
        for name in at_least(os):
            if name not in programs:
                yield f"'{folder}/{name}' is missing"
        for name, path in programs.items():
            if component_of(name) is None or _system_of(name) != os:
                hint = did_you_mean(name, at_least(os), "leave it out")
                yield f"unknown program '{folder}/{name}' ({hint})"
            elif not path.is_file():
                yield f"'{folder}/{name}' is not a file"
            elif not is_program_name(name):
                yield f"'{folder}/{name}' is not a program name"
            elif not _runs(os, path):
                yield f"'{folder}/{name}' is not a program for {os} on amd64"


def _system_of(name: str) -> Os:
    return "windows" if name.endswith(".exe") or is_archive_name(name) else "linux"


def _runs(os: Os, path: Path) -> bool:
    """Whether a file begins like an x86-64 program of that system, or is an archive."""
    if is_archive_name(path.name):
        return zipfile.is_zipfile(path)
    with guarded(f"reading '{path}'"), path.open("rb") as file:
        head = file.read(_HEAD)
    if os == "linux":
        return head.startswith(_ELF) and head[_MACHINE_AT : _MACHINE_AT + 2] == _X86_64
    at = int.from_bytes(head[_PE_AT : _PE_AT + 4], "little")
    return head.startswith(b"MZ") and head[at : at + 6] == _PE + _AMD64


def _images(
    folder: Path, systems: Sequence[Os], into: Scratch, say: Say
) -> Iterator[ContainerImage]:
    earlier: dict[tuple[str, str, str | None], Path] = {}
    paths = sorted(folder.glob("[!.]*.tar"))
    say(f"copying {quantity(len(paths), 'image archive')}")
    for path in paths:
        for image in read_archive(path, SOURCE, into):
            if image.os not in systems:
                continue
            before = earlier.setdefault((image.name, image.os, image.os_version), path)
            if before != path:
                raise PreflightError(
                    f"reading '{path}'",
                    f"image '{image.name}' for {image.os} is also in '{before}'",
                    "leave one of them out",
                )
            yield image
