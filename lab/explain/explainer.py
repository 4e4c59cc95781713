"""From the observation of machines to the reason why a path does not carry what it should. Pure.

Differences are ordered by where a packet meets them first; the first is the answer. Consequences of
another difference are left out or come last.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from lab._errors import LabError
from lab.cluster.footprint import By, footprint
from lab.explain.check import Difference, first_hop, kinds
from lab.explain.comparison import (
    compare_between,
    compare_machine,
    with_chosen_macs,
    with_pod_names,
)
from lab.facts.node import NodeFacts
from lab.matrix.finding import Finding
from lab.scenario.reserved import DNS_SERVICE
from lab.topology.intent import Intent, MachineIntent
from lab.topology.path import Flow, Path
from lab.topology.walk import walk

LEARNED = frozenset({"learned-route-missing", "wrong-learned-route", "session-waiting"})
"""Kinds that are symptoms of something else, perhaps on a machine that is not on the path."""
_NOT_READY = frozenset({"runtime-down", "cni-config-missing", "certificate-expired"})
"""Kinds for which the cluster reports a node NotReady and removes its pods from every Service."""
_OF_ENDPOINTS = frozenset({"service-missing", "stale-backend", "backend-missing", "wrong-refusal"})
"""Symptoms of a kube-proxy whose endpoints are not the intended ones."""
_DNS = f"Service {DNS_SERVICE},"
_SAME_ADDRESS = frozenset({"wrong-route", "wrong-learned-route", "route-missing", "stray-route"})


@dataclass(frozen=True, slots=True)
class Explained:
    """The path of one request, and what is wrong on it."""

    path: Path
    findings: tuple[Finding, ...]
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
        self._seen = {name: one for name, one in observed.items() if not isinstance(one, LabError)}
        self._silent = {name: one for name, one in observed.items() if isinstance(one, LabError)}
        self._intent = intent
        if self._by == "kubernetes":
            self._intent = with_chosen_macs(intent, self._seen)
            self._seen = with_pod_names(intent, self._seen)
        self._beside = footprint(intent.topology, self._by)
        self._of: dict[str, tuple[Difference, ...]] = {}
        self._between = compare_between(self._intent, self._seen, by=self._by)

    def explain(self, flow: Flow, *, works: bool = True) -> Explained:
        """The request's path with the worst findings, or the first of several.

        If the request is not expected to work (``works``), a path that the Intent itself ends is
        right.
        """
        paths = walk(self._intent, flow)
        explained = [Explained(path, self._findings(path, works=works)) for path in paths]
        return next((one for one in explained if one.findings), explained[0])

    def everything(self) -> tuple[Finding, ...]:
        """What is wrong on every machine, and the machines that did not answer."""
        return (*(self._silence(name, -1) for name in self._silent), *self.elsewhere())

    def elsewhere(self) -> tuple[Finding, ...]:
        """Everything that is wrong on the observed machines, on any path."""
        every = [one for name in self._seen for one in self._own(name)]
        return tuple(one.at(-1) for one in _causes([*every, *self._between]))

    def _findings(self, path: Path, *, works: bool) -> tuple[Finding, ...]:
        met = sorted(self._met(path), key=lambda one: (_follows(one[1]), one[0]))
        causes = _causes([difference for _, difference in met])
        said = [one.at(hop) for hop, one in met if one in causes]
        for name in path.machines:
            if name in self._silent:
                hop = next(at for at, one in enumerate(path.hops) if one.machine == name)
                said.append(self._silence(name, hop))
        if path.end and works:
            said.append(_end(path))
        return tuple(said)

    def _met(self, path: Path) -> Iterator[tuple[int, Difference]]:
        every = [one for name in path.machines for one in self._own(name)]
        for difference in (*every, *self._between):
            hop = first_hop(difference, path)
            if hop is not None:
                yield hop, difference

    def _own(self, name: str) -> tuple[Difference, ...]:
        facts = self._seen.get(name)
        if facts is None:
            return ()
        if name not in self._of:
            machine = self._intent.machine(name)
            looked_at = self._looked_at(machine, facts)
            self._of[name] = compare_machine(looked_at, facts, by=self._by, beside=self._beside)
        return self._of[name]

    def _looked_at(self, machine: MachineIntent, facts: NodeFacts) -> MachineIntent:
        """The machine with only those of the lab's own pods that were observed."""
        if self._by == "kubernetes" or facts.pods is None:
            return machine
        seen = {one.name for one in facts.pods}
        return replace(machine, pods=tuple(one for one in machine.pods if one.name in seen))

    def _silence(self, name: str, hop: int) -> Finding:
        error = self._silent[name]
        return Finding(
            "machine-silent",
            "",
            name,
            "the machine itself",
            "its state can be read",
            f"{error.doing}: {error.happened}",
            "lab status",
            error.hint or "lab up",
            name,
            hop,
        )


def _end(path: Path) -> Finding:
    """A finding for a path that the Intent itself ends."""
    last = path.hops[-1]
    return Finding(
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
    )


def _follows(difference: Difference) -> bool:
    """Whether it is usually a consequence: a missing carrier, of the other end being down."""
    no_carrier = difference.kind == "link-down" and difference.observed.startswith("no carrier")
    return no_carrier or kinds()[difference.kind].follows


def _causes(every: Sequence[Difference]) -> list[Difference]:
    """The differences without those that follow from another one."""
    macs = {(one.node, _device(one)) for one in every if one.kind == "duplicate-mac"}
    cidrs = {one.node for one in every if one.kind == "duplicate-pod-cidr"}
    pods = {(one.node, _device(one)) for one in every if one.kind == "duplicate-address"}
    stopped = {one.node for one in every if one.kind == "proxy-stopped"}
    not_ready = any(one.kind in _NOT_READY for one in every)
    no_dns = any(one.kind == "dns-scaled-down" for one in every)
    return [
        one
        for one in every
        if not (one.kind == "link-mac" and (one.node, one.object.split()[-1]) in macs)
        and not (one.kind in _SAME_ADDRESS and one.node in cidrs)
        and not (one.kind == "pod-address" and (one.node, one.object) in pods)
        and not (one.kind in _OF_ENDPOINTS and (not_ready or one.node in stopped))
        and not (one.kind in _OF_ENDPOINTS and no_dns and one.object.startswith(_DNS))
    ]


def _device(difference: Difference) -> str:
    return difference.object.rpartition(" of ")[2]
