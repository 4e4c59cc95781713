"""Cells between any two endpoints of a lab, for those that are in no family together. Pure.

No family says whether they reach each other, so the Intent does: the path of the request through
its tables, there and back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from lab._errors import UsageError
from lab.matrix.cell import Endpoint, Grid, GridPath, GridTarget
from lab.matrix.cells import PAIR, Matrix
from lab.matrix.choose import no_such_endpoint
from lab.matrix.endpoints import LabEndpoints, find_relation
from lab.plan.plan import Plan
from lab.scenario.reserved import POD_PORT
from lab.scenario.terms import Protocol
from lab.topology.intent import Intent
from lab.topology.path import Flow, Path
from lab.topology.subject import ServiceSubject
from lab.topology.walk import walk

_DIRECT = frozenset({"pod", "node", "client"})
_PARTS_OF_AN_ID = 4


def ends_of(cell_id: str) -> tuple[str, str] | None:
    """Source and target of the id of a cell that is in no family; None of any other text."""
    family, *ends = parts = cell_id.split("/")
    is_pair = family == PAIR.name and len(parts) == _PARTS_OF_AN_ID
    return (ends[0], ends[1]) if is_pair else None


@dataclass(frozen=True, slots=True)
class EveryEndpoint:
    """The endpoints of a lab by name, whichever families have them."""

    intent: Intent
    lab: LabEndpoints
    senders: Mapping[str, Endpoint]
    """Those that send probes: pods, nodes and the client."""
    targets: Mapping[str, Endpoint]
    """Those that answer: Services, NodePorts and names, too."""

    @classmethod
    def of(cls, plan: Plan, intent: Intent, families: Matrix) -> EveryEndpoint:
        """The endpoints of a lab, and all that its ``families`` have as targets."""
        lab = LabEndpoints.of(plan, intent)
        direct = (*lab.pods, *lab.nodes, *lab.clients)
        # a Service comes after the short name that is spelled the same
        targets = (*_targets(families), *direct, *lab.services.values())
        mute = {*lab.nodes} - {*lab.senders} if intent.existing else set()
        return cls(
            intent,
            lab,
            {end.name: end for end in direct if end not in mute},
            {end.name: end for end in targets},
        )

    def grid(self, source: str, target: str, action: str) -> Grid:
        """The cells from one endpoint to another.

        Raises UsageError, with the reason, if no probe can be sent between the two, and with the
        nearest names if there is no such endpoint.
        """
        if reason := self._refuse(source, target):
            raise UsageError(action, *reason)
        for name, known in ((source, self.senders), (target, self.targets)):
            if name not in known:
                why = f"there is no endpoint '{name}'"
                raise no_such_endpoint(action, name, why, known.values())
        sender, end = self.senders[source], self.targets[target]
        small = end.kind not in _DIRECT
        targets = (
            GridTarget(
                target,
                False,
                partial(self._path, protocol, end),
                only_small=small,
                protocol=protocol,
            )
            for protocol in self.lab.plan.protocols
        )
        lab = self.lab
        return Grid(PAIR.name, (sender,), tuple(targets), lab.variants, lab.small, lab.mtu)

    def _refuse(self, source: str, target: str) -> tuple[str, str] | None:
        """Why no probe can be sent between two endpoints that exist, and what to do; else None."""
        routers = {machine.name for machine in self.intent.machines if machine.kind == "router"}
        server = self.lab.dns_pod.name if self.lab.dns_pod else ""
        ends = {source, target}
        if not ends <= {*self.senders, *self.targets, *routers, server}:
            return None
        if source == target:
            return "source and target are the same: no packet leaves it", "take two endpoints"
        for end in sorted(ends):
            if end in routers:
                happened = f"'{end}' is a router: no program on it sends or answers probes"
                return happened, "take endpoints on both sides of it"
            if end == server:
                happened = f"'{end}' is the cluster's DNS server: it answers names, not probes"
                return happened, "take a name as the target, such as those of the family dns"
        if source not in self.senders:
            happened = f"'{source}' answers probes, but sends none"
            return happened, "take a pod, a node or the client as the source"
        kind = self.targets[target].kind
        return _INQUIRED[kind](source, target) if kind in _INQUIRED else None

    def _path(self, protocol: Protocol, target: Endpoint, source: Endpoint) -> GridPath:
        lab = self.lab
        if (source.kind, target.kind) == ("client", "node"):
            target = replace(target, address=lab.outside_addresses[target.name])
        flow = Flow(source.name, target.address, target.port, protocol)
        paths = walk(self.intent, flow)
        whole = [path for path in paths if not path.end]
        entry = target.name.partition(":")[0] if target.kind == "nodeport" else None
        return GridPath(
            source,
            target,
            find_relation(source, target),
            tuple(dict.fromkeys(_backend(path) or target.name for path in whole)),
            lab.sources.of_machine(source.name, target) if target.kind in _DIRECT else frozenset(),
            entry=entry,
            entry_os=lab.machines[entry].os if entry else None,
            sticky=len(whole) > 1 and self._is_sticky(whole[0]),
            unreachable="" if whole else paths[0].end,
        )

    def _is_sticky(self, path: Path) -> bool:
        """Whether the Service that the path passes has session affinity."""
        passed = {hop.subject for hop in path.request}
        return any(
            service.affinity is not None and ServiceSubject(service.name) in passed
            for service in self.lab.special
        )


_INQUIRED: Mapping[str, Callable[[str, str], tuple[str, str]]] = {
    "name": lambda source, target: (
        f"'{source}' does not ask the DNS server that answers '{target}'",
        "take a pod as the source",
    ),
    "api": lambda source, target: (
        f"'{source}' cannot tell which API server answers at '{target}'",
        "take a Linux pod or another Linux node of the cluster as the source",
    ),
}
"""Kinds of targets that only some sources can ask: why another one cannot, and what to do."""


def _targets(families: Matrix) -> Iterator[Endpoint]:
    for grid in families.grids:
        for target in grid.targets:
            asking = next((end for end in grid.sources if end.name not in target.excluded), None)
            if asking is not None:
                yield target.path(asking).target


def _backend(path: Path) -> str:
    """The name by which the backend of a Service answers; empty without a Service."""
    port = path.request[-1].packet.port
    return path.backend or "" if port == POD_PORT else f"{path.backend}:{port}"
