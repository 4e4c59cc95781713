"""The pins: the programs of a bundle and their versions."""

import tomllib
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
PARTS = ("server", "node", "windows", "images")
"""Parts of a bundle; the images are made from the programs of server and node."""
CONFORMANCE = "conformance"
"""Kubernetes' own tests and their images, which are in no bundle."""
CONFORMANCE_WINDOWS = "conformance-windows"
"""The images for Windows of those tests."""
CALICO = "calico"
"""Calico's programs and images: they take twenty minutes, and only its scenarios need them."""
KWOK = "kwok"
"""It reports the pods of a thousand nodes as running, for tests without machines."""
MORE_PARTS = (CONFORMANCE, CONFORMANCE_WINDOWS, CALICO, "calico-windows", KWOK)
"""Parts that are built only if named."""
_NEEDS = {
    "images": {"server", "node"},
    CONFORMANCE: {"server", "node"},
    CONFORMANCE_WINDOWS: {"windows"},
}


@dataclass(frozen=True, slots=True)
class Module:
    """A Go module of this project that has only requirements."""

    name: str
    requires: tuple[str, ...]
    """Each ``path@version``."""
    staging: str
    """The version of Kubernetes' staging modules; empty for a module without them."""
    sums: tuple[str, ...]
    """Lines of go.sum that are missing from the checksum database."""
    copies: str
    """Package of this project for a copy of the first requirement's main.go; or empty."""
    without: tuple[str, ...]
    """Imports that are removed from the copy."""

    @property
    def folder(self) -> Path:
        """The directory of go.mod and go.sum."""
        return HERE / "modules" / self.name


@dataclass(frozen=True, slots=True)
class Build:
    """One call of ``go build``: some programs of one module for one operating system."""

    name: str
    part: str
    module: Module
    packages: tuple[str, ...]
    names: tuple[tuple[str, str], ...]
    """Programs that are renamed: go's name, and the final name."""
    tags: str
    sets: tuple[str, ...]
    """Variables set by the linker: ``package.variable=value``."""
    cgo: bool
    folder: str
    """Subfolder of the system's folder: "cni", or empty."""

    @property
    def system(self) -> str:
        """GOOS."""
        return "windows" if self.part.endswith("windows") else "linux"

    @property
    def test(self) -> bool:
        """Whether the packages are tests, which ``go test -c`` compiles."""
        return all(package.endswith("/test/e2e") for package in self.packages)

    @property
    def title(self) -> str:
        """Name for messages."""
        return f"{self.name} for {self.system}"

    @property
    def programs(self) -> tuple[str, ...]:
        """File names of the programs, with ``.exe`` for Windows."""
        names = dict(self.names)
        called = (_go_names(package) + ".test" * self.test for package in self.packages)
        ending = ".exe" if self.system == "windows" else ""
        return tuple(names.get(name, name) + ending for name in called)


@dataclass(frozen=True, slots=True)
class Pins:
    """The content of pins.toml."""

    versions: dict[str, str]
    windows_versions: dict[str, str]
    """Of what only Windows nodes have."""
    modules: tuple[Module, ...]
    builds: tuple[Build, ...]

    def chosen(self, parts: frozenset[str]) -> tuple[Build, ...]:
        """Return the builds that ``parts`` need; images are made from programs."""
        wanted = parts.union(*(_NEEDS.get(part, ()) for part in parts))
        return tuple(build for build in self.builds if build.part in wanted)


def read_pins(path: Path = HERE / "pins.toml") -> Pins:
    """Read ``path``."""
    with path.open("rb") as file:
        data = tomllib.load(file)
    own: dict[str, str] = data["versions"]
    windows: dict[str, str] = data["windows-versions"]
    versions = own | windows
    modules = {
        name: Module(
            name,
            tuple(require.format_map(versions) for require in row["requires"]),
            row.get("staging", "").format_map(versions),
            tuple(row.get("sums", ())),
            row.get("copies", ""),
            tuple(row.get("without", ())),
        )
        for name, row in data["modules"].items()
    }
    variables = {
        name: tuple(line.format_map(versions) for line in lines)
        for name, lines in data["variables"].items()
    }
    builds = tuple(
        Build(
            name=row["name"],
            part=row["part"],
            module=modules[row["module"]],
            packages=tuple(row["packages"]),
            names=tuple(sorted(row.get("names", {}).items())),
            tags=row.get("tags", ""),
            sets=variables[row["sets"]] if "sets" in row else (),
            cgo=row.get("cgo", False),
            folder=row.get("folder", ""),
        )
        for row in data["builds"]
    )
    return Pins(own, windows, tuple(modules.values()), builds)


def _go_names(package: str) -> str:
    """The program name of ``go build``: the last part of the path that is not a version."""
    *_, before, last = package.split("/")
    return before if last[:1] == "v" and last[1:].isdigit() else last
