"""What one virtual machine is made from: its hardware, its image, and who it is to be."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from hashlib import sha256
from ipaddress import IPv4Interface
from typing import TYPE_CHECKING

from lab.imaging.golden import GoldenImage
from lab.providers.libvirt import names
from lab.providers.libvirt.documents import Card
from lab.providers.machines import keyring, management
from lab.providers.provider import LabHandle
from lab.topology.intent import MachineIntent

if TYPE_CHECKING:
    from lab.imaging.seed import Identity

_FORM = "1"
"""Changes when a machine is made differently from the same inputs."""


@dataclass(frozen=True, slots=True)
class MachineRecipe:
    """All that one machine is made from. Two equal recipes make the same machine."""

    lab: LabHandle
    machine: MachineIntent
    image: GoldenImage
    accelerated: bool
    management_mtu: int
    management_address: str
    management_prefix: int
    bundle: str | None = None
    """The hypervisor's path of the medium with Kubernetes on it, named after its content."""

    def digest(self) -> str:
        """Hash of all that makes another machine of it; not of its network's configuration."""
        nics = tuple(nic.model_dump() for nic in self.machine.hardware.nics)
        hardware = asdict(self.machine.hardware) | {"nics": nics}
        cards = [(card.name, card.mac, card.segment, card.mtu) for card in self.machine.interfaces]
        own = () if self.is_windows else (keyring.host_key(self.lab, self.machine.name).public,)
        keys = (keyring.client_public(self.lab), *own)
        parts = (_FORM, self.image.digest, hardware, cards, keys, self.accelerated)
        addressed = (self.management_address, self.management_prefix, self.management_mtu)
        bundled = (self.bundle,) if self.bundle else ()
        return sha256(repr((parts, addressed, *bundled)).encode()).hexdigest()

    @property
    def is_windows(self) -> bool:
        """Whether it is told who it is by an answer file, and makes its own keys."""
        return self.image.first_boot == "windows"

    def identity(self) -> Identity:
        """What the machine finds on its seed, if it runs Linux."""
        from lab.imaging.seed import Identity, SeedCard  # noqa: PLC0415  an extra

        key = keyring.host_key(self.lab, self.machine.name)
        first = SeedCard(
            name=management.DEVICE,
            mac=management.management_mac(self.lab, self.machine.name),
            address=IPv4Interface(f"{self.management_address}/{self.management_prefix}"),
            mtu=self.management_mtu,
        )
        return Identity(
            instance=f"{self.lab.token}-{self.digest()[:16]}",
            hostname=self.machine.name,
            user=self.image.user,
            authorized_key=keyring.client_public(self.lab),
            host_key=key.private,
            host_key_public=key.public,
            nics=(
                first,
                *(
                    SeedCard(name=card.name, mac=card.mac, mtu=card.mtu)
                    for card in self.machine.interfaces
                ),
            ),
        )

    def cards(self) -> tuple[Card, ...]:
        """Its network cards: those of the intent, management, and what the scenario adds.

        In this order, as what Linux sends by a device without an address has the first one of all:
        so it is the cluster's, as it is where there is no management card.
        """
        lab, machine = self.lab, self.machine
        further = tuple(
            Card(
                nic.mac or management.management_mac(lab, f"{machine.name}/{number}"),
                nic.network,
                None,
            )
            for number, nic in enumerate(machine.hardware.nics)
        )
        return (
            *(
                Card(card.mac, names.network(lab, card.segment), card.mtu)
                for card in machine.interfaces
            ),
            Card(
                management.management_mac(lab, machine.name),
                names.network(lab, names.MANAGEMENT),
                self.management_mtu,
            ),
            *further,
        )


def console_volume(machine: str) -> str:
    """The volume of the lab's pool that holds what the machine's console has said."""
    return f"{machine}.console.log"
