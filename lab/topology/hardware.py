"""What a real machine is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lab.scenario.scenario import Nic  # agents on nodes have no pydantic


@dataclass(frozen=True, slots=True)
class Hardware:
    """What a real machine is made of; the embedded provider has no use for it.

    Memory is MiB, disk GiB.
    """

    image: str
    vcpus: int
    memory_mib: int
    disk_gib: int
    hypervisor: str | None = None
    """The hypervisor that the scenario asks for; None for any."""
    place: int | None = None
    """The how manieth hypervisor, from 1, where the scenario counts its own and real ones are
    there; None for any."""
    nics: tuple[Nic, ...] = ()
    """Further network cards, on networks of the hypervisor."""


SMALL = Hardware("debian-12", vcpus=1, memory_mib=512, disk_gib=8)
"""For the router and the client outside, of which a scenario says nothing."""
