"""What a system container asks of a system other than Linux."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path

from lab._deadline import Deadline
from lab.machines.bundle.manifest import Manifest
from lab.machines.bundle.store import BundleStore
from lab.machines.system import System, system_of, systems
from lab.providers.provider import Diagnosis
from lab.shells.shell import Shell
from lab.topology.intent import MachineIntent

Say = Callable[[str], None]
Bundle = tuple[BundleStore, Manifest]


class ContainerSystem(System):
    """A system whose programs run in a container that boots Linux."""

    disclaimer: str
    """One clause that says what such nodes are; see :meth:`Provider.disclaimer`."""
    memory_mib: int
    """Measured memory of a node with two pods."""
    inotify: int
    """Measured inotify instances of a node with two pods."""

    def unfit(self, *, cluster: bool) -> str:  # noqa: ARG002  for those that need one
        """Why this machine can never have such nodes; empty if it can.

        ``cluster``: whether the lab has a cluster, and hence a bundle.
        """
        return ""

    def examine(self, cache: Path, has_root: Callable[[str], bool]) -> Iterator[Diagnosis]:  # noqa: ARG002  for those that need something
        """What ``lab doctor`` says of such nodes.

        ``has_root``: whether an image's root file system is in the cache.
        """
        yield from ()

    def unused(
        self,
        cache: Path,  # noqa: ARG002  for those that keep something
        bundles: Collection[Manifest],  # noqa: ARG002  the same
        held: Collection[Path],  # noqa: ARG002  the same
    ) -> Iterator[Path]:
        """Directories that it has made in the cache, and that neither labs nor new ones need.

        ``bundles``: those that stay. ``held``: what labs use.
        """
        yield from ()

    @abstractmethod
    def root_image(self, image: str) -> str:
        """Name of the Linux image whose root file system a machine with ``image`` boots."""

    @abstractmethod
    def layer(self, cache: Path, root: Path, image: str, bundle: Bundle | None, say: Say) -> Path:
        """The files that lie over that root file system; made once, in the cache.

        ``bundle``: None for a lab without a cluster.

        Raises PreflightError or BrokenError when they cannot be made.
        """

    @abstractmethod
    def prepare_bundle(
        self, cache: Path, bundle: Bundle, below: tuple[Path, Path], say: Say
    ) -> Path:
        """As :func:`lab.machines.nspawn.prepared.prepared`, for the nodes of this system.

        ``below``: root file system and layer of one of its images. The directory has ``bundle``,
        its medium; ``containerd``, the image store; and perhaps ``root``, files that lie over that
        layer on each node.
        """

    @abstractmethod
    def files(self, machine: MachineIntent) -> Mapping[str, bytes]:
        """Files of a node's own disk, by path; those that begin with ``#!`` are executable."""

    def devices(self, machine: MachineIntent) -> Mapping[str, str]:  # noqa: ARG002  for those with others
        """The Linux devices of a node, by the Intent's names of what they carry, if others."""
        return {}

    @abstractmethod
    def open_shell(self, name: str, linux: Shell) -> Shell:
        """A shell of the system on a machine. ``linux``: one on the Linux below."""

    @abstractmethod
    def boot_lacks(self, linux: Shell, deadline: Deadline) -> str:
        """What a machine whose Linux has booted still lacks; empty if nothing.

        Raises LabError when it cannot be asked.
        """


def container_systems() -> Iterator[ContainerSystem]:
    """Every installed system whose nodes can be containers."""
    return (system for system in systems() if isinstance(system, ContainerSystem))


def root_image(machine: MachineIntent) -> str:
    """Name of the image whose root file system a machine boots.

    Raises UsageError when no system is installed for it.
    """
    image = machine.hardware.image
    if machine.os == "linux":
        return image
    action = f"choosing the root file system of '{machine.name}'"
    return system_of(machine.os, ContainerSystem, action).root_image(image)
