"""The words of a scenario, and the one record of Services that nodes have too.

The agents on nodes import them, where there is no pydantic.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

Os = Literal["linux", "windows"]
Role = Literal["control-plane", "worker", "services"]
"""``services``: no node of the cluster, but the machine in front of it: HAProxy, DNS."""
Protocol = Literal["tcp", "udp"]
ProxyMode = Literal["nftables", "iptables"]
Size = Literal["small", "large"]
PROTOCOLS: tuple[Protocol, ...] = ("tcp", "udp")
Policy = Literal["cluster", "local"]
"""Which backends a Service's packets may go to: any, or those on the node that they come to."""
Family = Literal[
    "pod-pod",
    "pod-service",
    "hairpin",
    "node-service",
    "nodeport",
    "node-pod",
    "pod-node",
    "pod-external",
    "dns",
    "affinity",
    "nodeport-local",
    "cluster-ip-local",
    "ports",
    "no-endpoints",
    "headless",
    "health-check",
    "node-names",
    "api",
]
Refusal = Literal["timeout", "refused", "no-route", "no-such-name", "several-backends"]

FAMILIES: tuple[Family, ...] = get_args(Family)
"""All of them, in their order; those after the usual are for special Services of a kind, and the
last two for a services node."""
USUAL_FAMILIES: tuple[Family, ...] = FAMILIES[: FAMILIES.index("dns") + 1]
"""Those that every lab has cells of."""

OF_SERVICES_NODE: frozenset[Family] = frozenset({"node-names", "api"})
"""Families that only a lab with a services node has."""


@dataclass(frozen=True, slots=True)
class ServicePort:
    """One port of a Service, for one transport protocol or for both alike."""

    name: str
    """Empty for the only port of a usual Service."""
    protocols: tuple[Protocol, ...]
    port: int
    target_port: int
    """Of the pods behind it."""
    node_port: int | None
    """On every node; None where it has none."""
