"""What was found out about a cluster, as lines for people. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from lab._log import quantity
from lab.machines.attached import design
from lab.machines.attached.record import PODS, AttachedRecord

_FEW = 6
"""How many nodes, and ranges, are printed one by one."""


def summarise(record: AttachedRecord) -> Iterator[str]:
    """What was found, and what is going to be done."""
    cluster = record.cluster
    at = f"context '{record.address.context}', {cluster.server}"
    yield f"cluster: {at}, Kubernetes {cluster.version}"
    yield from _list_nodes(record)
    for name, reason in cluster.others[:_FEW]:
        yield f"  left out: {name}: {reason}"
    if len(cluster.others) > _FEW:
        yield f"  left out: {len(cluster.others) - _FEW} more"
    yield f"network: {f'{cluster.cni} ({cluster.cni_seen})' if cluster.cni else 'unknown'}"
    for title, ranges, origin in (
        ("pods", cluster.pod_cidrs, cluster.pod_cidrs_from),
        ("Services", cluster.service_cidrs, cluster.service_cidrs_from),
    ):
        if ranges:
            more = f" and {len(ranges) - _FEW} more" if len(ranges) > _FEW else ""
            yield f"  {title}: {', '.join(ranges[:_FEW])}{more} (from {origin})"
    if cluster.dns:
        dns = cluster.dns
        yield f"  DNS: {dns.namespace}/{dns.service}, {dns.address}, domain {dns.domain}"
    if cluster.proxy_mode:
        yield f"  kube-proxy: {cluster.proxy_mode}"
    for subject, reason in cluster.unknown:
        yield f"  unknown: {subject}: {reason}"
    windows = sum(node.os == "windows" for node in cluster.nodes)
    left_out = (
        *(("nodeport ('--no-node-ports')",) if not record.terms.node_ports else ()),
        *(("node-pod, node-service (without '--host-network')",)
          if not record.terms.host_network else ()),
        *(("probes from Windows nodes (they take HostProcess pods)",)
          if record.terms.host_network and windows else ()),
        *(("dns (no DNS Service was found)",) if cluster.dns is None else ()),
    )  # fmt: skip
    yield f"families: {', '.join(design.families(record))}"
    for family in left_out:
        yield f"  left out: {family}"
    further = record.terms.host_network + record.terms.debug_pods
    made = len(cluster.nodes) * (PODS + further) - windows * further
    privileged = ", one on each Linux node privileged" if record.terms.debug_pods else ""
    yield (
        f"will create {quantity(made, 'pod')}{privileged} and their Services in namespace "
        f"'{record.namespace}', at most {record.terms.rate} connections a second from each node"
    )


def _list_nodes(record: AttachedRecord) -> Iterator[str]:
    nodes = record.cluster.nodes
    if len(nodes) > _FEW:
        kinds = Counter((node.os, node.build, node.version) for node in nodes)
        for (system, build, version), number in sorted(kinds.items()):
            yield f"  {quantity(number, 'node')}: {system}, {build}, kubelet {version}"
        nodes = tuple(node for node in nodes if node.remarks or node.taints)[:_FEW]
    for node in nodes:
        beside = (*node.remarks, *(f"taint {taint}" for taint in node.taints))
        words = f" ({'; '.join(beside)})" if beside else ""
        addresses = node.addresses[0]
        yield f"  {node.name}: {node.os}, {node.build}, kubelet {node.version}, {addresses}{words}"
