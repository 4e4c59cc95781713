"""The base of providers whose machines are computers: everything done through shells on them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from lab._deadline import Deadline
from lab._errors import BrokenError, LabError, PreflightError
from lab._log import say
from lab.facts.churn import Churn, churn
from lab.facts.difference import CLUSTER, Difference
from lab.facts.node import NodeFacts
from lab.facts.objects import OBJECTS_COMMAND, compare_objects, read_objects
from lab.facts.questions import STATE_COMMAND, answers, from_node, is_whole
from lab.facts.state import compare_states, is_same_space, read_state
from lab.inventory.inventory import Inventory
from lab.machines.addons.addon import addons
from lab.machines.agents.files import OTHER
from lab.machines.cluster.cluster import VIRTUAL_MACHINE, HostTraits, underlay
from lab.machines.cluster.linux.daemons import (
    daemon_ailments,
    required_packages,
    start_daemons,
    unfit_daemons,
    wanted_daemons,
)
from lab.machines.evidence import RECENTLY
from lab.machines.guests import Guests, Opened
from lab.machines.images.golden import cache_directory
from lab.machines.recorded_states import read_records, write_records
from lab.machines.system import System, system_of
from lab.plan.canonical import digest
from lab.plan.step import Step
from lab.providers.capture import KernelTrace, RouteQuestion, Taken, Tap, TracedFlow
from lab.providers.provider import (
    ON_CLUSTER,
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
    without_pod_network,
)
from lab.scenario.terms import Os
from lab.shells.parallel import on_each
from lab.shells.shell import Reach
from lab.topology.gateways import moving_addresses
from lab.topology.intent import Intent
from lab.topology.links import link_scripts, unfit_links

if TYPE_CHECKING:
    from lab.machines.images.image_store import ImageStore
    from lab.machines.kubernetes import Bundled, MachinesCluster


DAEMONS = "daemons"
"""The step that starts the lab's daemons on its machines."""
NODES = "nodes"
"""The first step of the cluster."""

_Layout = TypeVar("_Layout")
Ailments = Callable[[Guests], Mapping[str, str]]
"""Returns what is wrong, by machine; only machines with a problem."""


def recorded(lab: LabHandle, layout: _Layout | None) -> _Layout:
    """Return the lab's layout that was read from its directory.

    Raises BrokenError if ``layout`` is None.
    """
    if layout is None:
        raise BrokenError(
            f"looking for the machines of lab '{lab.name}'",
            "their record is missing",
            f"'lab down {lab.name}', then 'lab up' again",
        )
    return layout


def own_network(intent: Intent) -> Intent:
    """The part of an Intent that the lab itself creates on its machines, without Kubernetes'."""
    return underlay(intent) if intent.kubernetes else intent


def on_machines(
    lab: LabHandle, intent: Intent, bundled: Bundled | None, opened: Opened
) -> tuple[Step, ...]:
    """The steps from ``network`` on: ``daemons`` if there are any, the cluster's, ``states``.

    ``bundled``: the lab's cluster and its bundle; None if pods are namespaces.
    """

    def network() -> None:
        with opened() as guests:
            guests.apply(own_network(intent))

    def start() -> None:
        with opened() as guests:
            start_daemons(intent, guests.site)

    def impair_links() -> None:
        with opened() as guests:
            _impair_links(lab, intent, guests)

    steps = [Step("network", digest(own_network(intent)), network)]
    wanted = wanted_daemons(intent)
    if wanted:
        steps.append(Step(DAEMONS, digest(wanted), start))
    if bundled:
        from lab.machines.kubernetes import MachinesCluster  # noqa: PLC0415  few labs

        steps += MachinesCluster(lab, intent, bundled, opened).steps()
    if scripts := _on_linux(intent):
        steps.append(Step("links", digest(*scripts.items()), impair_links))
    states = Step("states", digest(STATE_COMMAND), lambda: _save_states(lab, intent, opened))
    return (*steps, states)


def _impair_links(lab: LabHandle, intent: Intent, guests: Guests) -> None:
    """Make every link as the scenario says. Raises BrokenError where a kernel cannot."""
    deadline = guests.deadline(_STATE_SECONDS)

    def impair(name: str) -> None:
        done = guests.shell(name).run(("sh", "-c", scripts[name]), deadline)
        if done.code:
            complaint = done.stderr.strip() or f"exit code {done.code}"
            raise BrokenError(f"impairing the link of '{name}' of lab '{lab.name}'", complaint)

    scripts = _on_linux(intent)
    on_each(scripts, impair)


def _on_linux(intent: Intent) -> dict[str, str]:
    """The scripts of links, of the machines that can run them."""
    return {
        name: script
        for name, script in link_scripts(intent).items()
        if intent.machine(name).os == "linux"
    }


_ASKED = digest(STATE_COMMAND, OBJECTS_COMMAND)
"""What is recorded with other commands, by another version, cannot be compared."""
_STATE_SECONDS = 60.0
_MONITOR_SECONDS = 5.0
"""To begin, to read and to clean up on a machine without an agent: two commands at most."""


def _save_states(lab: LabHandle, intent: Intent, opened: Opened) -> None:
    """Record every state; what is recorded stays for what ``up`` has neither created nor changed.

    So a fault that is in while ``up`` runs again is not recorded as made. A node that leaves its
    cluster has no record any more.
    """
    with opened() as guests:
        names = [machine.name for machine in intent.machines if machine.os == "linux"]
        deadline = guests.deadline(_STATE_SECONDS)
        every = {
            **guests.fleet.run_everywhere(intent, names, STATE_COMMAND, deadline),
            **_objects(intent, guests, deadline),
        }
    states = {
        place: text for place, text in every.items() if isinstance(text, str) and is_whole(text)
    }
    made = {CLUSTER: digest(intent, OBJECTS_COMMAND)} | {
        place: digest(machine, STATE_COMMAND)
        for machine in intent.machines
        for place in (machine.name, *(pod.name for pod in machine.pods))
    }
    known = {
        place: record
        for place, record in read_records(lab.directory).items()
        if record["made_by"] == made.get(place, "")
        and (place not in states or _is_same(place, record["state"], states[place]))
    }
    new = {
        place: {"made_by": made.get(place, ""), "state": text, "asked": _ASKED}
        for place, text in states.items()
    }
    if missing := [name for name in names if name not in states]:
        say(f"no state recorded of {', '.join(missing)}; 'lab explain' cannot compare it")
    write_records(lab.directory, new | known)


def _is_same(place: str, made: str, now: str) -> bool:
    if place == CLUSTER:
        return read_objects(made).cluster == read_objects(now).cluster
    return is_same_space(read_state(made), read_state(now))


def _objects(intent: Intent, guests: Guests, deadline: Deadline) -> Mapping[str, str | LabError]:
    """What the API server says of the cluster's objects, or its error; empty without a cluster."""
    plane = intent.control_plane()
    if not plane:
        return {}
    try:
        done = guests.shell(plane).run(OBJECTS_COMMAND, deadline)
        answer = answers(done.stdout, done.stderr).get("kubernetes")
    except LabError as error:
        return {CLUSTER: error}
    if read_objects(done.stdout).cluster:
        return {CLUSTER: done.stdout}
    action = f"asking the API server on '{plane}' for its objects"
    return {CLUSTER: BrokenError(action, answer.trouble if answer else "there is no answer")}


def _compare_place(made: str, now: str | LabError, others: Churn) -> Sequence[Difference] | None:
    """The differences of one place; None if it is not the one that was made.

    Raises LabError if either state cannot be read.
    """
    if isinstance(now, LabError):
        raise now
    before, after = read_state(made), read_state(now)
    return compare_states(before, after, others) if is_same_space(before, after) else None


def _compare_cluster(
    made: str, now: str | LabError
) -> Mapping[str, Sequence[Difference] | LabError]:
    """The differences of the cluster's objects; empty if it is another cluster."""
    if isinstance(now, LabError):
        return {CLUSTER: now}
    before, after = read_objects(made), read_objects(now)
    return {CLUSTER: compare_objects(before, after)} if before.cluster == after.cluster else {}


def _in_cluster_pod(difference: Difference, pod: str) -> Difference:
    """The difference with commands for the pod's node."""
    shows, mends = (
        from_node(pod, text) if text else "" for text in (difference.shows, difference.mends)
    )
    if difference.section == "file":
        mends = "delete the pod, so that it is created again"
    return replace(difference, shows=shows, mends=mends)


def other_machines(decided: Collection[str], intent: Intent) -> str:
    """How the lab's machines differ from its scenario's; empty if they do not."""
    wanted = {machine.name for machine in intent.machines}
    gone, new = set(decided) - wanted, wanted - set(decided)
    words = [f"no longer has {_list_names(gone)}"] if gone else []
    words += [f"now has {_list_names(new)}"] if new else []
    return f"the scenario {' and '.join(words)}" if words else ""


def _list_names(machines: Iterable[str]) -> str:
    return ", ".join(f"'{machine}'" for machine in sorted(machines))


def look_inside(guests: Guests, intent: Intent, beyond: Mapping[str, Ailments]) -> Liveness | None:
    """What is wrong inside the running machines; None if nothing is.

    ``intent``: the part that the lab itself creates. ``beyond``: further checks of the machines'
    software, by the step that repairs it. All run at once; the first one with a problem counts.
    """

    def network() -> Mapping[str, str]:
        ill = guests.ailments(intent).items()
        # an outdated network is not broken: its step runs anyway
        return {name: why for name, why in ill if why != OTHER} | dict(guests.silent())

    checks = {"machines": network} | {
        step: partial(check, guests) for step, check in beyond.items()
    }
    ailments = on_each(checks, lambda step: checks[step]())
    again = next((step for step in checks if ailments[step]), None)
    if again is None:
        return None
    ill, reachable = ailments[again], not ailments["machines"]
    name, why = next(iter(ill.items()))
    more = f", and {len(ill) - 1} more are broken" if len(ill) > 1 else ""
    return Liveness("broken", f"{name}: {why}{more}", again_from=again, reachable=reachable)


def unfit(intent: Intent) -> str:
    """Why such a lab cannot run on machines; empty if it can."""
    why = unfit_daemons(intent)
    if why:
        return f"topology '{intent.topology}' needs daemons on its machines: {why}"
    if why := unfit_links(intent):
        return why
    if intent.kubernetes is None:
        return without_pod_network(intent)
    addon = addons().get(intent.topology)
    if addon is None:
        return (
            f"no network add-on exists for topology '{intent.topology}' yet, "
            "so it cannot have a Kubernetes cluster"
        )
    return addon.unfit(intent)


def require_fit(intent: Intent) -> None:
    """Refuse a lab that cannot run on machines.

    Raises PreflightError with the reason and an alternative.
    """
    why = unfit(intent)
    if why:
        raise PreflightError(
            f"checking scenario '{intent.scenario}' for machines", why, another_way(intent)
        )


def another_way(intent: Intent) -> str:
    """What to do with a lab that cannot run on machines."""
    if intent.cni is not None:
        correct = "correct 'manifests' and 'images' of the scenario's topology"
        return correct if intent.kubernetes else ON_CLUSTER
    without = (
        "" if unfit_daemons(intent) else "; or '--pods namespaces' for a lab without Kubernetes"
    )
    return f"'--provider netns' brings it up in network namespaces{without}"


def require_packages(intent: Intent, packages_of: Callable[[str], Collection[str] | None]) -> None:
    """Check that the machines' images contain the packages that the machines need.

    ``packages_of``: returns the packages of an image's recipe; None if unknown.

    Raises PreflightError naming each image and its missing packages.
    """
    lacking: dict[str, set[str]] = {}
    for name, wanted in required_packages(intent).items():
        image = intent.machine(name).hardware.image
        present = packages_of(image)
        if present is not None and not wanted <= set(present):
            lacking.setdefault(image, set()).update(wanted - set(present))
    if lacking:
        missing = (
            f"'{image}' lacks {', '.join(sorted(names))}" for image, names in lacking.items()
        )
        raise PreflightError(
            f"checking the packages in the images of scenario '{intent.scenario}'",
            "; ".join(missing),
            "add the packages to your own recipe, based on 'debian-12', which has the packages of "
            "every shipped scenario",
        )


class MachinesProvider(Provider):
    """Machines that are computers, reached through shells.

    ``inventory``: the user's inventory.
    """

    pods: Pods = "kubernetes"
    system_kind: type[System] = System
    """What it asks of systems other than Linux."""

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory

    @property
    def _cache(self) -> Path:
        return cache_directory(self._inventory)

    @cached_property
    @abstractmethod
    def _image_store(self) -> ImageStore:
        """The image store on this machine."""

    @abstractmethod
    def _guests(self, lab: LabHandle) -> Guests:
        """Access to the lab's machines.

        Raises BrokenError when their record is missing.
        """

    @abstractmethod
    def _bundle_digest(self, lab: LabHandle) -> str:
        """Digest of the lab's bundle; empty before it is chosen."""

    def _host_traits(self) -> HostTraits:
        return VIRTUAL_MACHINE

    def _bundled(self, lab: LabHandle, intent: Intent) -> Bundled | None:
        """The lab's cluster and its bundle; None if pods are namespaces."""
        if intent.kubernetes is None:
            return None
        from lab.machines.kubernetes import find_bundle  # noqa: PLC0415  few labs have one

        kept = self._bundle_digest(lab)
        host, kind = self._host_traits(), self.system_kind
        return find_bundle(lab, intent, self._cache, kept, host, kind)

    def _cluster(self, lab: LabHandle, intent: Intent) -> MachinesCluster:
        from lab.machines.kubernetes import MachinesCluster  # noqa: PLC0415  few labs have one

        bundled = self._bundled(lab, intent)
        assert bundled is not None, "asked where there is a cluster"
        return MachinesCluster(lab, intent, bundled, lambda: self._guests(lab))

    def unfit(self, intent: Intent) -> str:
        """Why such a lab cannot run on these machines; empty if it can."""
        return unfit(intent)

    def _packages(self, image: str) -> Collection[str] | None:
        recipe = self._image_store.recipe(image)
        made_from = recipe.bootstrap or recipe.iso
        return made_from.packages if made_from else None

    def _beyond_network(self, lab: LabHandle, intent: Intent) -> dict[str, Ailments]:
        """The checks of the machines' software, by the step that repairs it."""
        beyond: dict[str, Ailments] = {DAEMONS: lambda guests: daemon_ailments(intent, guests.site)}
        if intent.kubernetes is not None and self._bundle_digest(lab):
            beyond[NODES] = self._cluster(lab, intent).ailments
        return beyond

    def machine(self, lab: LabHandle, intent: Intent, name: str) -> Machine:
        """The pod or machine of that name.

        Raises UsageError if there is none.
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
        """Run every probe from its source's machine; see :class:`Provider`."""
        if intent.kubernetes is not None:
            return self._cluster(lab, intent).probe(intent, probes, settings, progress)
        with self._guests(lab) as guests:
            return guests.probe(intent, probes, settings, progress)

    def cluster(self, lab: LabHandle, intent: Intent) -> RealCluster | None:
        """The lab's Kubernetes cluster; None if its pods are namespaces."""
        return None if intent.kubernetes is None else self._cluster(lab, intent)

    def observe(
        self,
        lab: LabHandle,
        intent: Intent,
        places: Mapping[str, Collection[str]],
        deadline: Deadline,
    ) -> Mapping[str, NodeFacts | LabError]:
        """Observe machines through their shells; see :class:`Provider`."""
        with self._guests(lab) as guests:
            if intent.kubernetes is not None:
                return self._cluster(lab, intent).observe(guests, places, deadline)
            return guests.observe(intent, places, deadline)

    def deviations(
        self, lab: LabHandle, intent: Intent, places: Sequence[str], deadline: Deadline
    ) -> Mapping[str, Sequence[Difference] | LabError]:
        """Compare with the state that the last ``lab up`` recorded.

        The place :data:`~lab.facts.objects.CLUSTER` stands for the cluster's objects. A machine
        that was rebooted or a pod that was created anew since then is not compared.
        """
        records = read_records(lab.directory).items()
        made = {place: record for place, record in records if record.get("asked") == _ASKED}
        pods = {pod.name: machine for machine in intent.machines for pod in machine.pods}
        machines_by_name = {machine.name: machine for machine in intent.machines} | pods
        chosen = {
            name: machines_by_name[name]
            for name in places
            if name in machines_by_name and name in made
        }
        with self._guests(lab) as guests:
            machines = {place.name for place in chosen.values()}
            now = guests.fleet.run_everywhere(intent, machines, STATE_COMMAND, deadline)
            objects = _objects(intent, guests, deadline) if CLUSTER in places else {}
        differences: dict[str, Sequence[Difference] | LabError] = {}
        if objects and CLUSTER in made:
            differences |= _compare_cluster(made[CLUSTER]["state"], objects[CLUSTER])
        kubernetes = intent.kubernetes is not None
        for name, machine in chosen.items():
            answer = now.get(name)
            if answer is None:
                continue  # a cluster's pod that is no longer there
            daemons = name == machine.name and bool(machine.daemons)
            held = moving_addresses(intent, machine)
            others = churn(kubernetes=kubernetes, daemons=daemons, held=held, mtus=intent.mtus())
            try:
                differs = _compare_place(made[name]["state"], answer, others)
            except LabError as error:
                differences[name] = error
                continue
            if differs is not None:
                of_cluster = kubernetes and name in pods
                differences[name] = [
                    _in_cluster_pod(difference, name) if of_cluster else difference
                    for difference in differs
                ]
        return differences

    def capture(  # noqa: PLR0913, PLR0917  the interface's signature
        self,
        lab: LabHandle,
        intent: Intent,
        taps: Sequence[Tap],
        limit: int,
        during: Callable[[], None],
        deadline: Deadline,
    ) -> tuple[Taken, ...]:
        """Capture all packets at the taps while ``during`` runs, by the machines' agents."""
        with self._guests(lab) as guests:
            return guests.capturing(intent).capture(intent, taps, limit, during, deadline)

    def stream_packets(
        self,
        lab: LabHandle,
        intent: Intent,
        tap: Tap,
        heard: Callable[[Taken], None],
        deadline: Deadline,
    ) -> None:
        """Capture all packets at a tap, as they come, by the machine's agent."""
        with self._guests(lab) as guests:
            guests.capturing(intent).stream_packets(intent, tap, heard, deadline)

    def trace_kernel(  # noqa: PLR0913, PLR0917  the interface's signature
        self,
        lab: LabHandle,
        intent: Intent,
        places: Mapping[str, Sequence[RouteQuestion]],
        flow: TracedFlow,
        during: Callable[[], None],
        deadline: Deadline,
    ) -> tuple[KernelTrace, ...]:
        """Trace a flow in each of ``places`` while ``during`` runs.

        By the machines' agents; on other systems by their monitor of drops, which is given up after
        seconds.
        """
        ends: dict[str, set[tuple[str, str, int]]] = {}
        for place, pairs in flow.ends.items():
            machine, _ = intent.places().get(place, (None, None))
            if machine is not None and machine.os != "linux":
                ends.setdefault(machine.name, set()).update(pairs)
        with self._guests(lab) as guests:
            monitors = {
                name: system_of(
                    intent.machine(name).os, self.system_kind, f"watching '{name}'"
                ).drop_monitor(
                    *(name, partial(guests.shell, name), lab.directory),
                    lambda: guests.deadline(_MONITOR_SECONDS),
                )
                for name in ends
            }
            try:
                on_each(monitors, lambda name: monitors[name].begin(flow.protocol, ends[name]))
                traces = guests.fleet.trace(intent, places, flow.table, during, deadline)
            finally:
                counted = on_each(monitors, lambda name: monitors[name].end())
        return (*traces, *counted.values())

    def logs(
        self, lab: LabHandle, intent: Intent, places: Collection[str], deadline: Deadline
    ) -> Iterator[Evidence]:
        """The logs of the last minutes of the machines in ``places``, through their shells."""
        try:
            with self._guests(lab) as guests:
                if intent.kubernetes is None:
                    yield from guests.logs(places, deadline, RECENTLY)
                    return
                yield from self._cluster(lab, intent).logs(guests, places, deadline)
        except LabError as error:
            yield Evidence("logs.missing", f"{error}\n".encode())

    def _evidence_inside(
        self, lab: LabHandle, intent: Intent, guests: Guests, machines: Collection[str]
    ) -> Iterator[Evidence]:
        """Evidence of the machines' network and the cluster; without a cluster, their logs.

        What machines of other systems say of themselves comes first.
        """
        for machine in intent.machines:
            if machine.os != "linux":
                yield from self._foreign_evidence(guests, machine.name, machine.os)
        yield from guests.evidence()
        try:
            made = intent.kubernetes is not None and self._bundle_digest(lab)
            cluster = self._cluster(lab, intent) if made else None
        except LabError:  # its bundle is missing; use the logs
            cluster = None
        if cluster is None:
            yield from guests.logs(machines, Deadline(SLOW_EVIDENCE_SECONDS))
            return
        yield from cluster.evidence(guests)

    def _foreign_evidence(self, guests: Guests, machine: str, os: Os) -> Iterator[Evidence]:
        """What a machine of another system says, or the reason why it does not. Never raises."""
        within = Deadline(SLOW_EVIDENCE_SECONDS)
        try:
            action = f"gathering evidence of machine '{machine}'"
            system = system_of(os, self.system_kind, action)
            for file, make in system.machine_evidence(guests.shell(machine)):
                yield Evidence(f"{machine}/{os}/{file}", make(within).encode())
        except LabError as error:
            yield Evidence(f"{machine}/{os}.missing", f"{error}\n".encode())

    def reaches(self, lab: LabHandle, intent: Intent) -> tuple[Reach, ...]:
        """How to log in to each machine, in the intent's order."""
        guests = self._guests(lab)
        return tuple(guests.reach(machine.name) for machine in intent.machines)


def piece(path: str, make: Callable[[], str | bytes]) -> Evidence:
    """A piece of evidence, or the reason why there is none. Never raises."""
    try:
        content = make()
    except Exception as error:  # noqa: BLE001  any error is evidence too
        return Evidence(f"{path}.missing", f"{error}\n".encode())
    return Evidence(path, content.encode() if isinstance(content, str) else content)
