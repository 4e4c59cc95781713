"""The scenario of a lab in the shape of an existing cluster. Pure.

What the scenario cannot say is left out: several ranges, nodes of several networks, their taints.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from ipaddress import IPv4Address, IPv4Network

from lab.machines.attached.record import ClusterFound, NodeFound
from lab.scenario.versions import SUPPORTED

_KINDS = {"flannel": "overlay", "Calico": "calico-vxlan", "OVN-Kubernetes": "ovn"}
_NODE_NETWORK = IPv4Network("192.168.10.0/24")
_POD_RANGE = IPv4Network("10.244.0.0/16")
"""Used where the cluster's own range cannot be."""
_WIDEST = 8
"""Prefix of the widest private range."""
_LONGEST_LINUX, _LONGEST_WINDOWS = 40, 15


def to_scenario(name: str, cluster: ClusterFound) -> str:
    """The scenario as YAML."""
    return "".join(f"{line}\n" for line in _lines(name, cluster))


def _lines(name: str, cluster: ClusterFound) -> Iterator[str]:
    kind = _KINDS.get(cluster.cni, "overlay")
    yield f"# A lab in the shape of {cluster.server}, written by 'lab attach --write'."
    if cluster.cni not in _KINDS:
        cni = cluster.cni or "unknown"
        yield f"# Its network, {cni}, has no topology here: an overlay stands for it."
    yield f"name: {json.dumps(_label(name, _LONGEST_LINUX))}"
    yield f"summary: in the shape of the cluster at {json.dumps(cluster.server)[1:-1]}"
    yield "kubernetes:"
    minor = ".".join(cluster.version.lstrip("v").split(".")[:2])
    yield f'  version: "{minor if minor in SUPPORTED else SUPPORTED[-1]}"'
    services = IPv4Network(next(iter(cluster.service_cidrs), "10.96.0.0/16"))
    pods, node_prefix = _choose_pod_range(cluster, services)
    yield f"  pod_cidr: {pods}"
    yield f"  node_prefix: {node_prefix}"
    yield f"  service_cidr: {services}"
    if cluster.dns and IPv4Address(cluster.dns.address) in services:
        yield f"  dns_address: {cluster.dns.address}"
    yield f"  proxy_mode: {'nftables' if cluster.proxy_mode == 'nftables' else 'iptables'}"
    yield "network:"
    yield f"  cidr: {_node_network(cluster.nodes)}"
    yield f"topology: {{kind: {kind}}}"
    yield "nodes:"
    taken: set[str] = set()
    network = _node_network(cluster.nodes)
    for node in cluster.nodes:
        longest = _LONGEST_WINDOWS if node.os == "windows" else _LONGEST_LINUX
        label = _unique(_label(node.name, longest), taken)
        role = ", role: control-plane" if node.role == "control-plane" else ""
        at = f", address: {node.addresses[0]}" if _is_in(node.addresses[0], network) else ""
        yield f"  - {{name: {json.dumps(label)}, os: {node.os}{role}{at}}}"
    if not any(node.role == "control-plane" for node in cluster.nodes):
        yield "  - {name: control-plane, os: linux, role: control-plane}  # the cluster's is hidden"


def _choose_pod_range(cluster: ClusterFound, services: IPv4Network) -> tuple[IPv4Network, int]:
    """A range that has a part for each node and for a control plane, and the prefix of each part.

    Where only the nodes' own ranges are known, it is the one that has them all.
    """
    own = {IPv4Network(node.pod_cidr) for node in cluster.nodes if node.pod_cidr}
    prefix = min((network.prefixlen for network in own), default=24)
    ranges = [IPv4Network(text) for text in cluster.pod_cidrs]
    whole = ranges[0] if ranges else _POD_RANGE
    if own and own.issuperset(ranges):
        while not all(network.subnet_of(whole) for network in own):
            whole = whole.supernet()
    while 2 ** max(0, prefix - whole.prefixlen) <= len(cluster.nodes) and whole.prefixlen:
        whole = whole.supernet()
    if whole.prefixlen < _WIDEST or whole.overlaps(services):
        return _POD_RANGE, 24
    return whole, prefix


def _node_network(nodes: Iterable[NodeFound]) -> IPv4Network:
    """The /24 of the nodes' addresses; another one if they are in several."""
    networks = {IPv4Network(f"{node.addresses[0]}/24", strict=False) for node in nodes}
    return networks.pop() if len(networks) == 1 else _NODE_NETWORK


def _is_in(address: str, network: IPv4Network) -> bool:
    """Whether a node of a lab can have the address: the first ones are the router's."""
    return IPv4Address(address) in network and IPv4Address(address) not in {
        network[0],
        network[1],
        network[-1],
    }


def _label(text: str, longest: int) -> str:
    return (
        re.sub(r"[^a-z0-9]+", "-", text.lower().partition(".")[0]).strip("-")[:longest].strip("-")
        or "cluster"
    )


def _unique(label: str, taken: set[str]) -> str:
    name, number = label, 1
    while name in taken:
        number += 1
        name = f"{label[:12]}-{number}"
    taken.add(name)
    return name
