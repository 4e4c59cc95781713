"""Whether the node forwards, and where to: settings, routes and neighbours."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Network, ip_interface

from lab.explain.check import HNS_NETWORKS, RESTART_FLANNEL, Check, Kind, Look
from lab.facts.difference import Difference
from lab.facts.translations import overlap, within
from lab.topology import bird
from lab.topology.commands import replace_neighbour, replace_route
from lab.topology.intent import BLACKHOLE, MachineIntent, Neighbour, Route
from lab.topology.path import Hop, Path
from lab.topology.routing import covers
from lab.topology.subject import FORWARDING, NeighbourSubject, RouteSubject

_SILENT = {"FAILED", "INCOMPLETE", "UNREACHABLE"}
_EVERYWHERE = "0.0.0.0/0"
_NET_ROUTES = "Get-NetRoute -AddressFamily IPv4"


def _at_route(difference: Difference, hop: Hop, _: Path) -> bool:
    if hop.kind != "route" or hop.machine != difference.node:
        return False
    route = difference.subject
    return isinstance(route, RouteSubject) and covers(route.prefix, hop.packet.target)


def _routes(look: Look) -> Iterator[Difference]:
    observed = {_prefix(route): route for route in look.observed.routes}
    for route in look.intended.routes:
        actual = observed.get(_prefix(route))
        if actual is None:
            if route.device != BLACKHOLE and not look.works(route.device):
                continue  # the device is reported, and took the route with it
            yield look.differs(
                "learned-route-missing" if route.by else "route-missing",
                RouteSubject(route.destination),
                _words(route),
                "there is none",
                *_remedy(look, route),
            )
        elif _leads(actual) != _leads(route) or (route.source or actual.source) != actual.source:
            if actual.device == f"{route.device} (down)":
                continue  # the device is reported
            yield look.differs(
                "wrong-learned-route" if route.by else "wrong-route",
                RouteSubject(route.destination),
                _words(route),
                _words(actual),
                *_remedy(look, route),
                values=_values(actual),
            )
    if look.observed.os == "linux":  # HNS has its own routes for every pod
        yield from _strays(look)


def _strays(look: Look) -> Iterator[Difference]:
    """Unintended routes into the lab's own ranges that lead elsewhere.

    A route to the next hop of an intended route, on its device, is accepted: Felix sets one for a
    tunnel end that it learns of after the surrounding block, and none for an earlier one
    (felix/calc/l3_route_resolver.go of Calico 3.31.0).
    """
    intended = {_prefix(route) for route in look.intended.routes}
    ways = [(_prefix(route), route.device, route.via) for route in look.intended.routes]
    ways += [(network, device, None) for network, device in _connected(look.intended)]
    ways += [(f"{it.via}/32", it.device, None) for it in look.intended.routes if it.via]
    for route in look.observed.routes:
        prefix = _prefix(route)
        if prefix in intended or prefix == _EVERYWHERE:
            continue
        if not any(overlap(prefix, range_) for range_ in look.ranges()):
            continue
        if look.beside.has_port(route.device):
            continue
        covering = [way for way in ways if within(prefix, way[0])]
        longest = max(covering, key=lambda way: IPv4Network(way[0]).prefixlen, default=None)
        if longest is None or (route.device, route.via) != longest[1:]:
            yield look.differs(
                "stray-route",
                RouteSubject(route.destination),
                "none of its own",
                _words(route),
                f"ip route show {route.destination}",
                f"ip route del {route.destination}",
                values=_values(route),
            )


def _connected(machine: MachineIntent) -> Iterator[tuple[str, str]]:
    for device, texts in machine.addressed():
        for text in texts:
            yield str(ip_interface(text).network), device


def _leads(route: Route) -> tuple[str, str | None]:
    return route.device, route.via


def _prefix(route: Route) -> str:
    if route.destination == "default":
        return _EVERYWHERE
    return route.destination if "/" in route.destination else f"{route.destination}/32"


def _words(route: Route) -> str:
    via = f"through {route.via} " if route.via else ""
    if route.device in {BLACKHOLE, "unreachable", "prohibit", "throw"}:
        return f"a {route.device} route"
    source = f" from {route.source}" if route.source else ""
    return f"{via}on {route.device}{source}"


def _values(route: Route) -> tuple[str, ...]:
    return tuple(text for text in (route.via, route.device, route.source) if text)


def _remedy(look: Look, route: Route) -> tuple[str, str]:
    """The commands that show and set the route; for a learned one, those of its sessions."""
    if route.by == bird.NAME:
        control = look.beside.control if look.intended.kubelet else bird.Control()
        return control.ask("show protocols"), control.ask("enable all")
    return f"ip route show {route.destination}", replace_route(route)


def _neighbour(look: Look, neighbour: Neighbour) -> Iterator[Difference]:
    actual = next(
        (
            candidate
            for candidate in look.observed.neighbours
            if candidate.neighbour.address == neighbour.address
            and candidate.neighbour.device == neighbour.device
        ),
        None,
    )
    tunnel = look.intended.tunnel
    shows = f"ip neighbour show {neighbour.address} dev {neighbour.device}"
    mends = replace_neighbour(neighbour.address, neighbour.mac, neighbour.device)
    subject = NeighbourSubject(neighbour.address, neighbour.device)
    if not look.works(neighbour.device):
        return
    if actual is None:
        if tunnel and neighbour.device == tunnel.name:  # elsewhere the kernel uses ARP
            yield look.differs(
                "neighbour-missing", subject, neighbour.mac, "there is none", shows, mends
            )
    elif actual.state != "NOARP" and actual.neighbour.mac not in {"", neighbour.mac}:
        mac = actual.neighbour.mac
        words = (neighbour.mac, mac, shows, mends)
        yield look.differs("stale-neighbour", subject, *words, values=(mac,))
    elif actual.state in _SILENT:
        yield look.differs(
            "neighbour-silent",
            subject,
            neighbour.mac,
            f"nobody answers ({actual.state})",
            shows,
            mends,
        )


class ForwardingCheck(Check):
    """Whether the node forwards packets."""

    order = 40
    kinds = (
        Kind(
            "forwarding-off",
            fault="ip-forward-off",
            windows=(
                (
                    "Get-NetIPInterface -AddressFamily IPv4 | Select-Object -Property "
                    "InterfaceAlias, Forwarding"
                ),
                "Set-NetIPInterface -InterfaceAlias 'vEthernet*' -Forwarding Enabled",
            ),
        ),
    )

    def on_machine(self, look: Look) -> Iterator[Difference]:
        vfp = look.observed.os == "windows" and look.intended.tunnel is not None
        if look.observed.forwards is None or vfp:  # VFP forwards by itself
            return
        if look.observed.forwards != look.intended.forwards:
            wanted = "1" if look.intended.forwards else "0"
            yield look.differs(
                "forwarding-off",
                FORWARDING,
                wanted,
                "0" if wanted == "1" else "1",
                "cat /proc/sys/net/ipv4/ip_forward",
                f"sysctl -w net.ipv4.ip_forward={wanted}",
            )


class RoutesCheck(Check):
    """Missing, wrong and stray routes."""

    order = 41
    question = "route"
    kinds = (
        Kind(
            "route-missing",
            fault="route-missing",
            windows=(
                "(Get-HnsNetwork | Where-Object -Property Name -EQ -Value '{network}').Policies; "
                + _NET_ROUTES,
                RESTART_FLANNEL,
            ),
        ),
        Kind("wrong-route", windows=(_NET_ROUTES, RESTART_FLANNEL)),
        Kind("learned-route-missing", follows=True),
        Kind("wrong-learned-route", follows=True),
        Kind(
            "stray-route",
            windows=(_NET_ROUTES, "Remove-NetRoute -DestinationPrefix of that route"),
            meets=_at_route,
        ),
    )

    def on_machine(self, look: Look) -> Iterator[Difference]:
        yield from _routes(look)


class NeighboursCheck(Check):
    """The MACs of neighbouring machines."""

    order = 42
    question = "neighbour"
    kinds = (
        Kind("neighbour-missing", windows=(HNS_NETWORKS, RESTART_FLANNEL)),
        Kind(
            "stale-neighbour",
            fault="stale-neighbour",
            windows=("Get-NetNeighbor -AddressFamily IPv4", RESTART_FLANNEL),
        ),
        Kind("neighbour-silent", follows=True),
    )

    def on_machine(self, look: Look) -> Iterator[Difference]:
        for neighbour in look.intended.neighbours:
            yield from _neighbour(look, neighbour)
