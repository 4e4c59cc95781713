"""What every family of cells is made from. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from lab.matrix.cell import Endpoint, Relation
from lab.matrix.endpoints import Endpoints, endpoints
from lab.matrix.grid import Target, Variant
from lab.matrix.sources import Sources
from lab.plan.plan import Plan
from lab.topology.intent import Intent, MachineIntent, ServicesNode
from lab.topology.translation import HeadlessService, Service

Ends = tuple[tuple[Endpoint, ...], Iterator[Target]]
"""Sources and targets of a family."""


@dataclass(frozen=True, slots=True)
class LabEnds:
    """The endpoints of a lab, and how they are asked."""

    plan: Plan
    ends: Endpoints
    sources: Sources
    variants: tuple[Variant, ...]
    small: tuple[Variant, ...]
    mtu: int
    namespace: str
    """Of all Services but the cluster's own."""
    machines: Mapping[str, MachineIntent]
    """By name."""
    special: tuple[Service, ...]
    headless: tuple[HeadlessService, ...]
    front: ServicesNode | None

    @classmethod
    def of(cls, plan: Plan, intent: Intent) -> LabEnds:
        """The endpoints of a lab, and how they are asked."""
        return cls(
            plan=plan,
            ends=endpoints(plan, intent),
            sources=Sources(intent),
            variants=tuple((p, s, f"{p}-{s}") for p in plan.protocols for s in plan.sizes),
            small=tuple((p, "small", f"{p}-small") for p in plan.protocols),
            mtu=intent.pod_mtu,
            namespace=_namespace(intent),
            machines={machine.name: machine for machine in intent.machines},
            special=_special(plan, intent),
            headless=intent.headless,
            front=intent.services_node,
        )


def _namespace(intent: Intent) -> str:
    searched = (pod.resolver.search for machine in intent.machines for pod in machine.pods)
    first = next((search[0] for search in searched if search), "default")
    return first.partition(".")[0]


def _special(plan: Plan, intent: Intent) -> tuple[Service, ...]:
    """As the Intent has them, which knows where pods really are once it is bound to a cluster."""
    wanted = {service.name for service in plan.services if service.purpose == "special"}
    translations = (machine.translation for machine in intent.machines if machine.translation)
    services = next(translations).services if wanted else ()
    return tuple(service for service in services if service.name in wanted)


def between(source: Endpoint, backend: Endpoint) -> Relation:
    """Where the one that answers stands, seen from the one that asks."""
    if source.node is None or backend.node is None:
        return "outside"
    if source.kind == "pod" and source.name == backend.name:
        return "self"
    return "same-node" if source.node == backend.node else "other-node"
