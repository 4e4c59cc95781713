"""What a lab of system containers is made from: decided once, kept in the lab's directory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from lab.providers.provider import LabHandle
from lab.state.files import read_private, write_private

FILE = "layout.json"
MACHINES = "machines"
"""Directory of the machines' disks, below the lab's own."""
_FIRST_HOST = 10
"""The first machine's place in the management range; the controller has the first address."""


@dataclass(frozen=True)
class NspawnLayout:
    """A lab's images, management range and bundle."""

    roots: Mapping[str, Path]
    """Root file system of each image, by the image's name."""
    management: IPv4Network
    machines: tuple[str, ...]
    """In the order in which they have management addresses."""
    bundle: str = ""
    """Digest of the bundle that its cluster is made from; empty where pods are namespaces."""
    prepared: Path | None = None
    """The bundle unpacked, and containerd's store with its images; None without a cluster."""

    @property
    def controller(self) -> str:
        """The host's own address on the management network, with prefix length."""
        return f"{self.management[1]}/{self.management.prefixlen}"

    def address(self, machine: str) -> str:
        """A machine's management address; ValueError for one that the layout has not."""
        return str(self.management[_FIRST_HOST + self.machines.index(machine)])


_READER = TypeAdapter(NspawnLayout)


def load(lab: LabHandle) -> NspawnLayout | None:
    """The lab's layout; None before it was decided, or when it cannot be read."""
    try:
        found = _READER.validate_json(read_private(lab.directory / FILE))
    except (OSError, ValidationError):
        return None
    enough = found.management.num_addresses > _FIRST_HOST + len(found.machines)
    return found if enough else None


def save(lab: LabHandle, layout: NspawnLayout) -> None:
    """Keep it, before any machine is made."""
    write_private(lab.directory / FILE, _READER.dump_json(layout, indent=1).decode() + "\n")


def disk(lab: LabHandle, machine: str) -> Path:
    """The directory of what a machine has written."""
    return lab.directory / MACHINES / machine
