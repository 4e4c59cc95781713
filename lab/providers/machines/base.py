"""What every provider has whose machines are computers: all that goes through shells on them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from lab._deadline import Deadline
from lab._errors import BrokenError, LabError, PreflightError
from lab.cluster.addons.addon import addons
from lab.cluster.cluster import VIRTUAL_MACHINE, HostTraits, underlay
from lab.cluster.linux.daemons import (
    daemon_ailments,
    required_packages,
    start_daemons,
    unfit_daemons,
    wanted_daemons,
)
from lab.facts.evidence import RECENTLY
from lab.facts.node import NodeFacts
from lab.imaging.golden import cache_directory
from lab.inventory.inventory import Inventory
from lab.plan.canonical import digest
from lab.plan.step import Step
from lab.providers.capture import Taken, Tap
from lab.providers.machines.guests import Guests
from lab.providers.node.record import OTHER
from lab.providers.provider import (
    SLOW_EVIDENCE_SECONDS,
    Evidence,
    LabHandle,
    Liveness,
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
    from lab.providers.machines.kubernetes import Bundled, MachinesCluster


DAEMONS = "daemons"
"""The step that starts what the lab starts on its machines."""
NODES = "nodes"
"""The first of the steps that make a cluster."""

_Layout = TypeVar("_Layout")
Opened = Callable[[], Guests]
"""Opens the machines; the caller closes."""
Ailments = Callable[[Guests], Mapping[str, str]]
"""What is wrong with each machine that something is wrong with."""


def recorded(lab: LabHandle, found: _Layout | None) -> _Layout:
    """What a lab's machines are made from, as read from its directory.

    Raises BrokenError when nothing could be read.
    """
    if found is None:
        raise BrokenError(
            f"looking for the machines of lab '{lab.name}'",
            "the record of them is missing",
            f"'lab down {lab.name}', then 'lab up' again",
        )
    return found


def own_network(intent: Intent) -> Intent:
    """What of an Intent the lab makes on its machines itself: the rest may be Kubernetes'."""
    return underlay(intent) if intent.kubernetes else intent


def on_machines(
    lab: LabHandle, intent: Intent, bundled: Bundled | None, opened: Opened
) -> tuple[Step, ...]:
    """From ``network`` on: ``daemons`` where there are some, and the cluster's own.

    ``bundled``: what the lab's cluster is made from; None where pods are namespaces.
    """

    def network() -> None:
        with opened() as guests:
            guests.apply(own_network(intent))

    def start() -> None:
        with opened() as guests:
            start_daemons(intent, guests.site)

    steps = [Step("network", digest(own_network(intent)), network)]
    wanted = wanted_daemons(intent)
    if wanted:
        steps.append(Step(DAEMONS, digest(wanted), start))
    if bundled:
        from lab.providers.machines.kubernetes import MachinesCluster  # noqa: PLC0415  few labs

        steps += MachinesCluster(lab, intent, bundled, opened).steps()
    return tuple(steps)


def other_machines(decided: Collection[str], intent: Intent) -> str:
    """In what the machines a lab was made with differ from its scenario's; empty if in nothing."""
    wanted = {one.name for one in intent.machines}
    gone, new = set(decided) - wanted, wanted - set(decided)
    words = [f"no longer has {_named(gone)}"] if gone else []
    words += [f"now has {_named(new)}"] if new else []
    return f"the scenario {' and '.join(words)}" if words else ""


def _named(machines: Iterable[str]) -> str:
    return ", ".join(f"'{one}'" for one in sorted(machines))


def look_inside(guests: Guests, intent: Intent, beyond: Mapping[str, Ailments]) -> Liveness | None:
    """What is wrong inside machines that run; None where all is well.

    ``intent``: what the lab itself makes on them. ``beyond``: what is to be asked of what runs on
    the machines, by the step that repairs it; in order, as long as all is well.
    """
    ill: dict[str, str] = {
        name: what for name, what in guests.ailments(intent).items() if what != OTHER
    }  # a network that is to be another is not broken: its step runs for that alone
    ill |= guests.silent()
    again, reachable = "machines", not ill
    for step, ailments in beyond.items():
        if not ill:
            ill, again = dict(ailments(guests)), step
    if not ill:
        return None
    name, what = next(iter(ill.items()))
    more = f", and {len(ill) - 1} more are broken" if len(ill) > 1 else ""
    return Liveness("broken", f"{name}: {what}{more}", again_from=again, reachable=reachable)


def unfit(intent: Intent) -> str:
    """Why there can be no such lab on machines; empty where there can."""
    why = unfit_daemons(intent)
    if why:
        return f"topology '{intent.topology}' needs daemons on its machines: {why}"
    if intent.kubernetes is None:
        return ""
    addon = addons().get(intent.topology)
    if addon is None:
        return (
            f"there is no network add-on for topology '{intent.topology}', "
            "so there is no Kubernetes cluster of it yet"
        )
    return addon.unfit(intent)


def require_fit(intent: Intent) -> None:
    """Refuse what cannot be had.

    Raises PreflightError saying why, and what can be had instead.
    """
    why = unfit(intent)
    if why:
        without = (
            "" if unfit_daemons(intent) else "; or '--pods namespaces' for a lab without Kubernetes"
        )
        raise PreflightError(
            f"checking scenario '{intent.scenario}' for machines",
            why,
            f"'--provider netns' brings it up in network namespaces{without}",
        )


def require_packages(intent: Intent, packages_of: Callable[[str], Collection[str] | None]) -> None:
    """See that the machines' images have the programs that they are to run.

    ``packages_of``: of an image's recipe; None where it is not set.

    Raises PreflightError naming each image and what it lacks.
    """
    lacking: dict[str, set[str]] = {}
    for name, wanted in required_packages(intent).items():
        image = intent.machine(name).hardware.image
        there = packages_of(image)
        if there is not None and not wanted <= set(there):
            lacking.setdefault(image, set()).update(wanted - set(there))
    if lacking:
        missing = (
            f"'{image}' has no {', '.join(sorted(names))}" for image, names in lacking.items()
        )
        raise PreflightError(
            f"looking for the programs of scenario '{intent.scenario}' in its machines' images",
            "; ".join(missing),
            "add the packages to a recipe of your own based on 'debian-12', which has those of "
            "every shipped scenario",
        )


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
        from lab.providers.machines.kubernetes import find_bundle  # noqa: PLC0415  few labs have one

        kept = self._bundle_digest(lab)
        return find_bundle(lab, intent, self._cache, kept, self._host_traits())

    def _cluster(self, lab: LabHandle, intent: Intent) -> MachinesCluster:
        from lab.providers.machines.kubernetes import MachinesCluster  # noqa: PLC0415  few labs have one

        bundled = self._bundled(lab, intent)
        assert bundled is not None, "asked where there is a cluster"
        return MachinesCluster(lab, intent, bundled, lambda: self._guests(lab))

    def unfit(self, intent: Intent) -> str:
        """Why there can be no such lab of these machines."""
        return unfit(intent)

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
