"""What labs on real machines may use, as ``lab.toml`` has it: frozen data.

Memory is MiB, disk GiB, times are seconds, paths and URLs are text or ``Path``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Network
from pathlib import Path
from typing import Literal

Acceleration = Literal["auto", "kvm", "tcg"]
"""``auto``: what a tiny guest that was really started has shown to work."""

STORAGE = "/var/lib/libvirt/images"
"""Where Debian's and Fedora's libvirt keep images, and let QEMU read them."""
MANAGEMENT = IPv4Network("10.201.0.0/16")
UPLINK_MTU = 1500


@dataclass(frozen=True, slots=True)
class Hypervisor:
    """One libvirt host."""

    name: str
    uri: str
    """``qemu:///system``, ``qemu+ssh://user@host/system?keyfile=...``, ``qemu+tls://host/system``."""
    vcpus: int | None = None
    """How many virtual CPUs all labs together may have there; None for eight times its threads."""
    memory_mib: int | None = None
    """None for all but an eighth of what it has."""
    disk_gib: int | None = None
    """Sizes of disks, added up; None for four times what its storage has free (clones are thin)."""
    tags: frozenset[str] = frozenset()
    storage: str = STORAGE
    """Directory on the hypervisor below which images and disks are kept, in ``hybridlab/``."""
    address: str | None = None
    """Its end of the tunnels between hypervisors; None with a single one, or the URI's host."""
    mtu: int = UPLINK_MTU
    """Bytes of an IP packet that fit on the network between hypervisors."""
    acceleration: Acceleration = "auto"
    parallel_boots: int | None = None
    """How many guests may boot at once; None for the number of its threads."""
    line: int = 0
    """Line of the entry in the inventory file, counted from 1; 0 for the stock inventory."""


@dataclass(frozen=True, slots=True)
class ImageSource:
    """Where one image's input comes from when it is not where the recipe says."""

    url: str | None = None
    """An address, or the path of a file that is there (an ISO that cannot be downloaded)."""
    sha256: str | None = None


@dataclass(frozen=True, slots=True)
class Secret:
    """Where a secret is read from, never what it is."""

    file: Path | None = None
    environment: str | None = None


@dataclass(frozen=True, slots=True)
class Inventory:
    """All of one inventory file."""

    hypervisors: tuple[Hypervisor, ...]
    management: IPv4Network = MANAGEMENT
    """Every lab takes a /24 of it for reaching its machines."""
    owner: str | None = None
    """Written into every object; None for user@host."""
    expiry: float | None = None
    """Seconds after which a lab may be collected by anyone; None for never."""
    cache: Path | None = None
    """Golden images and downloads; None for ``$XDG_CACHE_HOME/hybridlab``."""
    images: Mapping[str, ImageSource] = field(default_factory=dict)
    """By the name of the recipe."""
    mirrors: Mapping[str, str] = field(default_factory=dict)
    """Beginning of an address to what is asked instead; the longest that fits is taken."""
    proxies: Mapping[str, str] = field(default_factory=dict)
    """``http``, ``https`` and ``no_proxy``, as the environment variables mean them."""
    secrets: Mapping[str, Secret] = field(default_factory=dict)
    path: str | None = None
    """The file; None for the stock inventory."""

    def hypervisor(self, name: str) -> Hypervisor:
        """The hypervisor of that name; KeyError if there is none."""
        for one in self.hypervisors:
            if one.name == name:
                return one
        raise KeyError(name)


STOCK = Inventory(hypervisors=(Hypervisor("local", "qemu:///system"),))
"""What ``--provider libvirt`` uses where there is no inventory: this machine's own libvirt."""
