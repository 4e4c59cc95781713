"""Whether the node forwards, and where to: settings, routes and neighbours."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Network, ip_interface

from lab.explain.check import (
    HNS_NETWORKS,
    RESTART_FLANNEL,
    Check,
    Kind,
    Look,
    OnWindows,
    Wanted,
)
from lab.facts.difference import Difference
from lab.facts.items import make_neighbour, make_route, make_setting
from lab.facts.translations import overlap, within
from lab.topology import bird
from lab.topology.commands import format_route
from lab.topology.intent import MachineIntent, Neighbour, Route
from lab.topology.path import Hop, Path
from lab.topology.routing import bare, covers
from lab.topology.subject import FORWARDING, NeighbourSubject, RouteSubject

_EVERYWHERE = "0.0.0.0/0"
_NET_ROUTES = (
    "Get-NetRoute -AddressFamily IPv4 | "
    "Format-Table -Property DestinationPrefix, NextHop, InterfaceAlias"
)
"""A format of its own: in one output, PowerShell gives all objects the columns of the first."""
_DEFAULT = "default"


def _at_route(difference: Difference, hop: Hop, _: Path) -> bool:
    if hop.kind != "route" or hop.machine != difference.node:
        return False
    route = difference.subject
    return isinstance(route, RouteSubject) and covers(route.prefix, hop.packet.target)


def _wanted_route(look: Look, route: Route) -> Wanted:
    learned = route.by is not None
    shows, mends = f"ip route show {route.destination}", ""
    if route.by == bird.NAME:  # those of its sessions
        control = look.footprint.control if look.intended.kubelet else bird.Control()
        shows, mends = control.ask("show protocols"), control.ask("enable all")
    return Wanted(
        "wrong-learned-route" if learned else "wrong-route",
        RouteSubject(route.destination),
        make_route(format_route(route)),
        "learned-route-missing" if learned else "route-missing",
        shows=shows,
        mends=mends,
        windows=_own_route(look, route),
    )


def _own_route(look: Look, route: Route) -> OnWindows | None:
    """The commands for the default route, which is not flannel's as all other routes are.

    The interface is found by its address: a virtual switch gives it another name.
    """
    card = next((card for card in look.intended.interfaces if card.name == route.device), None)
    if route.destination != _DEFAULT or card is None or not card.addresses or not route.via:
        return None
    named = f"-DestinationPrefix {_EVERYWHERE}"
    index = f"(Get-NetIPAddress -IPAddress {bare(card.addresses[0])}).InterfaceIndex"
    return OnWindows(
        f"Get-NetRoute {named}",
        f"Get-NetRoute {named} -ErrorAction SilentlyContinue | Remove-NetRoute -Confirm:$false; "
        f"New-NetRoute {named} -InterfaceIndex {index} -NextHop {route.via}",
    )


def _strays(look: Look) -> Iterator[Difference]:
    """Unintended routes into the lab's own ranges that lead elsewhere.

    A route to the next hop of an intended route, on its device, is accepted: Felix sets one for a
    tunnel end that it learns of after the surrounding block, and none for an earlier one
    (felix/calc/l3_route_resolver.go of Calico 3.31.0).
    """
    intended = {_prefix(route.destination) for route in look.intended.routes}
    ways = [(_prefix(it.destination), it.device, it.via or "") for it in look.intended.routes]
    ways += [(network, device, "") for network, device in _connected(look.intended)]
    ways += [(f"{it.via}/32", it.device, "") for it in look.intended.routes if it.via]
    for item in look.observed.items.routes().values():
        route = item.subject
        assert isinstance(route, RouteSubject), item
        prefix = _prefix(route.destination)
        if prefix in intended or prefix == _EVERYWHERE:
            continue
        if not any(overlap(prefix, range_) for range_ in look.ranges()):
            continue
        if look.footprint.has_port(route.device):
            continue
        covering = [known for known in ways if within(prefix, known[0])]
        longest = max(covering, key=lambda known: IPv4Network(known[0]).prefixlen, default=None)
        if longest is None or (route.device, route.via) != longest[1:]:
            yield look.differs(
                "stray-route",
                RouteSubject(route.destination),
                "none of its own",
                item.words,
                f"ip route show {route.destination}",
                f"ip route del {route.destination}",
                values=(item.words,),
            )


def _connected(machine: MachineIntent) -> Iterator[tuple[str, str]]:
    for device, texts in machine.addressed():
        for text in texts:
            yield str(ip_interface(text).network), device


def _prefix(destination: str) -> str:
    if destination == _DEFAULT:
        return _EVERYWHERE
    return destination if "/" in destination else f"{destination}/32"


def _wanted_neighbour(look: Look, neighbour: Neighbour) -> Wanted:
    tunnel, address, device = look.intended.tunnel, neighbour.address, neighbour.device
    return Wanted(
        "stale-neighbour",
        NeighbourSubject(address, device),
        make_neighbour(address, device, neighbour.mac),
        # elsewhere the kernel uses ARP
        "neighbour-missing" if tunnel and device == tunnel.name else None,
        "neighbour-silent",
        shows=f"ip neighbour show {address} dev {device}",
    )


class ForwardingCheck(Check):
    """Whether the node forwards packets."""

    order = 40
    kinds = (
        Kind(
            "forwarding-off",
            fault="ip-forward-off",
            windows=OnWindows(
                "Get-NetIPInterface -AddressFamily IPv4 | Select-Object -Property "
                "InterfaceAlias, Forwarding",
                "Set-NetIPInterface -InterfaceAlias vEthernet* -Forwarding Enabled",
            ),
        ),
    )

    def wants(self, look: Look) -> Iterator[Wanted]:
        vfp = look.observed.os == "windows" and look.intended.tunnel is not None
        if not vfp:  # VFP forwards by itself
            item = make_setting(FORWARDING.path, str(int(look.intended.forwards)))
            yield Wanted("forwarding-off", FORWARDING, item, None)


def is_route(difference: Difference) -> bool:
    """Whether it is a route to another's addresses, or a missing one."""
    return difference.kind in {
        "route-missing",
        "wrong-route",
        "wrong-learned-route",
        "stray-route",
    }


class RoutesCheck(Check):
    """Missing, wrong and stray routes."""

    order = 41
    question = "route"
    kinds = (
        Kind(
            "route-missing",
            fault="route-missing",
            windows=OnWindows(
                "(Get-HnsNetwork | Where-Object -Property Name -EQ -Value {network}).Policies | "
                "Where-Object -Property Type -EQ -Value RemoteSubnetRoute | Format-List; "
                + _NET_ROUTES,
                RESTART_FLANNEL,
            ),
            prevents_sending=True,
        ),
        Kind("wrong-route", windows=OnWindows(_NET_ROUTES, RESTART_FLANNEL)),
        Kind("learned-route-missing", follows=True, symptom="learned", awaited=True),
        Kind("wrong-learned-route", follows=True, symptom="learned", awaited=True),
        Kind("stray-route", meets=_at_route),
    )

    def on_machine(self, look: Look) -> Iterator[Difference]:
        yield from look.compare(_wanted_route(look, route) for route in look.intended.routes)
        if look.observed.os == "linux":  # HNS has its own routes for every pod
            yield from _strays(look)


class NeighboursCheck(Check):
    """The MACs of neighbouring machines."""

    order = 42
    question = "neighbour"
    kinds = (
        Kind("neighbour-missing", windows=OnWindows(HNS_NETWORKS, RESTART_FLANNEL)),
        Kind(
            "stale-neighbour",
            fault="stale-neighbour",
            windows=OnWindows("Get-NetNeighbor -AddressFamily IPv4", RESTART_FLANNEL),
        ),
        Kind("neighbour-silent", follows=True),
    )

    def wants(self, look: Look) -> Iterator[Wanted]:
        return (_wanted_neighbour(look, neighbour) for neighbour in look.intended.neighbours)
