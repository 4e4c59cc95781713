"""The libvirt provider: a lab's machines are virtual machines on one or many hypervisors.

Nothing that is made is known from the journal alone: domains and networks carry the lab's
token in their metadata, and its disks stand below a directory that has the token's name.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from lab._deadline import Deadline
from lab._errors import BrokenError, LabError
from lab._log import say
from lab.cluster.linux import daemon_looking
from lab.cluster.observers.facts import NodeFacts
from lab.cluster.observers.gathering import RECENTLY
from lab.guests.shell import Reach
from lab.imaging.golden import GoldenImage
from lab.inventory.inventory import Inventory
from lab.providers.capture import Taken, Tap
from lab.providers.libvirt import (
    belongings,
    bring_up,
    capacity,
    evidence,
    fitness,
    health,
    layout,
    prediction,
    windows,
)
from lab.providers.libvirt.bring_up import BringUp
from lab.providers.libvirt.carriage import Carriage
from lab.providers.libvirt.evidence import OfCluster
from lab.providers.libvirt.guests import Guests
from lab.providers.libvirt.host import Host
from lab.providers.libvirt.layout import Layout
from lab.providers.libvirt.placed import Placed
from lab.providers.libvirt.placement import mtu
from lab.providers.provider import (
    Evidence,
    LabHandle,
    Liveness,
    Machine,
    Mark,
    Outcome,
    Pods,
    Probe,
    ProbeSettings,
    Step,
)
from lab.providers.real import RealCluster
from lab.topology.cost import Cost
from lab.topology.intent import Intent

if TYPE_CHECKING:
    from lab.imaging.library import Library
    from lab.providers.libvirt.bundles import Bundled
    from lab.providers.libvirt.kubernetes import Kubernetes


class LibvirtProvider:
    """Virtual machines on the hypervisors of an inventory.

    Parameters
    ----------
    inventory
        Where machines may be, and what they may use.

    """

    name = "libvirt"
    pods: Pods = "kubernetes"

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory
        self._hosts = {one.name: Host(one) for one in inventory.hypervisors}

    def _hosts_with(self, decided: Layout | None) -> Mapping[str, Host]:
        """The inventory's hypervisors, and those that the lab alone still knows of."""
        for name, home in (decided.homes if decided else {}).items():
            self._hosts.setdefault(name, Host(home))
        return self._hosts

    @cached_property
    def _library(self) -> Library:
        from lab.imaging.library import Library  # noqa: PLC0415  'down' builds no image
        from lab.providers.libvirt.installing import LibvirtInstaller  # noqa: PLC0415  the same

        first = next(iter(self._hosts.values()))
        installer = LibvirtInstaller(first, self._inventory.management)
        return Library(cache_directory(self._inventory), self._inventory, installer)

    def banner(self, intent: Intent | None) -> str:
        """One sentence: which provider, and where its machines are."""
        del intent
        listed = ", ".join(f"{one.name} ({one.uri})" for one in self._inventory.hypervisors)
        few = "hypervisor" if len(self._hosts) == 1 else "hypervisors"
        return f"{self.name}: virtual machines on {few} {listed}"

    def node_mtu(self, asked: int) -> int:
        """What fits between all hypervisors, if there are several: any may get a machine.

        Raises
        ------
        PreflightError
            When that is too little for a cluster.

        """
        return mtu(self._inventory, [one.name for one in self._inventory.hypervisors], asked)

    def cost(self, intent: Intent) -> Cost:
        """What the lab is predicted to take here, from nothing; no hypervisor is asked.

        Raises
        ------
        PreflightError
            When there is no such image, and it cannot be built here.

        """
        windows.require(intent, self._require)
        built = {
            name: self._library.peek(name) is not None
            for name in dict.fromkeys(machine.hardware.image for machine in intent.machines)
        }
        return prediction.predict(intent, self._inventory.hypervisors, built)

    def unfit(self, intent: Intent) -> str:
        """Why there can be no such lab of virtual machines."""
        return fitness.unfit(intent)

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
        return BringUp(
            lab=lab,
            intent=intent,
            inventory=self._inventory,
            hosts=self._hosts,
            image_of=self._image,
            digest_of=self._library.digest,
            decide=lambda: self._layout(lab, intent),
            bundled=self._bundled(lab, intent),
        ).steps()

    def _bundled(self, lab: LabHandle, intent: Intent) -> Bundled | None:
        """What the lab's cluster is made from; None where pods are namespaces."""
        if intent.kubernetes is None:
            return None
        from lab.providers.libvirt import bundles  # noqa: PLC0415  few labs have a cluster

        cache = cache_directory(self._inventory)
        return bundles.of(lab, intent, cache, layout.load(lab))

    def _require(self, image: str) -> None:
        if self._library.peek(image) is None:
            self._library.require(image)

    def _packages(self, image: str) -> Collection[str] | None:
        recipe = self._library.recipe(image)
        made_from = recipe.bootstrap or recipe.iso
        return made_from.packages if made_from else None

    def _image(self, name: str) -> GoldenImage:
        return self._library.get(name, say)

    def _layout(self, lab: LabHandle, intent: Intent) -> Layout:
        return capacity.decide(lab, intent, self._hosts)

    def liveness(self, lab: LabHandle, intent: Intent) -> Liveness:
        """Look at the domains, and into the machines."""
        decided = layout.load(lab)
        if decided is None or set(decided.machines) != {one.name for one in intent.machines}:
            return self._unplaced(lab, decided)
        try:
            return self._look(lab, intent, decided)
        except LabError as error:
            return Liveness("broken", str(error), again_from="machines")

    def _look(self, lab: LabHandle, intent: Intent, decided: Layout) -> Liveness:
        beyond: dict[str, health.Ailments] = {
            bring_up.DAEMONS: lambda guests: daemon_looking.ailments(intent, guests.site)
        }
        if intent.kubernetes is not None and decided.bundle:
            beyond[bring_up.NODES] = self._cluster(lab, intent).ailments
        own, hosts = bring_up.own_network(intent), self._hosts_with(decided)
        return health.look(lab, own, decided, hosts, beyond)

    def _cluster(self, lab: LabHandle, intent: Intent) -> Kubernetes:
        from lab.providers.libvirt.kubernetes import Kubernetes  # noqa: PLC0415  few labs have one

        bundled = self._bundled(lab, intent)
        assert bundled is not None, "asked where there is a cluster"
        return Kubernetes(lab, intent, bundled, lambda: self._guests(lab))

    def _decided(self, lab: LabHandle) -> Layout:
        decided = layout.load(lab)
        if decided is None:
            raise BrokenError(
                f"looking for the machines of lab '{lab.name}'",
                "there is no record of where they are",
                f"'lab down {lab.name}', then 'lab up' again",
            )
        return decided

    def _guests(self, lab: LabHandle) -> Guests:
        decided = self._decided(lab)
        return Guests(lab, decided, self._hosts_with(decided))

    def _placed(self, lab: LabHandle) -> Placed:
        decided = self._decided(lab)
        return Placed(lab, decided, self._hosts_with(decided))

    def _unplaced(self, lab: LabHandle, decided: Layout | None) -> Liveness:
        if decided is not None:
            return Liveness("broken", "it has other machines than the scenario", "place")
        for host in self._hosts.values():
            with host.told(f"looking for lab '{lab.name}'"):
                owners = list(host.owners())
            for what, owner in owners:
                if owner.token == lab.token:
                    return Liveness(
                        "broken", f"{what} is there, and no record of where the rest is"
                    )
        return Liveness("absent", "no hypervisor has anything of it")

    def destroy(self, lab: LabHandle) -> tuple[str, ...]:
        """Take away every object with the lab's token; say what was removed. Safe to repeat.

        Raises
        ------
        BrokenError
            When a hypervisor cannot be reached or refuses; the others are done first.

        """
        decided = layout.load(lab)
        return belongings.destroy(lab, decided, self._hosts_with(decided))

    def marks(self) -> tuple[Mark, ...]:
        """Every object of this controller's, and of anyone's lab that has expired."""
        return belongings.marks(self._hosts.values())

    def machine(self, lab: LabHandle, intent: Intent, name: str) -> Machine:
        """The pod or machine of that name.

        Raises
        ------
        UsageError
            If there is none; names the nearest.

        """
        guests = self._guests(lab)
        if intent.kubernetes is not None:
            pod = self._cluster(lab, intent).machine(guests, name)
            if pod is not None:
                return pod
        return guests.machine(intent, name)

    def probe(
        self,
        lab: LabHandle,
        intent: Intent,
        probes: Sequence[Probe],
        settings: ProbeSettings,
        progress: Callable[[int], None],
    ) -> Mapping[int, Outcome]:
        """Try every probe, each from its own machine; see the seam for the rest."""
        if intent.kubernetes is not None:
            return self._cluster(lab, intent).probe(intent, probes, settings, progress)
        with self._guests(lab) as guests:
            return guests.probe(intent, probes, settings, progress)

    def cluster(self, lab: LabHandle, intent: Intent) -> RealCluster | None:
        """The lab's Kubernetes; None where its pods are namespaces."""
        return None if intent.kubernetes is None else self._cluster(lab, intent)

    def observe(
        self,
        lab: LabHandle,
        intent: Intent,
        asked: Mapping[str, Collection[str]],
        deadline: Deadline,
    ) -> Mapping[str, NodeFacts | LabError]:
        """Look at machines, each through its own shell; see the seam for the rest."""
        with self._guests(lab) as guests:
            if intent.kubernetes is not None:
                return self._cluster(lab, intent).observe(guests, asked, deadline)
            return guests.observe(intent, asked, deadline)

    def capture(  # noqa: PLR0913, PLR0917  as the seam has it
        self,
        lab: LabHandle,
        intent: Intent,
        taps: Sequence[Tap],
        limit: int,
        during: Callable[[], None],
        deadline: Deadline,
    ) -> tuple[Taken, ...]:
        """Take down all that passes the taps while ``during`` runs, by the machines' agents."""
        with self._guests(lab) as guests:
            return guests.capture(intent, taps, limit, during, deadline)

    def logs(
        self, lab: LabHandle, intent: Intent, asked: Collection[str], deadline: Deadline
    ) -> Iterator[Evidence]:
        """What those machines have logged in the last minutes, each through its own shell."""
        try:
            with self._guests(lab) as guests:
                if intent.kubernetes is None:
                    yield from guests.logs(asked, deadline, RECENTLY)
                    return
                for path, content in self._cluster(lab, intent).logs(guests, asked, deadline):
                    yield Evidence(path, content)
        except LabError as error:
            yield Evidence("logs.missing", f"{error}\n".encode())

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

    def reaches(self, lab: LabHandle, intent: Intent) -> tuple[Reach, ...]:
        """How to get a shell on each machine, in the intent's order."""
        guests = self._guests(lab)
        return tuple(guests.reach(machine.name) for machine in intent.machines)

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


def cache_directory(inventory: Inventory, environment: Mapping[str, str] = os.environ) -> Path:
    """Where golden images and downloads are kept: the inventory's word, or XDG's."""
    if inventory.cache is not None:
        return inventory.cache
    shared = environment.get("XDG_CACHE_HOME", "")
    home = Path(shared) if shared.startswith("/") else Path.home() / ".cache"
    return home / "hybridlab"
