"""The provider of system containers: real Linux machines without virtualisation.

Each machine boots its image's root file system with systemd, in namespaces of this kernel. All of
a lab's machines run in one holder and end with it. Their disks are in the lab's directory, so
after the holder has ended, the machines can be started again with their old contents.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from lab._deadline import Deadline
from lab._errors import BrokenError, LabError, PreflightError, UsageError
from lab.machines.agents.pod_namespaces import pod_processes
from lab.machines.base import (
    MachinesProvider,
    another_way,
    look_inside,
    other_machines,
    own_network,
    piece,
    recorded,
    require_packages,
)
from lab.machines.cluster.cluster import HostTraits
from lab.machines.nspawn import cgroups, containers, holder, layout, networks, preflight, prepared
from lab.machines.nspawn.bring_up import NspawnBringUp
from lab.machines.nspawn.container import port
from lab.machines.nspawn.guests import ContainerGuests
from lab.machines.nspawn.layout import NspawnLayout
from lab.machines.nspawn.networks import configure
from lab.machines.nspawn.system import ContainerSystem, container_systems, root_image
from lab.machines.system import has_system, system_of
from lab.plan.step import Step
from lab.providers.failover import Beat, BeatPace, Silence
from lab.providers.netns import failover, holders, isolation
from lab.providers.netns import preflight as netns_preflight
from lab.providers.netns.child_calls import Tell
from lab.providers.netns.holders import NODE_HOLDER, HolderEntry, HolderProcess, list_holders
from lab.providers.netns.isolation import NETNS_DIRECTORY
from lab.providers.provider import (
    CAPTURE,
    CLUSTER,
    FAILOVER,
    KERNEL_TRACE,
    MACHINES,
    Diagnosis,
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
    from lab.machines.images.image_store import ImageStore

_CABLES_SECONDS = 10.0


def _namespaces() -> Iterator[tuple[str, str]]:
    """Every namespace pod on a machine, with its path as the lab's holder sees it."""
    for entry in list_holders(NODE_HOLDER):
        directory = f"/proc/{entry.pid}/root{NETNS_DIRECTORY}"
        yield from ((name, f"{directory}/{name}") for name in os.listdir(directory))  # noqa: PTH208  names are wanted, not paths


MACHINE_SECONDS, NODE_SECONDS, CLUSTER_SECONDS, PLANE_SECONDS = 0.8, 3.0, 35.0, 30.0
"""Measured on two cores: a machine's boot, a node's preparation, the first control plane with
add-ons and probe pods, and each further control plane."""
ROOT_SECONDS = 90.0
"""Building a root file system from packages, once."""
_LOG_SECONDS = 10.0
_REMOVAL_SECONDS = 10.0


class NspawnProvider(MachinesProvider):
    """System containers on this machine."""

    name = "nspawn"
    abilities = frozenset({MACHINES, CLUSTER, CAPTURE, KERNEL_TRACE, FAILOVER})
    system_kind = ContainerSystem

    @cached_property
    def _image_store(self) -> ImageStore:
        from lab.machines.images.image_store import ImageStore  # noqa: PLC0415  'down' builds no image

        return ImageStore(self._cache, self._inventory)

    def banner(self, intent: Intent | None) -> str:
        """One sentence: which provider, and what nodes of other systems are."""
        machines = f"{self.name}: system containers on this machine, with its kernel"
        disclaimer = self.disclaimer(intent) if intent else ""
        return f"{machines}; {disclaimer}" if disclaimer else machines

    def disclaimer(self, intent: Intent) -> str:
        """What the systems of its nodes say of such nodes, and what its links do."""
        names = sorted({machine.os for machine in intent.machines})
        systems = (
            system_of(name, ContainerSystem, "naming the provider")
            for name in names
            if has_system(name, ContainerSystem)
        )
        clauses = (*(system.disclaimer for system in systems), super().disclaimer(intent))
        return "; ".join(filter(None, clauses))

    def cost(self, intent: Intent) -> Cost:
        """Predicted cost of bringing the lab up from scratch."""
        machines = intent.machines
        nodes = [machine for machine in machines if machine.kubelet and intent.kubernetes]
        planes = [node for node in nodes if node.kubelet and node.kubelet.role == "control-plane"]
        roots = {root_image(machine) for machine in machines}
        unbuilt = sum(not self._image_store.has_root(name) for name in roots)
        seconds = ROOT_SECONDS * unbuilt + MACHINE_SECONDS * len(machines)
        if nodes:
            seconds += CLUSTER_SECONDS + NODE_SECONDS * len(nodes)
            seconds += PLANE_SECONDS * (len(planes) - 1)
        needed = preflight.need(intent)
        counts = {"machine": len(machines), "unbuilt image": unbuilt}
        return Cost(seconds, needed.memory_mib, len(nodes) + 1, counts)

    def unfit(self, intent: Intent) -> str:
        """Why such a lab cannot run in system containers; empty if it can."""
        for machine in intent.machines:
            if machine.os != "linux" and not has_system(machine.os, ContainerSystem):
                return (
                    f"nothing installed has {machine.os} nodes as system containers "
                    f"('{machine.name}'); "
                    "'--only linux' (make: ONLY=linux) leaves them out"
                )
            if machine.os != "linux":
                system = system_of(machine.os, ContainerSystem, "looking at a machine")
                if why := system.unfit(cluster=intent.kubernetes is not None):
                    return (
                        f"{why} ('{machine.name}'); '--only linux' (make: ONLY=linux) leaves "
                        "them out"
                    )
        return super().unfit(intent)

    def _packages(self, image: str) -> Collection[str] | None:
        """None for images of other systems, whose Linux the lab's daemons do not run on."""
        return super()._packages(image) if self._image_store.recipe(image).os == "linux" else None

    def labs_at_once(self, intents: Sequence[Intent]) -> int:
        """Limited by processors, memory and inotify instances."""
        needs = [preflight.need(intent) for intent in intents]
        return min(netns_preflight.labs_at_once(), preflight.labs_at_once(needs, preflight.room()))

    def examine(self, state: Path) -> tuple[Diagnosis, ...]:
        """Check this machine for system containers."""
        diagnoses = [*preflight.examine(state)]
        for system in container_systems():
            diagnoses += system.examine(self._cache, self._image_store.has_root)
        return tuple(diagnoses)

    def preflight(self, lab: LabHandle, intent: Intent) -> None:
        """Check root, programs, kernel, control groups, inotify instances, memory and the bundle.

        Raises PreflightError naming everything that is missing and its fix. Nothing has been
        created.
        """
        diagnoses = [
            diagnosis for diagnosis in preflight.examine(lab.directory) if diagnosis.level == "fail"
        ]
        strange = preflight.strangers_cache(self._cache)
        diagnoses += [strange] if strange else []
        if not diagnoses and holder.find(lab) is None:
            diagnoses += preflight.judge(preflight.need(intent), preflight.room())
        diagnoses += [each for each in netns_preflight.try_links(intent) if each.level != "ok"]
        preflight.refuse(intent, diagnoses)
        bundled = self._bundled(lab, intent)
        if bundled:
            ready = prepared.place(self._cache, bundled.manifest)
            prepared.check(ready) if ready.is_dir() else bundled.check()

    def steps(self, lab: LabHandle, intent: Intent) -> tuple[Step, ...]:
        """The steps of bring-up, in order.

        Raises PreflightError when such a lab cannot run in system containers.
        """
        action = f"checking scenario '{intent.scenario}' for system containers"
        why = self.unfit(intent)
        if why:
            raise PreflightError(action, why, another_way(intent))
        require_packages(intent, self._packages)
        try:
            bundled = self._bundled(lab, intent)
        except PreflightError:
            root = preflight.lacking_root()  # a bundle alone would not help without root
            if root:
                raise PreflightError(action, root.seen, root.hint) from None
            raise
        return NspawnBringUp(
            lab, intent, self._inventory, self._image_store, self._cache, bundled
        ).steps()

    def _host_traits(self) -> HostTraits:
        return preflight.traits()

    def _bundle_digest(self, lab: LabHandle) -> str:
        decided = layout.load(lab)
        return decided.bundle if decided else ""

    def _guests(self, lab: LabHandle) -> ContainerGuests:
        return ContainerGuests(lab, recorded(lab, layout.load(lab)), holder.find(lab))

    def liveness(self, lab: LabHandle, intent: Intent) -> Liveness:
        """Check the holder, its machines, and the software on them."""
        decided, entry = layout.load(lab), holder.find(lab)
        if decided is None:
            if entry is None:
                return Liveness("absent", "none of its processes runs here")
            return Liveness("broken", "its holder is running, but its record is missing")
        if entry is None:
            return Liveness("broken", "its machines are off", again_from="networks")
        if other := other_machines(decided.machines, intent):
            return Liveness("broken", other, again_from="images")
        try:
            return self._look(lab, intent, decided, entry)
        except LabError as error:
            return Liveness("broken", str(error), again_from="networks")

    def _look(
        self, lab: LabHandle, intent: Intent, decided: NspawnLayout, entry: HolderProcess
    ) -> Liveness:
        lost = networks.missing(entry, lab, intent.segments)
        if lost:
            return Liveness("broken", f"it has no {lost}", again_from="networks")
        on = containers.leaders(entry.pid)
        off = [machine.name for machine in intent.machines if machine.name not in on]
        if off:
            more = f", and {len(off) - 1} more" if len(off) > 1 else ""
            return Liveness("broken", f"{off[0]} is off{more}", again_from="machines")
        groups = holder.hierarchies(entry.pid)
        frozen = [name for name in on if cgroups.is_frozen(groups, lab.token, name)]
        if len(frozen) == len(on):
            return Liveness("suspended", f"all {len(on)} machines are frozen", "machines")
        if frozen:
            return Liveness("broken", f"{frozen[0]} is frozen", again_from="machines")
        with ContainerGuests(lab, decided, entry) as guests:
            beyond = self._beyond_network(lab, intent)
            ill = look_inside(guests, own_network(intent), beyond)
        return ill or Liveness("running", f"holder process {entry.pid}, {len(on)} machines")

    def destroy(self, lab: LabHandle, *, owner: str = "") -> tuple[str, ...]:
        """Kill the owner's holders of the lab; remove its cable and control groups. Repeatable.

        Cables and control groups belong to root; they are not removed for another owner.

        Raises DeadlineError when one still exists after 10 s.
        """
        if not owner:
            cgroups.thaw(lab.token)
        ended = holders.destroy_holders(lab, owner, holder.KIND)
        if not owner:
            for title, remove in (
                (f"the cable of lab '{lab.name}'", partial(networks.remove_cable, lab)),
                (f"the control groups of lab '{lab.name}'", partial(cgroups.remove, lab.token)),
            ):
                Deadline(_REMOVAL_SECONDS).wait(f"removing {title}", remove, every=0.05)
        return tuple(f"process {process.pid} (holder) with its machines" for process in ended)

    def marks(self, *, all_users: bool = False) -> tuple[Mark, ...]:
        """A mark for each of the caller's holders; for root with ``all_users``, everybody's."""
        return holders.list_marks(holder.KIND, all_users=all_users)

    def evidence(self, lab: LabHandle, intent: Intent) -> Iterator[Evidence]:
        """systemd-nspawn's logs, each machine's journal and network, and the cluster's evidence."""
        decided, entry = layout.load(lab), holder.find(lab)
        if decided is None or entry is None:
            return
        with ContainerGuests(lab, decided, entry) as guests:
            for machine in decided.machines:
                yield piece(f"{machine}/nspawn.log", partial(containers.log, entry, machine))
            yield from self._evidence_inside(lab, intent, guests, decided.machines)

    def console(self, lab: LabHandle, intent: Intent, name: str) -> int:
        """Follow the machine's journal until Ctrl-C; the exit code."""
        self._require_machine(lab, intent, name)
        words = ("journalctl", "--no-pager", "--boot", "--follow", "--lines=50")
        return self._guests(lab).linux_shell(name).attach(words)

    def console_log(self, lab: LabHandle, intent: Intent, name: str) -> str:
        """The machine's journal since it was last switched on."""
        self._require_machine(lab, intent, name)
        shell = self._guests(lab).linux_shell(name)
        words = ("journalctl", "--no-pager", "--boot")
        return shell.run(words, Deadline(_LOG_SECONDS)).stdout

    def screenshot(self, lab: LabHandle, intent: Intent, name: str) -> bytes:
        """Always raises UsageError: system containers have no screen."""
        del intent
        raise UsageError(
            f"taking a screenshot of '{name}'",
            "system containers have no screen",
            f"lab console {lab.name} {name} --log",
        )

    def gateway_holders(self, lab: LabHandle, intent: Intent) -> Mapping[str, Sequence[str]]:
        """The machines that hold each node's virtual gateway now, by node."""
        return failover.gateway_holders(holder.entry(lab), intent)

    def cut_off(self, lab: LabHandle, intent: Intent, machine: str) -> None:
        """Unplug every cable of the machine at the switch, except the management cable."""
        _plug(holder.entry(lab), intent, machine, plugged=False)

    def reconnect(self, lab: LabHandle, intent: Intent, machine: str) -> None:
        """Plug in every cable of the machine."""
        _plug(holder.entry(lab), intent, machine, plugged=True)

    def pulse(
        self, lab: LabHandle, beats: Sequence[Beat], change: Callable[[], None], pace: BeatPace
    ) -> tuple[Silence, ...]:
        """Send datagrams at a fixed interval; call ``change`` once all are answered."""

        def inside(tell: Tell) -> tuple[Silence, ...]:
            of_cluster = {
                process.pod: process.network
                for process in pod_processes()
                if process.token == lab.token
            }
            spaces = of_cluster or dict(_namespaces())

            def enter(pod: str) -> None:
                if pod not in spaces:
                    action = f"entering pod '{pod}'"
                    raise BrokenError(action, "none of its processes runs", "run 'lab up' again")
                with Path(spaces[pod]).open("rb") as space:
                    isolation.setns(space.fileno(), isolation.CLONE_NEWNET)

            spoken = [
                replace(beat, dialect="netexec" if beat.target in of_cluster else beat.dialect)
                for beat in beats
            ]
            return failover.measure_silences(enter, spoken, pace, tell)

        return holder.entry(lab).call(
            f"measuring in lab '{lab.name}'",
            inside,
            Deadline(3 * pace.patience),
            answer=tuple[Silence, ...],
            told=str,
            heard=lambda _: change(),
        )

    def suspend(self, lab: LabHandle, intent: Intent) -> tuple[str, ...]:
        """Freeze every machine in memory; returns the names of those that ran."""
        entry = holder.entry(lab)
        groups = holder.hierarchies(entry.pid)
        on = containers.leaders(entry.pid)
        names = [machine.name for machine in intent.machines if machine.name in on]
        ran = [name for name in names if not cgroups.is_frozen(groups, lab.token, name)]
        for name in ran:
            cgroups.freeze(groups, lab.token, name, frozen=True)
        return tuple(ran)

    @staticmethod
    def _require_machine(lab: LabHandle, intent: Intent, name: str) -> None:
        if name not in {machine.name for machine in intent.machines}:
            raise UsageError(f"looking for '{name}' in lab '{lab.name}'", "it has no such machine")


def _plug(entry: HolderEntry, intent: Intent, machine: str, *, plugged: bool) -> None:
    number = [machine_intent.name for machine_intent in intent.machines].index(machine)
    state, operation = ("up", "plugging in") if plugged else ("down", "unplugging")
    cards = range(1, len(intent.machines[number].interfaces) + 1)
    lines = [f"link set {port(number, card)} {state}" for card in cards]
    entry.call(
        f"{operation} the cables of '{machine}'",
        lambda _: configure(lines),
        Deadline(_CABLES_SECONDS),
    )


def make(setup: ProviderSetup) -> Provider:
    """Make the provider from the inventory."""
    return NspawnProvider(setup.machines())
