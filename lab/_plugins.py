"""Plug-ins: what distributions register as entry points of ``hybridlab.KIND``, ours among them.

An entry point names an object, a module, or a package of modules. Of a module, every object of
the kind is taken. Entry points are read as the packaging specification has them, from the files
``entry_points.txt`` of installed distributions: :mod:`importlib.metadata` takes longer to import
than ``lab --help`` may take. Distributions in zip files and eggs are not read.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, TypeVar

from lab._dataclass import dataclass
from lab._errors import UsageError

Kind = Literal[
    "addons",
    "checks",
    "commands",
    "families",
    "faults",
    "images",
    "providers",
    "systems",
    "topologies",
]
T = TypeVar("T")

_PREFIX = "hybridlab."
_FILE = "entry_points.txt"
_SUFFIX = ".dist-info"


@dataclass(frozen=True, slots=True)
class Room:
    """A part of hybridlab that an installation may lack: its package, or what that imports."""

    title: str
    package: str
    libraries: tuple[str, ...]
    extra: str
    """The extra of the distribution that brings the libraries."""

    @property
    def installed(self) -> bool:
        """Whether package and libraries can be imported."""
        return all(find_spec(name) for name in (self.package, *self.libraries))

    @property
    def command(self) -> str:
        """The command that installs it: ``make`` in a checkout, else ``pip``."""
        if (Path(__file__).parents[1] / "Makefile").is_file():
            return f"make setup PROVIDER={'nspawn' if self.extra == 'nspawn' else 'libvirt'}"
        return f'pip install "hybridlab[{self.extra}]"'


ROOMS = (
    Room("system containers", "lab.machines", ("kubernetes", "paramiko"), "nspawn"),
    Room("virtual machines", "lab.machines", ("libvirt", "paramiko", "pycdlib"), "libvirt"),
    Room("Windows Server", "lab.windows", ("paramiko", "pycdlib", "winrm"), "windows"),
)


@dataclass(frozen=True, slots=True)
class Plugin:
    """One entry point."""

    kind: str
    name: str
    module: str
    attribute: str
    """Empty if it names the whole module."""
    distribution: str
    """Name and version of the distribution, as its metadata directory is called."""

    @property
    def installed(self) -> bool:
        """Whether it is there: a room of ours may have been left out."""
        packages = {room.package for room in ROOMS}
        own = ".".join(self.module.split(".")[:2])
        return own not in packages or find_spec(own) is not None

    def load(self) -> Any:
        """The module or object.

        Raises UsageError when a foreign plug-in cannot be imported.
        """
        try:
            module = import_module(self.module)
            return getattr(module, self.attribute) if self.attribute else module
        except (ImportError, AttributeError) as error:
            if self.module.startswith("lab."):
                raise
            raise UsageError(
                f"loading the plug-in '{self.name}' of {_PREFIX}{self.kind}",
                f"{self.module}: {error}",
                f"install another version of {self.distribution}, or uninstall it",
            ) from error


def plugins(kind: Kind) -> tuple[Plugin, ...]:
    """The installed plug-ins of one kind, by name; of two with one name the first on the path."""
    return tuple(plugin for plugin in registered(kind) if plugin.installed)


@cache
def registered(kind: Kind) -> tuple[Plugin, ...]:
    """The same, with those of ours that are not installed."""
    by_name: dict[str, Plugin] = {}
    for plugin in _entry_points():
        if plugin.kind == kind:
            by_name.setdefault(plugin.name, plugin)
    return tuple(by_name[name] for name in sorted(by_name))


def objects(kind: Kind, of: type[T]) -> Iterator[T]:
    """Every instance of ``of`` that the plug-ins of a kind have; each once."""
    met = set[int]()
    for module_or_object in _load_objects(kind):
        values = (
            tuple(vars(module_or_object).values())
            if isinstance(module_or_object, ModuleType)
            else (module_or_object,)
        )
        for value in values:
            if isinstance(value, of) and id(value) not in met:
                met.add(id(value))
                yield value


def classes(kind: Kind, of: type[T]) -> Iterator[type[T]]:
    """Every class derived from ``of`` that the plug-ins of a kind have; each once."""
    for value in objects(kind, type):
        if issubclass(value, of) and value is not of:
            yield value


def _load_objects(kind: Kind) -> Iterator[Any]:
    for plugin in plugins(kind):
        yield from _with_modules(plugin.load())


def _with_modules(loaded: Any) -> Iterator[Any]:
    from pkgutil import iter_modules  # noqa: PLC0415  'lab --help' loads no plug-in

    yield loaded
    for module in iter_modules(getattr(loaded, "__path__", ())):
        yield from _with_modules(import_module(f"{loaded.__name__}.{module.name}"))


@cache
def _entry_points() -> tuple[Plugin, ...]:
    return tuple(
        plugin
        for directory in dict.fromkeys(sys.path)
        for distribution in _find_distributions(directory or os.curdir)
        for plugin in _read(directory or os.curdir, distribution)
    )


def _find_distributions(directory: str) -> list[str]:
    try:
        return sorted(name for name in os.listdir(directory) if name.endswith(_SUFFIX))  # noqa: PTH208  pathlib is slower
    except OSError:
        return []


def _read(directory: str, distribution: str) -> Iterator[Plugin]:
    """The entry points of ours in one distribution's file: ``name = module:attribute``."""
    try:
        with open(os.path.join(directory, distribution, _FILE), encoding="utf-8") as file:  # noqa: PTH118, PTH123  the same
            lines = file.read().splitlines()
    except OSError:
        return
    kind = ""
    for line in map(str.strip, lines):
        if line.startswith("["):
            group = line.strip("[]")
            kind = group.removeprefix(_PREFIX) if group.startswith(_PREFIX) else ""
        elif kind and "=" in line and not line.startswith("#"):
            name, _, value = (part.strip() for part in line.partition("="))
            module, _, attribute = value.partition("[")[0].partition(":")
            yield Plugin(
                *(kind, name, module.strip(), attribute.strip()),
                distribution.removesuffix(_SUFFIX),
            )
