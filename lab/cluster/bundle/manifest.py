"""What a bundle holds: pure data, the same in the file ``manifest.json``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lab.scenario.scenario import Os

KUBERNETES = "kubernetes"
"""The component whose version is the bundle's own."""


@dataclass(frozen=True, slots=True)
class Blob:
    """Bytes in the bundle, below ``blobs/sha256``."""

    sha256: str
    """Hex."""
    size: int
    """Bytes."""


@dataclass(frozen=True, slots=True)
class Program:
    """One executable of one operating system (amd64)."""

    name: str
    """As it is called: ``"kubelet"``, ``"cni/bridge"``, ``"kubelet.exe"``."""
    component: str
    """``"kubernetes"``, ``"containerd"``, ``"cni-plugins"``, ..."""
    os: Os
    blob: Blob
    source: str
    """Where it was had from: an address, or the words of who built it."""


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer of a container image."""

    media_type: str
    blob: Blob


@dataclass(frozen=True, slots=True)
class ContainerImage:
    """One container image for one platform; an image for several has several of these."""

    name: str
    """In full: ``"registry.k8s.io/pause:3.10.2"``."""
    os: Os
    os_version: str | None
    """Of a Windows image: the build it was made for, ``"10.0.20348.2762"``."""
    manifest: Blob
    config: Blob
    layers: tuple[Layer, ...]
    source: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """A whole bundle."""

    versions: tuple[tuple[str, str], ...]
    """Component and version, in the order of names: ``("kubernetes", "1.36.1")``."""
    programs: tuple[Program, ...]
    images: tuple[ContainerImage, ...]

    @property
    def kubernetes(self) -> str:
        """The Kubernetes version, ``"1.36.1"``."""
        return self.version(KUBERNETES)

    def version(self, component: str) -> str:
        """Version of a component; KeyError if the bundle has none."""
        return dict(self.versions)[component]

    def program(self, name: str, os: Os) -> Program:
        """The program of that name; KeyError if the bundle has none."""
        for program in self.programs:
            if (program.name, program.os) == (name, os):
                return program
        raise KeyError(f"{name} ({os})")

    def image(self, repository: str, os: Os = "linux") -> ContainerImage:
        """The image whose name begins with ``repository`` and goes on with a tag.

        KeyError if the bundle has none.
        """
        for image in self.images:
            if image.os == os and image.name.rpartition(":")[0] == repository:
                return image
        raise KeyError(f"{repository} ({os})")

    def blobs(self) -> Iterator[Blob]:
        """Every blob, some of them more than once."""
        for program in self.programs:
            yield program.blob
        for image in self.images:
            yield image.manifest
            yield image.config
            yield from (layer.blob for layer in image.layers)
