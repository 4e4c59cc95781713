"""The layout of a lab of system containers: decided once, stored in the lab's directory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Network
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from lab.providers.provider import LabHandle
from lab.scenario.terms import Os
from lab.state.files import read_private, write_private

FILE = "layout.json"
MACHINES = "machines"
"""Directory of the machines' disks, in the lab's directory."""
_FIRST_HOST = 10
"""The first machine's host number in the management range; the controller has number 1."""


@dataclass(frozen=True)
class NspawnLayout:
    """A lab's images, management range and bundle."""

    roots: Mapping[str, Path]
    """Root file system by image name."""
    management: IPv4Network
    machines: tuple[str, ...]
    """In the order of their management addresses."""
    bundle: str = ""
    """Digest of its cluster's bundle; empty if pods are namespaces."""
    prepared: Path | None = None
    """Directory with the unpacked bundle and containerd's store; None without a cluster."""
    systems: Mapping[str, Os] = field(default_factory=dict)
    """The system of each machine that does not run Linux alone."""
    layers: Mapping[str, Path] = field(default_factory=dict)
    """What lies over the root file system, by image name; only for such machines."""
    prepared_for: Mapping[Os, Path] = field(default_factory=dict)
    """As ``prepared``, for such machines, by system."""
    inotify: int = 0
    """inotify instances that the lab takes once it is up."""

    @property
    def controller(self) -> str:
        """The host's address on the management network, with prefix length."""
        return f"{self.management[1]}/{self.management.prefixlen}"

    def address(self, machine: str) -> str:
        """A machine's management address; ValueError if the layout lacks the machine."""
        return str(self.management[_FIRST_HOST + self.machines.index(machine)])


_READER = TypeAdapter(NspawnLayout)


def load(lab: LabHandle) -> NspawnLayout | None:
    """The lab's layout; None if it is not decided yet or cannot be read."""
    try:
        layout = _READER.validate_json(read_private(lab.directory / FILE))
    except (OSError, ValidationError):
        return None
    enough = layout.management.num_addresses > _FIRST_HOST + len(layout.machines)
    return layout if enough else None


def save(lab: LabHandle, layout: NspawnLayout) -> None:
    """Store the layout; call before creating machines."""
    write_private(lab.directory / FILE, _READER.dump_json(layout, indent=1).decode() + "\n")


def disk(lab: LabHandle, machine: str) -> Path:
    """The directory with a machine's disk."""
    return lab.directory / MACHINES / machine
