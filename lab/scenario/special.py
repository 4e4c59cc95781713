"""What a special Service shows: which families of cells it has. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from lab.scenario.names import pod_names
from lab.scenario.reserved import POD_PORT, SERVICE_PORT
from lab.scenario.scenario import (
    OF_SERVICES_NODE,
    PROTOCOLS,
    USUAL_FAMILIES,
    Family,
    NodeGroup,
    Scenario,
    ServicePort,
    SpecialService,
)


def families(services: Iterable[SpecialService]) -> tuple[Family, ...]:
    """The usual families, and those of the special Services, each once."""
    special = (family for service in services for family in shown_by(service))
    return tuple(dict.fromkeys((*USUAL_FAMILIES, *special)))


def shown_by(service: SpecialService) -> Iterator[Family]:
    """The families that a Service has cells in; none where it is as usual."""
    if service.headless:
        yield "headless"
        return
    if not service.backends:
        yield "no-endpoints"
        return
    if service.affinity is not None:
        yield "affinity"
    if service.outside == "local":
        yield "nodeport-local"
    if service.inside == "local":
        yield "cluster-ip-local"
    if own_ports(service.ports):
        yield "ports"
    if service.health_check:
        yield "health-check"


def own_ports(ports: Sequence[ServicePort]) -> bool:
    """Whether a Service has other ports than the usual one."""
    return len(ports) > 1 or any(
        (one.port, one.target_port, one.protocols) != (SERVICE_PORT, POD_PORT, PROTOCOLS)
        for one in ports
    )


def left_of(scenario: Scenario, nodes: Iterable[NodeGroup]) -> tuple[SpecialService, ...]:
    """The special Services where no other nodes are left.

    One whose backends are all gone goes too: without any it would be another one.
    """
    pods = {name for group in nodes for name in pod_names(scenario, group)}
    found = []
    for service in scenario.special_services:
        named = tuple(pod for pod in service.pods if pod in pods)
        number = len(named) if service.pods else min(service.backends, len(pods))
        if number or not service.backends:
            found.append(replace(service, pods=named, backends=number))
    return tuple(found)


def still_shown(asked: Iterable[Family], services: Iterable[SpecialService]) -> tuple[Family, ...]:
    """Of the families that are asked for, those that these Services leave cells in.

    Those of a services node are none of theirs.
    """
    there = {*families(services), *OF_SERVICES_NODE}
    return tuple(family for family in asked if family in there)
