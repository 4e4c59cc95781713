"""A bundle's ``manifest.json``, and the catalogue of upstream's releases. Pure."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files
from itertools import chain
from typing import Annotated, Any

from pydantic import AfterValidator, Field, TypeAdapter, ValidationError

from lab._errors import PreflightError
from lab.plan.canonical import plain
from lab.scenario.findings import cut
from lab.scenario.terms import Os

POWERSHELL = "powershell.zip"
"""PowerShell's release archive for Windows: Windows nodes on Wine run it."""
KUBERNETES = "kubernetes"
"""The component whose version is the bundle's own."""
FILE = "manifest.json"
SHORT = 12
"""Hex digits of the digest in directory names and messages."""
PATCH = re.compile(r"[0-9]{1,4}\.[0-9]{1,4}\.[0-9]{1,6}")
_PATH = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_IMAGE = re.compile(
    rf"(?=[^/]*[.:]|localhost/)[a-zA-Z0-9.-]+(?::\d+)?/{_PATH}(?:/{_PATH})*:\w[\w.-]{{0,127}}"
)
"""The grammar of distribution/reference, with registry and tag required and digests excluded."""


def is_full_name(name: str) -> bool:
    """Whether an image's name has registry, path and tag: ``registry.k8s.io/pause:3.10.2``."""
    return _IMAGE.fullmatch(name) is not None


def is_program_name(name: str) -> bool:
    """Whether a text is a program name such as ``cni/bridge``; a medium allows 64 characters."""
    return re.fullmatch(r"(cni/)?[A-Za-z0-9][A-Za-z0-9._-]{0,59}", name) is not None


def is_archive_name(name: str) -> bool:
    """Whether a program is an archive of many files: ``powershell.zip``."""
    return name.endswith(".zip")


def make_validator(holds: Callable[[str], object], noun: str) -> AfterValidator:
    """A validator that refuses other texts: ``Annotated[str, checked(..., "version")]``."""

    def check(value: str) -> str:
        if not holds(value):
            raise ValueError(f"{cut(value)!a} is not a valid {noun}")
        return value

    return AfterValidator(check)


Component = Annotated[
    str, make_validator(re.compile(r"[a-z0-9][a-z0-9.-]{0,39}").fullmatch, "component name")
]
Version = Annotated[
    str, make_validator(re.compile(r"[0-9][A-Za-z0-9.+-]{0,63}").fullmatch, "version")
]
_Sha256 = Annotated[str, make_validator(re.compile(r"[0-9a-f]{64}").fullmatch, "SHA-256")]
_Program = Annotated[str, make_validator(is_program_name, "program name")]
_Image = Annotated[str, make_validator(is_full_name, "full image name")]
_Text = Annotated[str, make_validator(str.isprintable, "printable text")]


@dataclass(frozen=True, slots=True)
class Blob:
    """Bytes in the bundle, stored below ``blobs/sha256``."""

    sha256: _Sha256
    size: Annotated[int, Field(ge=0)]


@dataclass(frozen=True, slots=True)
class Program:
    """One executable for one operating system (amd64)."""

    name: _Program
    """Name of its file: ``"kubelet"``, ``"cni/bridge"``, ``"kubelet.exe"``."""
    component: _Text
    os: Os
    blob: Blob
    source: _Text
    """Where it comes from: an address, or what the builder wrote."""

    @property
    def is_archive(self) -> bool:
        """Whether it is a release's archive, which nodes do not get as it is."""
        return is_archive_name(self.name)


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer of a container image."""

    media_type: _Text
    blob: Blob


@dataclass(frozen=True, slots=True)
class ContainerImage:
    """One container image for one platform; a multi-platform image becomes several of these."""

    name: _Image
    """The full name: ``"registry.k8s.io/pause:3.10.2"``."""
    os: Os
    os_version: _Text | None
    """The Windows build it was made for, ``"10.0.20348.2762"``; None for Linux."""
    manifest: Blob
    config: Blob
    layers: tuple[Layer, ...]
    source: _Text

    def blobs(self) -> tuple[Blob, ...]:
        """Its manifest, configuration and layers."""
        return (self.manifest, self.config, *(layer.blob for layer in self.layers))


@dataclass(frozen=True, slots=True)
class Manifest:
    """The content of a whole bundle."""

    versions: tuple[tuple[Component, Version], ...]
    """Component and version, sorted by name: ``("kubernetes", "1.36.1")``."""
    programs: tuple[Program, ...]
    images: tuple[ContainerImage, ...]

    @property
    def kubernetes(self) -> str:
        """The Kubernetes version, ``"1.36.1"``."""
        return self.version(KUBERNETES)

    @property
    def digest(self) -> str:
        """Hex SHA-256 of ``manifest.json``, which identifies the bundle."""
        return sha256(self.encoded()).hexdigest()

    @property
    def short(self) -> str:
        """The first digits of the digest, the name of the bundle's directory."""
        return self.digest[:SHORT]

    def version(self, component: str) -> str:
        """Version of a component; KeyError if the bundle has none."""
        return dict(self.versions)[component]

    def program(self, name: str, os: Os) -> Program:
        """The program of this name; KeyError if the bundle has none."""
        for program in self.programs:
            if (program.name, program.os) == (name, os):
                return program
        raise KeyError(f"{name} ({os})")

    def image(self, repository: str, os: Os = "linux") -> ContainerImage:
        """The image whose name is ``repository`` with any tag.

        KeyError if the bundle has none.
        """
        for image in self.images:
            if image.os == os and image.name.rpartition(":")[0] == repository:
                return image
        raise KeyError(f"{repository} ({os})")

    def systems(self) -> frozenset[Os]:
        """The operating systems that it has programs for."""
        return frozenset(program.os for program in self.programs)

    def blobs(self) -> Iterator[Blob]:
        """Every blob; a shared one comes several times."""
        for program in self.programs:
            yield program.blob
        for image in self.images:
            yield from image.blobs()

    def ordered(self) -> Manifest:
        """The same manifest in canonical order."""
        return Manifest(
            tuple(sorted(self.versions)),
            tuple(sorted(self.programs, key=lambda program: (program.os, program.name))),
            tuple(
                sorted(
                    self.images, key=lambda image: (image.name, image.os, image.os_version or "")
                )
            ),
        )

    def encoded(self) -> bytes:
        """The bytes of ``manifest.json``; the same content gives the same bytes."""
        text = json.dumps(plain(self.ordered()), indent=1, sort_keys=True, ensure_ascii=False)
        return (text + "\n").encode()


def decode(content: bytes, where: str) -> Manifest:
    """Parse a ``manifest.json`` that the lab wrote.

    ``where``: the file, for messages.

    Raises PreflightError with the first problem and its place in the file.
    """
    try:
        manifest = TypeAdapter(Manifest).validate_json(content, strict=True)
    except ValidationError as error:
        raise _foreign(where, first_problem(error)) from error
    if not PATCH.fullmatch(dict(manifest.versions).get(KUBERNETES, "")):
        raise _foreign(where, "versions: there is no Kubernetes version such as '1.36.1'")
    named = (
        *(f"component '{name}'" for name, _ in manifest.versions),
        *(f"program '{program.name}' for {program.os}" for program in manifest.programs),
        *(
            f"image '{image.name}' for {image.os} {image.os_version or ''}"
            for image in manifest.images
        ),
    )
    for name, count in Counter(named).items():
        if count > 1:
            raise _foreign(where, f"{cut(name.rstrip())} is listed {count} times")
    if manifest.encoded() != content:
        raise _foreign(where, "it is not in the form that lab writes")
    return manifest


def first_problem(error: ValidationError) -> str:
    """The first problem of a document and its place, as a clause."""
    first = error.errors(include_url=False)[0]
    place = ascii(".".join(cut(str(part)) for part in first["loc"]) or "the file")[1:-1]
    message = first["msg"].removeprefix("Value error, ")
    return f"{place}: {message[:1].lower()}{message[1:]}"


def _foreign(where: str, problem: str) -> PreflightError:
    return PreflightError(
        f"reading the bundle's '{where}'",
        problem,
        "it is damaged, or was not written by lab: remove its directory, and make the bundle "
        "again with "
        "'lab bundle create'",
    )


SYSTEMS: tuple[Os, ...] = ("linux", "windows")


@dataclass(frozen=True, slots=True)
class Asset:
    """One file of an upstream release: a program or an archive of programs."""

    component: str
    os: Os
    url: str
    sums: str | None
    release: str | None
    """GitHub API address with the digests of the release's files, for files without a checksum
    list."""
    members: tuple[tuple[str, str], ...]
    """Member and program for each file in an archive; empty if the file is the program."""
    program: str


@dataclass(frozen=True, slots=True)
class Wanted:
    """One container image to pull."""

    name: str
    systems: tuple[Os, ...]


def newest_patch(minor: str) -> str:
    """Address of a file with the newest patch version of a minor, ``v1.36.1``."""
    address: str = _catalogue()["newest-patch"]
    return address.format(minor=minor)


def wanted_assets(versions: Mapping[str, str], systems: Sequence[Os]) -> Iterator[Asset]:
    """Every file to download for a bundle of these versions."""
    for program_entry in _catalogue()["programs"]:
        if program_entry["os"] not in systems:
            continue
        version = versions[program_entry["component"]]
        members = program_entry.get("members", {})
        packed = tuple((name.format(version=version), own) for name, own in members.items())
        for program in program_entry.get("programs", [""]):
            url = program_entry["url"].format(version=version, program=program)
            yield Asset(
                program_entry["component"],
                program_entry["os"],
                url,
                program_entry["sums"].format(url=url, version=version)
                if "sums" in program_entry
                else None,
                program_entry["release"].format(version=version)
                if "release" in program_entry
                else None,
                packed,
                program,
            )


def wanted_images(
    versions: Mapping[str, str], systems: Sequence[Os], add_ons: Collection[str] = ()
) -> Iterator[Wanted]:
    """Every image to pull for a bundle of these versions and network add-ons."""
    theirs = [_catalogue()["add-ons"][name]["images"] for name in add_ons]
    for image_entry in chain(_catalogue()["images"], *theirs):
        fitting = tuple(os for os in SYSTEMS if os in image_entry["os"] and os in systems)
        if fitting:
            named = {name.replace("-", "_"): version for name, version in versions.items()}
            yield Wanted(image_entry["name"].format(**named), fitting)


def add_on_versions() -> Mapping[str, Mapping[str, str]]:
    """Components and versions of the network add-ons that only some bundles have."""
    return {name: entry["versions"] for name, entry in _catalogue()["add-ons"].items()}


def add_on_images(name: str) -> tuple[str, ...]:
    """Names of a network add-on's images, with their tags."""
    versions = add_on_versions()[name]
    named = {component.replace("-", "_"): version for component, version in versions.items()}
    return tuple(image["name"].format(**named) for image in _catalogue()["add-ons"][name]["images"])


def component_of(program: str) -> str | None:
    """The component of a program such as ``cni/bridge.exe`` or ``kubelet``; None if unknown.

    An unknown CNI plugin counts as one of the common plugins.
    """
    bare = program.removesuffix(".exe")
    for component, programs in _catalogue()["components"].items():
        if bare in programs:
            return str(component)
    return str(_catalogue()["other-plugins"]) if bare.startswith("cni/") else None


def at_least(os: Os) -> tuple[str, ...]:
    """Programs that every node of this system needs."""
    return tuple(_catalogue()["at-least"][os])


@cache
def _catalogue() -> Any:
    text = files("lab.machines.bundle").joinpath("upstream.json").read_text(encoding="utf-8")
    return json.loads(text)


def create_command(minor: str, systems: Collection[Os], add_on: str = "") -> str:
    """The command that makes a bundle for these systems; the images of Windows are gigabytes.

    ``add_on``: the network add-on, if it is another than flannel.
    """
    only = f" --os {next(iter(systems))}" if len(systems) == 1 else ""
    return f"lab bundle create --kubernetes {minor}{only}" + (f" --with {add_on}" if add_on else "")


DOWNLOAD_MB: Mapping[Os, int] = {"linux": 1300, "windows": 1800}
"""Megabytes that a bundle of Kubernetes 1.36 downloads for each system, reckoned from the sizes of
the released files; half of Windows' are images for three releases."""
_MB_PER_SECOND = 12.5


def download_words(systems: Collection[Os]) -> str:
    """What making a bundle for these systems takes: ``downloads about 2.7 GB, ...``."""
    megabytes = sum(DOWNLOAD_MB[os] for os in systems or SYSTEMS)
    minutes = max(1, round(megabytes / _MB_PER_SECOND / 60))
    return f"downloads about {megabytes / 1000:.1f} GB, {minutes} min at 100 Mbit/s"
