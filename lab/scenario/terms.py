"""The words of a scenario, and the one record of Services that nodes have too.

The agents on nodes import them, where there is no pydantic.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Os = Literal["linux", "windows"]
Role = Literal["control-plane", "worker", "services"]
"""``services``: no node of the cluster, but the machine in front of it: HAProxy, DNS."""
Protocol = Literal["tcp", "udp"]
ProxyMode = Literal["nftables", "iptables"]
Size = Literal["small", "large"]
PROTOCOLS: tuple[Protocol, ...] = ("tcp", "udp")
Policy = Literal["cluster", "local"]
"""Which backends a Service's packets may go to: any, or those on the node that they come to."""
Family = str
"""The name of a family of cells, such as ``"pod-pod"``: see :mod:`lab.scenario.families`."""
Refusal = Literal["timeout", "refused", "no-route", "no-such-name", "several-backends"]


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
