"""A network that OVN provides: the content of its northbound database, and chassis. Pure data.

The terms are OVN's own (ovn-nb(5), ovn-controller(8)). Addresses and MACs are text, as in the rest
of the Intent.
"""

from __future__ import annotations

from typing import Literal

from lab._dataclass import dataclass

GENEVE_PORT = 6081
"""RFC 8926; also Open vSwitch's default."""


@dataclass(frozen=True, slots=True)
class Chassis:
    """A node that takes part: the OVN settings of its Open vSwitch."""

    name: str
    """Its ``system-id`` in the southbound database."""
    encapsulation: Literal["geneve"]
    local: str
    """Local address of its tunnels."""
    integration: str
    """The bridge that pods' ports are plugged into, programmed by OVN."""
    datapath: Literal["netdev"] = "netdev"
    """``netdev``: in user space, by ovs-vswitchd itself, without a kernel module."""


@dataclass(frozen=True, slots=True)
class LogicalPort:
    """A port of a logical switch; it is up if a chassis has a device with its name."""

    name: str
    mac: str
    address: str
    chassis: str
    device: str
    """Port of that chassis' integration bridge."""


@dataclass(frozen=True, slots=True)
class LogicalSwitch:
    """The switch of one node's pods, and the port that connects the router to them."""

    name: str
    subnet: str
    gateway: str
    """The router's address on it, with prefix length."""
    gateway_mac: str
    ports: tuple[LogicalPort, ...]


@dataclass(frozen=True, slots=True)
class LogicalRoute:
    """Sends packets from ``source`` that are for none of the switches to ``via``."""

    source: str
    """A prefix."""
    via: str
    """Address of a logical port behind which a chassis' own kernel takes over."""
    gateway: str
    """Name of that chassis."""


@dataclass(frozen=True, slots=True)
class LogicalNetwork:
    """The whole logical network: one router, a switch per node, and Services as load balancers."""

    central: str
    """The machine that runs both databases and ovn-northd."""
    southbound: int
    """TCP port of the southbound database, to which every chassis connects."""
    router: str
    switches: tuple[LogicalSwitch, ...]
    routes: tuple[LogicalRoute, ...]
    hairpin: str
    """Source address that a pod sees when it reaches itself through a Service."""

    def ports(self) -> tuple[LogicalPort, ...]:
        """Every port on a chassis, switch by switch."""
        return tuple(port for switch in self.switches for port in switch.ports)

    def gateways(self) -> dict[str, str]:
        """The chassis by which each switch's packets leave, by the switch's name."""
        by_source = {route.source: route.gateway for route in self.routes}
        return {
            switch.name: by_source[switch.subnet]
            for switch in self.switches
            if switch.subnet in by_source
        }
