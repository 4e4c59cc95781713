"""From the checked models to the frozen data that the rest of the product reads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from lab.scenario.findings import Key
from lab.scenario.reserved import router_address
from lab.scenario.scenario import (
    Family,
    Hypervisors,
    Kubernetes,
    Limit,
    Match,
    MatrixChoice,
    Network,
    Nic,
    NodeGroup,
    Scenario,
    ServicePort,
    SharedService,
    SpecialService,
    StaticRoute,
    TopologyChoice,
)
from lab.scenario.schema import Expected, ScenarioFile, When
from lab.scenario.schema import NodeGroup as NodeGroupModel
from lab.scenario.service_schema import Port as PortModel
from lab.scenario.service_schema import SpecialService as SpecialModel
from lab.scenario.special import families

T = TypeVar("T")

LineOf = Callable[[Key], int]


def scenario(model: ScenarioFile, path: Path, line_of: LineOf) -> Scenario:
    """The scenario of a file; ``line_of`` gives the line of a key path."""
    special = tuple(_special(one) for one in model.services.special)
    return Scenario(
        name=model.name,
        summary=model.summary,
        kubernetes=Kubernetes(**dict(model.kubernetes)),
        network=_network(model),
        topology=TopologyChoice(model.topology.kind, dict(model.topology.model_extra or {})),
        pods_per_node=model.pods_per_node,
        nodes=tuple(
            _group(group, line_of(("nodes", index))) for index, group in enumerate(model.nodes)
        ),
        node_ports=model.services.node_ports,
        shared_services=tuple(
            SharedService(shared.name, shared.backends) for shared in model.services.shared
        ),
        matrix=MatrixChoice(
            _families(model, special),
            _once(model.matrix.protocols),
            _once(model.matrix.sizes),
        ),
        exceptions=tuple(
            _limit(
                f"{model.name}-exception-{number}",
                expected,
                f"{path.name}, line {line_of(('exceptions', number - 1))}",
            )
            for number, expected in enumerate(model.exceptions, start=1)
        ),
        path=str(path),
        special_services=special,
        hypervisors=Hypervisors(**dict(model.hypervisors)) if model.hypervisors else None,
    )


def _network(model: ScenarioFile) -> Network:
    network = model.network
    router = network.router or router_address(network.cidr)
    return Network(network.cidr, network.mtu, router, network.domain)


def _families(model: ScenarioFile, special: tuple[SpecialService, ...]) -> tuple[Family, ...]:
    """Those asked for; left out, all that the lab has cells of."""
    if model.matrix.families is not None:
        return _once(model.matrix.families)
    serves = any(group.role == "services" for group in model.nodes)
    of_front: tuple[Family, ...] = ("node-names", "api") if serves else ()
    if "tcp" not in model.matrix.protocols:
        of_front = tuple(one for one in of_front if one != "api")
    return (*families(special), *of_front)


def _group(group: NodeGroupModel, line: int) -> NodeGroup:
    return NodeGroup(
        name=group.name,
        os=group.os,
        role=group.role,
        count=group.count,
        kubelet=group.kubelet and group.role != "services",
        pods=group.pods,
        address=group.address,
        pod_cidr=group.pod_cidr,
        version=group.version,
        image=group.image,
        memory_mib=group.memory,
        vcpus=group.vcpus,
        disk_gib=group.disk,
        nics=tuple(Nic(nic.network, nic.address, nic.mac) for nic in group.nics),
        routes=tuple(StaticRoute(route.to, route.via) for route in group.routes),
        hypervisor=group.hypervisor,
        line=line,
    )


def _special(model: SpecialModel) -> SpecialService:
    pods = tuple(model.pods or ())
    return SpecialService(
        name=model.name,
        backends=(len(pods) or 1) if model.backends is None else model.backends,
        pods=pods,
        ports=tuple(_port(port) for port in model.ports or ()),
        node_port=model.node_port,
        headless=model.headless,
        affinity=model.affinity,
        inside=model.internal_traffic,
        outside=model.external_traffic,
        health_check=model.health_check,
    )


def _port(model: PortModel) -> ServicePort:
    return ServicePort(
        model.name or "", _once(model.protocols), model.port, model.target_port, model.node_port
    )


def _limit(name: str, expected: Expected, source: str) -> Limit:
    return Limit(name, _match(expected.when), expected.fails, expected.reason, source)


def _match(when: When) -> Match:
    return Match(
        families=None if when.families is None else frozenset(when.families),
        protocol=when.protocol,
        size=when.size,
        source=when.source,
        source_kind=when.source_kind,
        source_os=when.source_os,
        target=when.target,
        target_kind=when.target_kind,
        target_os=when.target_os,
        relation=when.relation,
        entry=when.entry,
        entry_node=when.entry_node,
        name_form=when.name_form,
        refusal=when.refusal,
    )


def _once(choices: list[T]) -> tuple[T, ...]:
    return tuple(dict.fromkeys(choices))
