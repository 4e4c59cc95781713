"""A network that OVN makes: what its northbound database must hold, and what a chassis is.

The words are OVN's own (ovn-nb(5), ovn-controller(8)). Addresses and MACs are text, as in the
rest of the Intent. Pure data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

GENEVE_PORT = 6081
"""RFC 8926; Open vSwitch's own default."""


@dataclass(frozen=True, slots=True)
class Chassis:
    """A node that takes part: what its Open vSwitch must be told for OVN."""

    name: str
    """The ``system-id`` by which the southbound database knows it."""
    encapsulation: Literal["geneve"]
    local: str
    """Address of its end of every tunnel."""
    integration: str
    """The bridge that pods' ports are plugged into, which OVN programs."""
    datapath: Literal["netdev"] = "netdev"
    """``netdev``: in user space, by ovs-vswitchd itself, without a module of the kernel."""


@dataclass(frozen=True, slots=True)
class LogicalPort:
    """A port of a logical switch; it is up where a chassis has a device with its name."""

    name: str
    mac: str
    address: str
    chassis: str
    device: str
    """Of that chassis' integration bridge."""


@dataclass(frozen=True, slots=True)
class LogicalSwitch:
    """One node's pods, and the port by which the router is joined to them."""

    name: str
    subnet: str
    gateway: str
    """The router's address on it, with prefix length."""
    gateway_mac: str
    ports: tuple[LogicalPort, ...]


@dataclass(frozen=True, slots=True)
class LogicalRoute:
    """Packets from ``source`` that are for none of the switches go to ``via``."""

    source: str
    """A prefix."""
    via: str
    """Address of a logical port, where a chassis' own kernel takes over."""
    gateway: str
    """Name of that chassis."""


@dataclass(frozen=True, slots=True)
class LogicalNetwork:
    """The whole of it: one router, a switch a node, and Services as load balancers."""

    central: str
    """The machine that runs both databases and ovn-northd."""
    southbound: int
    """TCP port there, where every chassis asks."""
    router: str
    switches: tuple[LogicalSwitch, ...]
    routes: tuple[LogicalRoute, ...]
    hairpin: str
    """What a pod that reaches itself through a Service sees as the source."""

    def ports(self) -> tuple[LogicalPort, ...]:
        """Every port that a chassis has, switch by switch."""
        return tuple(port for switch in self.switches for port in switch.ports)

    def gateways(self) -> dict[str, str]:
        """The chassis by which the packets of each switch leave, by the switch's name."""
        by_source = {route.source: route.gateway for route in self.routes}
        return {
            switch.name: by_source[switch.subnet]
            for switch in self.switches
            if switch.subnet in by_source
        }
