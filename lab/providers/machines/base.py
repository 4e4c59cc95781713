"""What every provider has whose machines are computers: all that goes through shells on them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from lab._deadline import Deadline
from lab._errors import LabError
from lab.cluster.cluster import VIRTUAL_MACHINE, HostTraits
from lab.cluster.linux.daemons import daemon_ailments
from lab.facts.evidence import RECENTLY
from lab.facts.node import NodeFacts
from lab.imaging.golden import cache_directory
from lab.inventory.inventory import Inventory
from lab.providers.capture import Taken, Tap
from lab.providers.machines.guests import Guests
from lab.providers.machines.steps import DAEMONS, NODES, Ailments
from lab.providers.provider import (
    SLOW_EVIDENCE_SECONDS,
    Evidence,
    LabHandle,
    Machine,
    Outcome,
    Pods,
    Probe,
    ProbeSettings,
    Provider,
    RealCluster,
)
from lab.remote.shell import Reach
from lab.topology.intent import Intent

if TYPE_CHECKING:
    from lab.imaging.image_store import ImageStore
    from lab.providers.machines.bundles import Bundled
    from lab.providers.machines.kubernetes import MachinesCluster


class MachinesProvider(Provider):
    """Machines that are computers, reached through shells.

    ``inventory``: what labs may use.
    """

    pods: Pods = "kubernetes"

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory

    @property
    def _cache(self) -> Path:
        return cache_directory(self._inventory)

    @cached_property
    @abstractmethod
    def _image_store(self) -> ImageStore:
        """The images of this machine."""

    @abstractmethod
    def _guests(self, lab: LabHandle) -> Guests:
        """The lab's machines, from inside.

        Raises BrokenError when it is not known where they are.
        """

    @abstractmethod
    def _bundle_digest(self, lab: LabHandle) -> str:
        """Digest of the bundle that the lab was made from; empty while that is not decided."""

    def _host_traits(self) -> HostTraits:
        return VIRTUAL_MACHINE

    def _bundled(self, lab: LabHandle, intent: Intent) -> Bundled | None:
        """What the lab's cluster is made from; None where pods are namespaces."""
        if intent.kubernetes is None:
            return None
        from lab.providers.machines import bundles  # noqa: PLC0415  few labs have a cluster

        kept = self._bundle_digest(lab)
        return bundles.of(lab, intent, self._cache, kept, self._host_traits())

    def _cluster(self, lab: LabHandle, intent: Intent) -> MachinesCluster:
        from lab.providers.machines.kubernetes import MachinesCluster  # noqa: PLC0415  few labs have one

        bundled = self._bundled(lab, intent)
        assert bundled is not None, "asked where there is a cluster"
        return MachinesCluster(lab, intent, bundled, lambda: self._guests(lab))

    def _packages(self, image: str) -> Collection[str] | None:
        recipe = self._image_store.recipe(image)
        made_from = recipe.bootstrap or recipe.iso
        return made_from.packages if made_from else None

    def _beyond_network(self, lab: LabHandle, intent: Intent) -> dict[str, Ailments]:
        """What is to be asked of what runs on the machines, by the step that repairs it."""
        beyond: dict[str, Ailments] = {DAEMONS: lambda guests: daemon_ailments(intent, guests.site)}
        if intent.kubernetes is not None and self._bundle_digest(lab):
            beyond[NODES] = self._cluster(lab, intent).ailments
        return beyond

    def machine(self, lab: LabHandle, intent: Intent, name: str) -> Machine:
        """The pod or machine of that name.

        Raises UsageError if there is none; names the nearest.
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

    def _evidence_inside(
        self, lab: LabHandle, intent: Intent, guests: Guests, machines: Collection[str]
    ) -> Iterator[Evidence]:
        """What the machines show of their network, and the cluster on them; else their logs."""
        yield from guests.evidence()
        try:
            made = intent.kubernetes is not None and self._bundle_digest(lab)
            cluster = self._cluster(lab, intent) if made else None
        except LabError:  # its bundle is gone: logs are evidence enough
            cluster = None
        if cluster is None:
            yield from guests.logs(machines, Deadline(SLOW_EVIDENCE_SECONDS))
            return
        for path, content in cluster.evidence(guests):
            yield Evidence(path, content)

    def reaches(self, lab: LabHandle, intent: Intent) -> tuple[Reach, ...]:
        """How to log in to each machine, in the intent's order."""
        guests = self._guests(lab)
        return tuple(guests.reach(machine.name) for machine in intent.machines)


def piece(path: str, make: Callable[[], str | bytes]) -> Evidence:
    """A piece of evidence, or why there is none. Never raises."""
    try:
        content = make()
    except Exception as error:  # noqa: BLE001  whatever is wrong with it is evidence too
        return Evidence(f"{path}.missing", f"{error}\n".encode())
    return Evidence(path, content.encode() if isinstance(content, str) else content)
