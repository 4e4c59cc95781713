"""From the checked models to the frozen data that the rest of the product reads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from lab.scenario.findings import Key
from lab.scenario.scenario import (
    Kubernetes,
    Limit,
    Match,
    MatrixChoice,
    Network,
    Nic,
    NodeGroup,
    Scenario,
    SharedService,
    TopologyChoice,
)
from lab.scenario.schema import Expected, ScenarioFile, When
from lab.scenario.schema import NodeGroup as NodeGroupModel

T = TypeVar("T")

LineOf = Callable[[Key], int]


def scenario(model: ScenarioFile, path: Path, line_of: LineOf) -> Scenario:
    """The scenario of a file; ``line_of`` gives the line of a key path."""
    return Scenario(
        name=model.name,
        summary=model.summary,
        kubernetes=Kubernetes(**dict(model.kubernetes)),
        network=Network(**dict(model.network)),
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
            _once(model.matrix.families), _once(model.matrix.protocols), _once(model.matrix.sizes)
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
    )


def _group(group: NodeGroupModel, line: int) -> NodeGroup:
    return NodeGroup(
        name=group.name,
        os=group.os,
        role=group.role,
        count=group.count,
        kubelet=group.kubelet,
        pods=group.pods,
        address=group.address,
        pod_cidr=group.pod_cidr,
        version=group.version,
        image=group.image,
        memory_mib=group.memory,
        vcpus=group.vcpus,
        disk_gib=group.disk,
        nics=tuple(Nic(nic.network, nic.address, nic.mac) for nic in group.nics),
        hypervisor=group.hypervisor,
        line=line,
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
        target_os=when.target_os,
        relation=when.relation,
        entry=when.entry,
        name_form=when.name_form,
    )


def _once(choices: list[T]) -> tuple[T, ...]:
    return tuple(dict.fromkeys(choices))
