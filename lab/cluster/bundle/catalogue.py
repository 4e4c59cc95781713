"""What bundles hold and where upstream has it: the data of ``upstream.json``. Pure."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from lab.scenario.terms import Os

SYSTEMS: tuple[Os, ...] = ("linux", "windows")


@dataclass(frozen=True, slots=True)
class Asset:
    """One file that upstream has released: a program, or an archive of some."""

    component: str
    os: Os
    url: str
    sums: str | None
    """Address of the list of digests that it stands in."""
    release: str | None
    """Where GitHub says the digests of a release's files, for those without a list."""
    members: tuple[tuple[str, str], ...]
    """Of an archive: member and program; empty where the file is the program."""
    program: str
    """The program that the file is; empty for an archive."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """One container image to be pulled."""

    name: str
    systems: tuple[Os, ...]


def newest_patch(minor: str) -> str:
    """Address that says the newest patch version of a minor, ``v1.36.1``."""
    address: str = _data()["newest-patch"]
    return address.format(minor=minor)


def assets(versions: Mapping[str, str], systems: Sequence[Os]) -> Iterator[Asset]:
    """Every file to fetch for a bundle of these versions."""
    for one in _data()["programs"]:
        if one["os"] not in systems:
            continue
        version = versions[one["component"]]
        members = one.get("members", {})
        packed = tuple((name.format(version=version), own) for name, own in members.items())
        for program in one.get("programs", [""]):
            url = one["url"].format(version=version, program=program)
            yield Asset(
                one["component"],
                one["os"],
                url,
                one["sums"].format(url=url, version=version) if "sums" in one else None,
                one["release"].format(version=version) if "release" in one else None,
                packed,
                program,
            )


def images(
    versions: Mapping[str, str], systems: Sequence[Os], add_ons: Collection[str] = ()
) -> Iterator[Wanted]:
    """Every image to pull for a bundle of these versions, and of network add-ons by their names."""
    for one in _data()["images"]:
        if one.get("add-on", "") not in {"", *add_ons}:
            continue
        fitting = tuple(os for os in SYSTEMS if os in one["os"] and os in systems)
        if fitting:
            named = {name.replace("-", "_"): version for name, version in versions.items()}
            yield Wanted(one["name"].format(**named), fitting)


def component_of(program: str) -> str | None:
    """The component that a program belongs to, ``cni/bridge.exe`` or ``kubelet``; None if none.

    A CNI plugin that is not known by name is one of the common ones.
    """
    bare = program.removesuffix(".exe")
    for component, programs in _data()["components"].items():
        if bare in programs:
            return str(component)
    return str(_data()["other-plugins"]) if bare.startswith("cni/") else None


def at_least(os: Os) -> tuple[str, ...]:
    """Programs without which no node of that system can be."""
    return tuple(_data()["at-least"][os])


def components() -> tuple[str, ...]:
    """Every component that has programs."""
    return (*_data()["components"], _data()["other-plugins"])


@cache
def _data() -> Any:
    found = files("lab.cluster.bundle").joinpath("upstream.json").read_text(encoding="utf-8")
    return json.loads(found)
