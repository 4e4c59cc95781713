"""A scenario as the text of a file: what :mod:`lab.scenario.loader` reads back as the same."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from lab.scenario.scenario import Limit, NodeGroup, Scenario, ServicePort, SpecialService

_LEFT_OUT: tuple[object, ...] = (None, [], {})


def to_yaml(scenario: Scenario, *comment: str) -> str:
    """The file, with those lines of comment at its head.

    Every value is written in JSON's form, which YAML takes as it is, one key of the top and one
    node a line; a text is always in quotes, so that no version becomes a number.
    """
    lines = [f"# {_one_line(line)}" if line else "#" for line in comment]
    for key, value in _document(scenario).items():
        if value in _LEFT_OUT:
            continue
        if isinstance(value, list):
            lines += [f"{key}:", *(f"  - {_inline(entry)}" for entry in value)]
        elif isinstance(value, dict):
            lines += [f"{key}:", *(f"  {name}: {_inline(one)}" for name, one in value.items())]
        else:
            lines.append(f"{key}: {_inline(value)}")
    return "\n".join(lines) + "\n"


def _one_line(text: str) -> str:
    """What can stand in a comment: nothing that ends a line, or that no such file may hold."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def _inline(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _document(scenario: Scenario) -> dict[str, Any]:
    kubernetes, network = scenario.kubernetes, scenario.network
    hypervisors = scenario.hypervisors
    first, last = scenario.node_ports
    return {
        "name": scenario.name,
        "summary": scenario.summary,
        "kubernetes": {
            "version": kubernetes.version,
            "pod_cidr": str(kubernetes.pod_cidr),
            "node_prefix": kubernetes.node_prefix,
            "service_cidr": str(kubernetes.service_cidr),
            "dns_address": str(kubernetes.dns_address),
            "domain": kubernetes.domain,
            "proxy_mode": kubernetes.proxy_mode,
        },
        "network": {
            "cidr": str(network.cidr),
            "mtu": network.mtu,
            "router": str(network.router),
            "domain": network.domain,
        },
        "hypervisors": {"count": hypervisors.count, "mtu": hypervisors.mtu} if hypervisors else {},
        "topology": {"kind": scenario.topology.kind, **scenario.topology.parameters},
        "pods_per_node": scenario.pods_per_node,
        "nodes": [_node(group) for group in scenario.nodes],
        "services": _without_nothing(
            {
                "node_ports": f"{first}-{last}",
                "shared": [
                    {"name": shared.name, "backends": shared.backends}
                    for shared in scenario.shared_services
                ],
                "special": [_special(special) for special in scenario.special_services],
            }
        ),
        "matrix": {
            "families": list(scenario.matrix.families),
            "protocols": list(scenario.matrix.protocols),
            "sizes": list(scenario.matrix.sizes),
        },
        "exceptions": [_exception(limit) for limit in scenario.exceptions],
    }


def _node(group: NodeGroup) -> dict[str, Any]:
    return _without_nothing(
        {
            "name": group.name,
            "os": group.os,
            "role": group.role,
            "count": group.count if group.count > 1 else None,
            "kubelet": None if group.kubelet or group.role == "services" else False,
            "pods": group.pods,
            "address": _text(group.address),
            "pod_cidr": _text(group.pod_cidr),
            "version": group.version,
            "image": group.image,
            "memory": f"{group.memory_mib}MiB" if group.memory_mib else None,
            "vcpus": group.vcpus,
            "disk": f"{group.disk_gib}GiB" if group.disk_gib else None,
            "nics": [
                _without_nothing(
                    {"network": nic.network, "address": _text(nic.address), "mac": nic.mac}
                )
                for nic in group.nics
            ],
            "routes": [{"to": str(one.to), "via": str(one.via)} for one in group.routes],
            "hypervisor": group.hypervisor,
        }
    )


def _special(service: SpecialService) -> dict[str, Any]:
    return _without_nothing(
        {
            "name": service.name,
            "backends": None if service.pods else service.backends,
            "pods": list(service.pods),
            "ports": [_port(port) for port in service.ports],
            "node_port": service.node_port or None,
            "headless": service.headless or None,
            "affinity": service.affinity,
            "internal_traffic": service.inside,
            "external_traffic": service.outside,
            "health_check": service.health_check or None,
        }
    )


def _port(port: ServicePort) -> dict[str, Any]:
    return _without_nothing(
        {
            "name": port.name or None,
            "port": port.port,
            "protocols": list(port.protocols),
            "target_port": port.target_port,
            "node_port": port.node_port,
        }
    )


def _exception(limit: Limit) -> dict[str, Any]:
    return {"when": dict(_when(limit)), "fails": limit.refusal, "reason": limit.reason}


def _when(limit: Limit) -> Iterator[tuple[str, Any]]:
    for field in fields(limit.when):
        value = getattr(limit.when, field.name)
        if value is not None:
            yield field.name, sorted(value) if isinstance(value, frozenset) else value


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _without_nothing(found: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in found.items() if value not in _LEFT_OUT}
