"""The terms of a scenario, and the records of a Service port and of an impaired link.

The agents on nodes import this module, where there is no pydantic.
"""

from __future__ import annotations

from typing import Literal

from lab._dataclass import dataclass

Os = Literal["linux", "windows"]
Role = Literal["control-plane", "worker", "services"]
"""``services``: not a node of the cluster, but the machine in front of it, with HAProxy and DNS."""
Protocol = Literal["tcp", "udp"]
ProxyMode = Literal["nftables", "iptables"]
Size = Literal["small", "large"]
PROTOCOLS: tuple[Protocol, ...] = ("tcp", "udp")
Policy = Literal["cluster", "local"]
"""Which backends a Service's packets may go to: any, or only those on the node they arrive at."""
Family = str
"""The name of a family of cells, such as ``"pod-pod"``: see :mod:`lab.scenario.families`."""
Refusal = Literal["timeout", "refused", "no-route", "no-such-name", "several-backends"]


@dataclass(frozen=True, slots=True)
class ServicePort:
    """One port of a Service, for one transport protocol or both."""

    name: str
    """Empty for the only port of a usual Service."""
    protocols: tuple[Protocol, ...]
    port: int
    target_port: int
    """Port of the pods behind it."""
    node_port: int | None
    """Port on every node; None if it has none."""


@dataclass(frozen=True, slots=True)
class Impairment:
    """What a link does to the packets of one direction."""

    delay: int = 0
    """Milliseconds."""
    loss: float = 0.0
    """Per cent of the packets, which are lost at random."""
    rate: int = 0
    """Bits a second; 0 without a limit."""
