"""The libvirt provider: a lab's machines are virtual machines on one or many hypervisors.

Nothing that is made is known from the journal alone: domains and networks carry the lab's
token in their metadata, and its disks stand below a directory that has the token's name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from lab._errors import LabError
from lab._log import say
from lab.imaging.golden import GoldenImage
from lab.inventory.inventory import Inventory
from lab.plan.step import Step
from lab.providers.diagnosis import Diagnosis
from lab.providers.libvirt import (
    belongings,
    capacity,
    evidence,
    health,
    layout,
    prediction,
    windows,
)
from lab.providers.libvirt.bring_up import LibvirtBringUp
from lab.providers.libvirt.carriage import Carriage
from lab.providers.libvirt.evidence import OfCluster
from lab.providers.libvirt.guests import LibvirtGuests
from lab.providers.libvirt.host import Host
from lab.providers.libvirt.layout import LibvirtLayout
from lab.providers.libvirt.placed import Placed
from lab.providers.libvirt.placement import mtu
from lab.providers.machines import fitness
from lab.providers.machines.base import MachinesProvider
from lab.providers.machines.steps import other_machines, own_network, recorded
from lab.providers.provider import (
    CAPTURE,
    CLUSTER,
    MACHINES,
    Evidence,
    LabHandle,
    Liveness,
    Mark,
    Provider,
)
from lab.providers.setup import ProviderSetup
from lab.topology.cost import Cost
from lab.topology.intent import Intent

if TYPE_CHECKING:
    from lab.imaging.image_store import ImageStore


class LibvirtProvider(MachinesProvider):
    """Virtual machines on the hypervisors of an inventory.

    Parameters
    ----------
    inventory
        Where machines may be, and what they may use.

    """

    name = "libvirt"
    abilities = frozenset({MACHINES, CLUSTER, CAPTURE})

    def __init__(self, inventory: Inventory) -> None:
        super().__init__(inventory)
        self._hosts = {one.name: Host(one) for one in inventory.hypervisors.values()}

    def _hosts_with(self, decided: LibvirtLayout | None) -> Mapping[str, Host]:
        """The inventory's hypervisors, and those that the lab alone still knows of."""
        for name, home in (decided.homes if decided else {}).items():
            self._hosts.setdefault(name, Host(home, listed=False))
        return self._hosts

    @cached_property
    def _image_store(self) -> ImageStore:
        from lab.imaging.image_store import ImageStore  # noqa: PLC0415  'down' builds no image
        from lab.providers.libvirt.installing import LibvirtInstaller  # noqa: PLC0415  the same

        first = next(iter(self._hosts.values()))
        installer = LibvirtInstaller(first, self._inventory.management.cidr)
        return ImageStore(self._cache, self._inventory, installer)

    def banner(self, intent: Intent | None) -> str:
        """One sentence: which provider, and where its machines are."""
        del intent
        listed = ", ".join(
            f"{one.name} ({one.uri})" for one in self._inventory.hypervisors.values()
        )
        few = "hypervisor" if len(self._hosts) == 1 else "hypervisors"
        return f"{self.name}: virtual machines on {few} {listed}"

    def node_mtu(self, asked: int) -> int:
        """What fits between all hypervisors, if there are several: any may get a machine.

        Raises
        ------
        PreflightError
            When that is too little for a cluster.

        """
        return mtu(self._inventory, [*self._inventory.hypervisors], asked)

    def cost(self, intent: Intent) -> Cost:
        """What the lab is predicted to take here, from nothing; no hypervisor is asked.

        Raises
        ------
        PreflightError
            When there is no such image, and it cannot be built here.

        """
        windows.require(intent, self._require)
        built = {
            name: self._image_store.peek(name) is not None
            for name in dict.fromkeys(machine.hardware.image for machine in intent.machines)
        }
        return prediction.predict(intent, tuple(self._inventory.hypervisors.values()), built)

    def unfit(self, intent: Intent) -> str:
        """Why there can be no such lab of virtual machines."""
        return fitness.unfit(intent)

    def labs_at_once(self, intents: Sequence[Intent]) -> int:
        """As many as the hypervisors have memory for."""
        sums = (sum(one.hardware.memory_mib for one in intent.machines) for intent in intents)
        hypervisors = [host.hypervisor for host in self._hosts.values()]
        return capacity.labs_at_once(hypervisors, max(sums, default=1))

    def examine(self, state: Path) -> tuple[Diagnosis, ...]:
        """What every hypervisor lacks; on each a tiny guest is started and ended."""
        del state
        from lab.providers.libvirt import doctor  # noqa: PLC0415  only 'lab doctor' asks

        missing = doctor.is_installed()
        return (missing,) if missing else doctor.examine(self._inventory)

    def preflight(self, lab: LabHandle, intent: Intent) -> None:
        """Reach every hypervisor, and see that images, names and room are there.

        Raises
        ------
        PreflightError
            Naming everything that is missing and its fix. Nothing has been created.

        """
        bundled = self._bundled(lab, intent)
        if bundled:
            bundled.check()
        decided = self._layout(lab, intent)
        Carriage(lab, intent, decided.machines, self._hosts).check()

    def steps(self, lab: LabHandle, intent: Intent) -> tuple[Step, ...]:
        """What brings the lab up, in order.

        Raises
        ------
        PreflightError
            When there can be no such lab of virtual machines, or there is no such image and it
            cannot be built here.

        """
        fitness.require_fit(intent)
        fitness.require_packages(intent, self._packages)
        windows.require(intent, self._require)
        return LibvirtBringUp(
            lab=lab,
            intent=intent,
            inventory=self._inventory,
            hosts=self._hosts,
            image_of=self._image,
            digest_of=self._image_store.digest,
            decide=lambda: self._layout(lab, intent),
            bundled=self._bundled(lab, intent),
        ).steps()

    def _require(self, image: str) -> None:
        if self._image_store.peek(image) is None:
            self._image_store.require(image)

    def _image(self, name: str) -> GoldenImage:
        return self._image_store.get(name, say)

    def _layout(self, lab: LabHandle, intent: Intent) -> LibvirtLayout:
        return capacity.decide(lab, intent, self._hosts)

    def liveness(self, lab: LabHandle, intent: Intent) -> Liveness:
        """Look at the domains, and into the machines."""
        decided = layout.load(lab)
        if decided is None:
            return self._unplaced(lab)
        if other := other_machines(decided.machines, intent):
            return Liveness("broken", other, again_from="place")
        try:
            return self._look(lab, intent, decided)
        except LabError as error:
            return Liveness("broken", str(error), again_from="machines")

    def _look(self, lab: LabHandle, intent: Intent, decided: LibvirtLayout) -> Liveness:
        own, hosts = own_network(intent), self._hosts_with(decided)
        return health.look(lab, own, decided, hosts, self._beyond_network(lab, intent))

    def _bundle_digest(self, lab: LabHandle) -> str:
        decided = layout.load(lab)
        return decided.bundle if decided else ""

    def _guests(self, lab: LabHandle) -> LibvirtGuests:
        decided = recorded(lab, layout.load(lab))
        return LibvirtGuests(lab, decided, self._hosts_with(decided))

    def _placed(self, lab: LabHandle) -> Placed:
        decided = recorded(lab, layout.load(lab))
        return Placed(lab, decided, self._hosts_with(decided))

    def _unplaced(self, lab: LabHandle) -> Liveness:
        for host in self._hosts.values():
            with host.told(f"looking for lab '{lab.name}'"):
                owners = list(host.owners())
            for what, owner in owners:
                if owner.token == lab.token:
                    return Liveness(
                        "broken", f"{what} is there, and no record of where the rest is"
                    )
        return Liveness("absent", "no hypervisor has anything of it")

    def destroy(self, lab: LabHandle, *, owner: str = "") -> tuple[str, ...]:
        """Take away every object of the owner's with the lab's token; say what was removed.

        Safe to repeat.

        Raises
        ------
        BrokenError
            When a hypervisor cannot be reached or refuses; the others are done first.

        """
        decided = layout.load(lab)
        return belongings.destroy(lab, decided, self._hosts_with(decided), owner)

    def marks(self, *, all_users: bool = False) -> tuple[Mark, ...]:
        """Every object of this controller's; with ``all_users`` also of others' expired labs."""
        return belongings.marks(self._hosts.values(), all_users=all_users)

    def evidence(self, lab: LabHandle, intent: Intent) -> Iterator[Evidence]:
        """Domains, networks, consoles and screens, and the network inside each machine."""
        decided = layout.load(lab)
        if decided is None:
            return
        cluster = self._cluster_evidence(lab, intent) if decided.bundle else None
        yield from evidence.pieces(lab, decided, self._hosts_with(decided), cluster)

    def _cluster_evidence(self, lab: LabHandle, intent: Intent) -> OfCluster | None:
        try:
            return self._cluster(lab, intent).evidence
        except LabError:  # its bundle is gone: the machines are evidence enough
            return None

    def console(self, lab: LabHandle, intent: Intent, name: str) -> int:
        """Join this terminal to the machine's serial console until Ctrl-]; the exit code."""
        del intent
        return self._placed(lab).console(name)

    def console_log(self, lab: LabHandle, intent: Intent, name: str) -> str:
        """All that the serial console has said since the machine was made."""
        del intent
        return self._placed(lab).console_log(name)

    def screenshot(self, lab: LabHandle, intent: Intent, name: str) -> bytes:
        """What its screen shows now, as PNG."""
        del intent
        return self._placed(lab).screenshot(name)

    def suspend(self, lab: LabHandle, intent: Intent) -> tuple[str, ...]:
        """Save every machine's memory to disk and stop it; the names of those that ran."""
        del intent
        return self._placed(lab).suspend()


def make(setup: ProviderSetup) -> Provider:
    """Machines of the inventory, or of this machine where it names none."""
    return LibvirtProvider(setup.machines())
