"""Compares machines with their Intent, and finds what is wrong on a path. Pure.

Every check runs in the order of a packet's hops. Differences are ordered by where a packet meets
them first; the first is the answer. Consequences of another difference are left out or come last.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from lab._errors import LabError
from lab.explain.check import LabLook, Look, checks, first_hop, kind_of
from lab.facts.difference import SILENT, Difference, in_cluster, make_not_asked, make_unread
from lab.facts.node import NodeFacts, PodFacts, Unread
from lab.facts.questions import DISPENSABLE
from lab.topology import gateways
from lab.topology.footprint import LAB, By, Footprint, find_footprint
from lab.topology.intent import Intent, MachineIntent
from lab.topology.path import Flow, Path
from lab.topology.routing import bare
from lab.topology.subject import (
    MachineSubject,
    PodSubject,
)
from lab.topology.walk import walk


def compare_machine(
    intended: MachineIntent, observed: NodeFacts, *, by: By = "lab", footprint: Footprint = LAB
) -> tuple[Difference, ...]:
    """Every difference of one machine, in the order of hops.

    What could not be queried is not judged, nor what depends on a device that is down: only the
    device is then reported.

    Parameters
    ----------
    intended
        The machine; if Kubernetes made its network, with what is known only at run time
        (:func:`with_chosen_macs`).
    observed
        Its facts.
    by
        What creates its bridge, tunnel, pods and Services.
    footprint
        What is created in addition.

    """
    look = Look(intended, observed, by, footprint)
    return tuple(
        difference
        for check in checks()
        if not check.question or observed.knows(check.question)
        for difference in check.on_machine(look)
    )


def compare_between(
    intent: Intent, observed: Mapping[str, NodeFacts], *, by: By = "lab"
) -> tuple[Difference, ...]:
    """Every difference between machines, or of one machine according to another's facts."""
    look = LabLook(intent, observed, by)
    return tuple(difference for check in checks() for difference in check.in_lab(look))


def compare_lab(
    intent: Intent, observed: Mapping[str, NodeFacts], *, by: By = "lab"
) -> tuple[Difference, ...]:
    """Every difference in the lab: machine by machine, then between them."""
    if by == "kubernetes":
        bound, observed = with_chosen_macs(intent, observed), with_pod_names(intent, observed)
    else:
        bound = with_held_gateways(intent, observed)
    made_by_others = find_footprint(intent.topology, by)
    own = [
        difference
        for machine in bound.everything()
        if machine.name in observed
        for difference in compare_machine(
            machine, observed[machine.name], by=by, footprint=made_by_others
        )
    ]
    return (*own, *compare_between(bound, observed, by=by))


def learning_machines(intent: Intent) -> tuple[str, ...]:
    """The machines on which daemons learn routes or hold gateways."""
    candidates = {name for gateway in intent.gateways for name in gateway.candidates}
    return tuple(
        machine.name
        for machine in intent.machines
        if machine.name in candidates or any(route.by for route in machine.routes)
    )


def list_unlearned(intent: Intent, observed: Mapping[str, NodeFacts]) -> Iterator[Difference]:
    """Learned routes and gateways that do not exist yet, with the current holders of gateways."""
    for machine in with_held_gateways(intent, observed).machines:
        if machine.name in observed:
            differences = compare_machine(machine, observed[machine.name])
            yield from (difference for difference in differences if kind_of(difference).awaited)


def with_held_gateways(intent: Intent, observed: Mapping[str, NodeFacts]) -> Intent:
    """The Intent with each virtual gateway on the machine that was seen holding it.

    A gateway that no machine or several machines hold stays as in the Intent.
    """
    holders = {
        gateway.node: [
            name
            for name in gateway.candidates
            if name in observed
            and (link := observed[name].link(gateway.device))
            and gateway.address in link.addresses
        ]
        for gateway in intent.gateways
    }
    return gateways.settle_gateways(intent, holders)


def with_pod_names(intent: Intent, observed: Mapping[str, NodeFacts]) -> dict[str, NodeFacts]:
    """The facts with the names of Kubernetes pods instead of their network namespaces'.

    A pod is identified by its first address: a duplicate of another's address is added after it.
    """
    return {
        name: replace(facts, pods=tuple(_named(intent.machine(name), facts.pods)))
        if facts.pods
        else facts
        for name, facts in observed.items()
    }


def _named(machine: MachineIntent, pods: Iterable[PodFacts]) -> Iterator[PodFacts]:
    names = {pod.address.partition("/")[0]: pod.name for pod in machine.pods}
    for pod in pods:
        own = next((text.partition("/")[0] for text in pod.addresses()), "")
        yield replace(pod, name=names.pop(own, pod.name))  # the first of two with the same address


def with_chosen_macs(intent: Intent, observed: Mapping[str, NodeFacts]) -> Intent:
    """The Intent with the MACs that a cluster's network add-on has chosen for tunnels.

    Each is read on the tunnel's own node; other nodes' entries for it are adapted.
    """
    macs = dict(_chosen(intent, observed))
    return replace(
        intent,
        machines=tuple(
            replace(
                machine,
                tunnel=replace(machine.tunnel, mac=macs.get(machine.tunnel.mac, machine.tunnel.mac))
                if machine.tunnel
                else None,
                neighbours=tuple(
                    replace(neighbour, mac=macs.get(neighbour.mac, neighbour.mac))
                    for neighbour in machine.neighbours
                ),
                forwarding=tuple(
                    replace(entry, mac=macs.get(entry.mac, entry.mac))
                    for entry in machine.forwarding
                ),
            )
            for machine in intent.machines
        ),
    )


def _chosen(intent: Intent, observed: Mapping[str, NodeFacts]) -> Iterator[tuple[str, str]]:
    for machine in intent.machines:
        facts = observed.get(machine.name)
        device = facts.link(machine.tunnel.name) if facts and machine.tunnel else None
        if machine.tunnel and device and device.kind == "vxlan" and device.mac:
            yield machine.tunnel.mac, device.mac


@dataclass(frozen=True, slots=True)
class PathFindings:
    """The path of one request, and what is wrong on it."""

    path: Path
    findings: tuple[Difference, ...]
    """The first is the answer; empty if nothing was found."""


class Explainer:
    """Judges any number of requests from one observation of the machines.

    Parameters
    ----------
    intent
        The lab's Intent, bound to what is known only at run time.
    observed
        Facts of some machines, or why they could not be queried. Others are not judged.

    """

    def __init__(self, intent: Intent, observed: Mapping[str, NodeFacts | LabError]) -> None:
        self._by: By = "lab" if intent.kubernetes is None else "kubernetes"
        self._facts = {
            name: facts for name, facts in observed.items() if not isinstance(facts, LabError)
        }
        self._silent = {
            name: error for name, error in observed.items() if isinstance(error, LabError)
        }
        self._intent = intent
        if self._by == "kubernetes":
            self._intent = with_chosen_macs(intent, self._facts)
            self._facts = with_pod_names(intent, self._facts)
        self._footprint = find_footprint(intent.topology, self._by)
        self._compared: dict[str, tuple[Difference, ...]] = {}
        self._between = compare_between(self._intent, self._facts, by=self._by)

    def explain(self, flow: Flow, *, works: bool = True) -> PathFindings:
        """The request's path with the worst findings, or the first of several.

        If the request is not expected to work (``works``), a path that the Intent itself ends is
        right.
        """
        paths = walk(self._intent, flow)
        explained = [PathFindings(path, self._findings(path, works=works)) for path in paths]
        return next((answer for answer in explained if answer.findings), explained[0])

    def everything(self) -> tuple[Difference, ...]:
        """What is wrong on every machine, and what of them could not be read."""
        return (*self.list_unread((*self._silent, *self._facts)), *self.list_elsewhere())

    def list_not_asked(self) -> Iterator[Difference]:
        """What the machines were not asked, as they lack the program."""
        for name, facts in self._facts.items():
            unread = {part.part for part in facts.unread}
            for query, reason in facts.absent:
                if query in DISPENSABLE - unread:
                    yield make_not_asked(query, reason, name)

    def list_unread(self, names: Iterable[str]) -> tuple[Difference, ...]:
        """What could not be read of the machines, or of their parts."""
        return tuple(finding for name in names for finding in self._silences(name))

    def _silences(self, name: str) -> Iterator[Difference]:
        if name in self._silent:
            yield self._silence(name, -1)
        elif name in self._facts:
            yield from (_unread(name, part, -1) for part in self._facts[name].unread)

    def list_elsewhere(self) -> tuple[Difference, ...]:
        """Everything that is wrong on the observed machines, on any path."""
        every = [difference for name in self._facts for difference in self._compare_own(name)]
        return tuple(self._at(cause, -1) for cause in _causes([*every, *self._between]))

    def _findings(self, path: Path, *, works: bool) -> tuple[Difference, ...]:
        met = sorted(self._list_met(path), key=lambda pair: (_follows(pair[1]), pair[0]))
        causes = _causes([difference for _, difference in met])
        findings = [self._at(difference, hop) for hop, difference in met if difference in causes]
        places = {hop.place for hop in path.hops}
        for name in path.machines:
            hop = next(at for at, passed in enumerate(path.hops) if passed.machine == name)
            if name in self._silent:
                findings.append(self._silence(name, hop))
            parts = self._facts[name].unread if name in self._facts else ()
            findings += [_unread(name, part, hop) for part in parts if part.pod in {"", *places}]
        if path.end and works:
            findings += [*self._of_target(path), _end(path)]
        return tuple(findings)

    def _of_target(self, path: Path) -> Iterator[Difference]:
        """What is wrong with the pod that is asked, if its machine has no way to it."""
        last = path.hops[-1]
        machine = self._intent.machine(last.machine)
        target = [
            PodSubject(pod.name) for pod in machine.pods if bare(pod.address) == last.packet.target
        ]
        for difference in self._compare_own(machine.name):
            if difference.subject in target:
                yield self._at(difference, len(path.hops) - 1)

    def _at(self, difference: Difference, hop: int) -> Difference:
        finding = replace(difference, hop=hop)
        of_cluster = self._by == "kubernetes" and self._intent.machine(finding.node).os == "linux"
        return in_cluster(finding) if of_cluster else finding

    def _list_met(self, path: Path) -> Iterator[tuple[int, Difference]]:
        every = [difference for name in path.machines for difference in self._compare_own(name)]
        for difference in (*every, *self._between):
            hop = first_hop(difference, path)
            if hop is not None:
                yield hop, difference

    def _compare_own(self, name: str) -> tuple[Difference, ...]:
        facts = self._facts.get(name)
        if facts is None:
            return ()
        if name not in self._compared:
            machine = self._intent.machine(name)
            looked_at = self._without_unobserved_pods(machine, facts)
            self._compared[name] = compare_machine(
                looked_at, facts, by=self._by, footprint=self._footprint
            )
        return self._compared[name]

    def _without_unobserved_pods(self, machine: MachineIntent, facts: NodeFacts) -> MachineIntent:
        """The intended machine, without pods of the lab that were not observed."""
        if self._by == "kubernetes" or facts.pods is None:
            return machine
        names = {pod.name for pod in facts.pods}
        return replace(machine, pods=tuple(pod for pod in machine.pods if pod.name in names))

    def _silence(self, name: str, hop: int) -> Difference:
        error = self._silent[name]
        return Difference(
            SILENT,
            "",
            name,
            "the machine itself",
            "",
            f"its state cannot be read: {error.doing}: {error.happened}",
            "lab status",
            error.hint or "lab up",
            name,
            hop,
            subject=MachineSubject(name),
        )


def _unread(name: str, unread: Unread, hop: int) -> Difference:
    """A finding for a part of a machine that could not be read."""
    finding = make_unread(unread.part, unread.reason, name, installed=unread.installed)
    if not unread.pod:
        return replace(finding, hop=hop)
    return replace(
        finding,
        object=f"pod {unread.pod}",
        observed=f"its state cannot be read: {unread.reason}",
        place=unread.pod,
        hop=hop,
        subject=PodSubject(unread.pod),
    )


def _end(path: Path) -> Difference:
    """A finding for a path that the Intent itself ends."""
    last = path.hops[-1]
    return Difference(
        "intent-ends",
        "",
        last.machine,
        last.object,
        "a way on",
        path.end,
        "lab show",
        "nothing to fix: the scenario asks for this",
        last.place,
        len(path.hops) - 1,
        subject=last.subject,
    )


def _follows(difference: Difference) -> bool:
    """Whether it is usually a consequence: a missing carrier, of the other end being down."""
    no_carrier = difference.kind == "link-down" and difference.attribute == "carrier"
    return no_carrier or kind_of(difference).follows


def _causes(every: Sequence[Difference]) -> list[Difference]:
    """The differences without those that follow from another one."""
    causes = [(kind_of(difference).explains, difference) for difference in every]
    return [
        difference
        for difference in every
        if not any(explains and explains(cause, difference) for explains, cause in causes)
    ]
