"""A draft scenario with the usual keys, each with a comment. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Network

from lab._errors import UsageError
from lab._log import quantity
from lab.scenario.loader import HeldText, check
from lab.scenario.terms import Os, Role
from lab.scenario.versions import SUPPORTED
from lab.topology import registry
from lab.topology.registry import NODE_PREFIX, Topology

_HEAD = """\
# A draft by 'lab new'{source}. Change it, then:
#   lab validate {name}.yaml   every mistake, with its line
#   lab plan {name}.yaml       addresses, cells, and what it would cost
#   lab run {name}.yaml        bring it up, test it, take it down
# 'lab schema' prints every key there is, as JSON Schema for editors.
name: {name}
summary: {summary}

kubernetes:
  version: "{version}"  # one of {versions}
  pod_cidr: {pod_cidr}  # every node gets a part of it,
  node_prefix: {prefix}  # with this prefix length
  service_cidr: {service_cidr}
  dns_address: {dns_address}  # address of the cluster's DNS Service
{kubernetes}
network:
  cidr: {network}  # addresses of the nodes
  # mtu: 1500

"""
_TAIL = """
services:
  shared:  # a Service with several backends, each of which must answer
    - name: everyone
      backends: 2

# matrix:
#   min_throughput: 100mbit  # of a TCP stream, where 'lab test NAME -m throughput' asks for it
"""
_POD_CIDR, _SERVICE_CIDR = IPv4Network("10.244.0.0/16"), IPv4Network("10.96.0.0/16")
_NODE_NETWORKS = tuple(map(IPv4Network, ("192.0.2.0/24", "10.9.176.0/24", "172.31.255.0/24")))
"""Ranges for the nodes, the first that no other range overlaps."""
_DNS = 10
"""Number of the DNS Service's address in its range, as kubeadm has it."""


@dataclass(frozen=True, slots=True)
class NodeDraft:
    """Nodes of a draft that are alike."""

    name: str
    os: Os
    count: int = 1
    role: Role = "worker"


def draft_nodes(linux: int, windows: int) -> tuple[NodeDraft, ...]:
    """A control plane and workers; ``linux`` counts the control plane too."""
    return (
        NodeDraft("control", "linux", role="control-plane"),
        NodeDraft("worker", "linux", linux - 1),
        NodeDraft("win", "windows", windows),
    )


@dataclass(frozen=True, slots=True)
class ScenarioDraft:
    """What a draft says; the rest is the same in every draft."""

    name: str
    nodes: tuple[NodeDraft, ...]
    kind: str = "overlay"
    """Of the topology."""
    parameters: Mapping[str, object] = field(default_factory=dict)
    """Of the topology, with their values."""
    version: str = SUPPORTED[-1]
    pod_cidr: IPv4Network = _POD_CIDR
    node_prefix: int | None = None
    """None: the topology's default."""
    service_cidr: IPv4Network = _SERVICE_CIDR
    kubernetes: Mapping[str, str] = field(default_factory=dict)
    """Further keys of ``kubernetes``."""
    source: str = ""
    """File that it was begun from."""


def write_draft(draft: ScenarioDraft) -> str:
    """The text of a valid scenario.

    Raises UsageError when such a scenario would be invalid, for example its name or topology.
    """
    topology = registry.topologies().get(draft.kind)
    nodes = [group for group in draft.nodes if group.count]
    linux, windows = (
        sum(group.count for group in nodes if group.os == os and group.role != "services")
        for os in ("linux", "windows")
    )
    beside = f" and {quantity(windows, 'Windows node')}" if windows else ""
    prefix = topology.node_prefix if topology else NODE_PREFIX
    ranges = (draft.pod_cidr, draft.service_cidr)
    free = (network for network in _NODE_NETWORKS if not any(map(network.overlaps, ranges)))
    text = "".join(
        (
            _HEAD.format(
                source=f", begun from {draft.source}" if draft.source else "",
                name=draft.name,
                summary=f"{quantity(linux, 'Linux node')}{beside}, topology {draft.kind}",
                version=draft.version,
                versions=", ".join(SUPPORTED),
                pod_cidr=draft.pod_cidr,
                prefix=draft.node_prefix or prefix,
                service_cidr=draft.service_cidr,
                dns_address=draft.service_cidr.network_address + _DNS,
                kubernetes="".join(
                    f"  {key}: {json.dumps(value)}\n" for key, value in draft.kubernetes.items()
                ),
                network=next(free, _NODE_NETWORKS[0]),
            ),
            "topology:\n",
            f"  kind: {draft.kind}\n" if topology is None else "".join(_topology(topology, draft)),
            "\npods_per_node: 2\n\nnodes:\n",
            *(line for group in nodes for line in _group(group, draft.version)),
            topology.beside if topology else "",
            _TAIL,
        )
    )
    _, findings = check(HeldText(text, draft.name), topology_check=registry.check)
    if findings:
        message = "; ".join(finding.what for finding in findings)
        hint = "; ".join(finding.hint for finding in findings)
        raise UsageError(f"drafting scenario '{draft.name}'", message, hint)
    return text


def _topology(topology: Topology, draft: ScenarioDraft) -> Iterator[str]:
    yield f"  # {topology.title}\n  kind: {topology.kind}\n"
    for name, parameter in topology.parameters.items():
        value = draft.parameters.get(name, parameter.schema["default"])
        off = "" if name in draft.parameters else "# "
        yield f"  {off}{name}: {json.dumps(value)}  # {parameter.schema['description']}\n"


def _group(group: NodeDraft, version: str) -> Iterator[str]:
    first = f"  - name: {group.name}"
    several = f", {group.name}2 ..." if group.count > 1 else ""
    yield f"{first}  # {group.name}1{several}\n" if group.count > 1 else f"{first}\n"
    yield f"    os: {group.os}\n"
    if group.count > 1:
        yield f"    count: {group.count}\n"
    if group.role != "worker":
        yield f"    role: {group.role}\n"
        return
    for older in SUPPORTED[: SUPPORTED.index(version)][-1:]:
        yield f'    # version: "{older}"  # of the kubelet, if older\n'
    if group.os == "windows":
        yield "    # image: windows-server-2022  # for a real machine\n"
