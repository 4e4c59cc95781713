"""A logical network of OVN: its databases and each chassis' Open vSwitch.

The databases are queried, and fixed, on the central machine. A difference is reported for the node
whose switch or port it is, or for the central machine if it concerns all nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Unpack

from lab.explain.check import (
    DNS_PORT,
    NO_DROPPING_RULE,
    Check,
    Kind,
    LabLook,
    Look,
    More,
    at_services,
    differs,
)
from lab.explain.checks.bridge import UNPLUGGED
from lab.explain.checks.tunnel import TUNNEL_LOCAL
from lab.facts.difference import Difference
from lab.facts.node import NodeFacts
from lab.facts.ovn import Databases, Switching
from lab.facts.translations import End
from lab.topology import proxying
from lab.topology.intent import Intent, ProxiedService
from lab.topology.logical import GENEVE_PORT, Chassis, LogicalNetwork, LogicalPort, LogicalSwitch
from lab.topology.path import Hop, Path
from lab.topology.subject import (
    ChassisSubject,
    DeviceSubject,
    EntranceSubject,
    LogicalSubject,
    NeighbourSubject,
    ServiceSubject,
    Subject,
    TunnelSubject,
)

_NORTH = "ovn-nbctl --no-leader-only"
_SOUTH = "ovn-sbctl --no-leader-only"
_Key = tuple[str, str, int]
"""Protocol, address and port of a Service."""


def _at_balancer(difference: Difference, hop: Hop, path: Path) -> bool:
    """Wherever a packet for the Service enters the logical network."""
    entrance, packet = difference.subject, hop.packet
    everywhere = difference.node == difference.place
    here = everywhere or hop.machine == difference.node
    return (
        here
        and isinstance(entrance, EntranceSubject)
        and hop.subject == ServiceSubject(entrance.service)
        and entrance.is_asked_by(packet.target, packet.port, path.flow.protocol)
    )


def _bound(port: LogicalPort, observed: Mapping[str, NodeFacts]) -> Iterator[Difference]:
    switching = observed[port.chassis].switching if port.chassis in observed else None
    if switching is None:
        return
    device = switching.port(port.device)
    if device is None or device.logical != port.name:
        yield differs(
            "port-unbound",
            port.chassis,
            LogicalSubject("port", port.name),
            f"device {port.device} with iface-id {port.name}",
            f"device {port.device} with iface-id {device.logical or 'nothing'}"
            if device
            else f"no device {port.device} in the switch",
            f"ovs-vsctl get Interface {port.device} external_ids",
            f"ovs-vsctl set Interface {port.device} external_ids:iface-id={port.name}",
        )


def _tunnels(intent: Intent, observed: Mapping[str, NodeFacts]) -> Iterator[Difference]:
    """Each chassis has a tunnel to every other."""
    ends = {machine.name: machine.chassis.local for machine in intent.machines if machine.chassis}
    for name in ends:
        switching = observed[name].switching if name in observed else None
        if switching is None:
            continue
        remotes = {port.remote for port in switching.ports if port.kind == "geneve"}
        for other, address in ends.items():
            if other != name and address not in remotes:
                yield differs(
                    "tunnel-end-missing",
                    name,
                    TunnelSubject(other),
                    f"a Geneve port to {address}",
                    f"Geneve ports to {', '.join(sorted(remotes)) or 'no chassis'}",
                    "ovs-vsctl show",
                    f"check that chassis {other} is registered with that address, and see "
                    "ovn-controller's log here",
                )


class _Comparison:
    """The databases and their differences."""

    def __init__(self, intent: Intent, network: LogicalNetwork, databases: Databases) -> None:
        self._network, self._seen = network, databases
        self._services: tuple[ProxiedService, ...] = next(
            (machine.translation.services for machine in intent.machines if machine.translation), ()
        )
        self._chassis = {
            machine.name: machine.chassis for machine in intent.machines if machine.chassis
        }

    def _differs(  # noqa: PLR0913, PLR0917  a difference is all of these
        self,
        kind: str,
        node: str,
        subject: Subject,
        intended: str,
        observed: str,
        shows: str,
        mends: str,
        **more: Unpack[More],
    ) -> Difference:
        more["place"] = self._network.central
        return differs(kind, node, subject, intended, observed, shows, mends, **more)

    def switch(self, switch: LogicalSwitch) -> Iterator[Difference]:
        """Differences of one node's switch: its chassis, ports and ACLs."""
        node = switch.name
        yield from self._registered(node)
        actual = self._seen.switch(switch.name)
        known = actual.ports if actual else {}
        for port in switch.ports:
            yield from self._port(switch, port, known)
        for barrier in actual.barriers if actual else ():
            first, last = barrier.ports or (0, 65_535)
            name_server = barrier.ports and first <= DNS_PORT <= last
            yield self._differs(
                "name-server-barred" if name_server else "packets-barred",
                node,
                barrier.subject,
                NO_DROPPING_RULE,
                barrier.rule,
                barrier.shows,
                barrier.mends,
                barrier=barrier,
            )

    def _registered(self, node: str) -> Iterator[Difference]:
        chassis = self._chassis.get(node)
        if chassis is None:
            return
        address = self._seen.chassis.get(chassis.name)
        if address != chassis.local:
            yield self._differs(
                "tunnel-local",
                node,
                ChassisSubject(chassis.name),
                f"registered with {chassis.local}",
                f"registered with {address or 'no address'}"
                if address is not None
                else "not registered",
                f"{_SOUTH} show",
                f"see ovn-controller on {node}: its log, and 'ovs-vsctl get Open_vSwitch . "
                "external_ids'",
            )

    def _port(
        self, switch: LogicalSwitch, port: LogicalPort, known: Mapping[str, tuple[str, ...]]
    ) -> Iterator[Difference]:
        subject, address = LogicalSubject("port", port.name), f"{port.mac} {port.address}"
        addresses = known.get(port.name)
        if addresses is None or address not in addresses:
            add = f"{_NORTH} --may-exist lsp-add {switch.name} {port.name}"
            yield self._differs(
                "logical-port",
                port.chassis,
                subject,
                f"on logical switch {switch.name} with {address}",
                "not there" if addresses is None else f"with {', '.join(addresses) or 'nothing'}",
                f"{_NORTH} show {switch.name}",
                f"{add} -- lsp-set-addresses {port.name} '{address}'",
            )
        bound = self._seen.bindings.get(port.name)
        if addresses is not None and bound != port.chassis:
            yield self._differs(
                "port-unbound",
                port.chassis,
                subject,
                f"bound to chassis {port.chassis}",
                f"bound to {bound or 'none'}",
                f"{_SOUTH} find Port_Binding logical_port={port.name}",
                f"see device {port.device} on {port.chassis}, and its ovn-controller's log",
            )

    def routes(self) -> Iterator[Difference]:
        """The chassis by which each switch's packets leave."""
        for route in self._network.routes:
            gateway = self._seen.routes.get(route.source)
            if gateway != route.via:
                router = self._network.router
                node = next(
                    switch.name
                    for switch in self._network.switches
                    if switch.subnet == route.source
                )
                yield self._differs(
                    "logical-route",
                    node,
                    LogicalSubject("route", route.source),
                    f"via {route.via}",
                    f"via {gateway}" if gateway else "there is none",
                    f"{_NORTH} lr-route-list {router}",
                    f"{_NORTH} --may-exist --policy=src-ip lr-route-add {router} {route.source} "
                    f"{route.via}",
                )

    def balancers(self) -> Iterator[Difference]:
        """Services, switch by switch; a difference on all of them is reported once."""
        serving = {}
        for switch in self._network.switches:
            actual = self._seen.switch(switch.name)
            balanced = {
                (balancer.protocol, str(balancer.address), balancer.port): set(balancer.backends)
                for balancer in (actual.balanced if actual else ())
            }
            if self._services and not balanced:
                yield self._unserved(switch)
            else:
                serving[switch.name] = balanced
        for service in self._services:
            yield from self._service(service, serving)

    def _unserved(self, switch: LogicalSwitch) -> Difference:
        group = f"$({_NORTH} --bare --columns=_uuid find Load_Balancer_Group name=services)"
        return self._differs(
            "balancers-missing",
            switch.name,
            LogicalSubject("balancers", switch.name),
            f"those of {len(self._services)} Services",
            "none",
            f"{_NORTH} --columns=load_balancer,load_balancer_group list Logical_Switch "
            f"{switch.name}",
            f'{_NORTH} add Logical_Switch {switch.name} load_balancer_group "{group}"',
        )

    def _service(
        self, service: ProxiedService, serving: Mapping[str, Mapping[_Key, set[End]]]
    ) -> Iterator[Difference]:
        for port in service.ports:
            for protocol in port.protocols:
                wrong: dict[str, tuple[set[End], set[End] | None]] = {}
                for switch, balanced in serving.items():
                    wanted = {
                        End(backend.address, port.target_port)
                        for backend in proxying.inside(service, switch)
                    }
                    actual = balanced.get((protocol, service.address, port.port))
                    if actual != wanted:
                        wrong[switch] = wanted, actual
                if len(wrong) == len(serving) and service.inside == "cluster":
                    wrong = {self._network.central: next(iter(wrong.values()))}
                name = f"{service.name}/{protocol}"
                vip = f"{service.address}:{port.port}"
                entrance = (service.name, service.address, port.port, (protocol,))
                for node, (wanted, actual) in wrong.items():
                    stale = actual is not None and bool(actual - wanted)
                    yield self._differs(
                        "balancer-stale" if stale else "balancer-missing",
                        node,
                        EntranceSubject(*entrance),
                        f"to {_ends(wanted)}",
                        "not balanced" if actual is None else f"to {_ends(actual)}",
                        f"{_NORTH} --columns=name,vips find Load_Balancer name={name}",
                        self._fix(name, vip, wanted),
                        attribute="" if actual is None else "backends",
                        change="changed" if actual is None or actual else "gone",
                        values=tuple(f"{address}:{number}" for address, number in actual or ()),
                    )

    @staticmethod
    def _fix(name: str, vip: str, wanted: set[End]) -> str:
        uuid = f"$({_NORTH} --bare --columns=_uuid find Load_Balancer name={name})"
        return f'{_NORTH} set Load_Balancer "{uuid}" \'vips:"{vip}"="{_joined(wanted)}"\''


def _ends(ends: set[End]) -> str:
    return _joined(ends).replace(",", ", ") or "no backends"


def _joined(ends: set[End]) -> str:
    return ",".join(f"{address}:{port}" for address, port in sorted(ends))


def _end(look: Look, chassis: Chassis, switching: Switching) -> Iterator[Difference]:
    for key, value in (
        ("ovn-encap-ip", chassis.local),
        ("ovn-encap-type", chassis.encapsulation),
        ("ovn-bridge", chassis.integration),
    ):
        actual = switching.settings.get(key, "")
        if actual != value:
            yield look.differs(
                "tunnel-local",
                ChassisSubject(chassis.name),
                f"{key} {value}",
                f"{key} {actual}" if actual else f"no {key}",
                "ovs-vsctl get Open_vSwitch . external_ids",
                f"ovs-vsctl set Open_vSwitch . external_ids:{key}={value}",
            )


def _plugged(look: Look, bridge: str, card: str, switching: Switching) -> Iterator[Difference]:
    port = switching.port(card)
    if port is None or port.bridge != bridge:
        yield look.differs(
            "unplugged",
            DeviceSubject(card, "card"),
            f"a port of {bridge}",
            f"a port of {port.bridge}" if port else "a port of no bridge",
            "ovs-vsctl show",
            f"ovs-vsctl --if-exists del-port {card} -- add-port {bridge} {card}",
        )


def _neighbours(look: Look, bridge: str, switching: Switching) -> Iterator[Difference]:
    known = {
        neighbour.address: neighbour.mac
        for neighbour in switching.neighbours
        if neighbour.device == bridge
    }
    for neighbour in look.intended.neighbours:
        mac = known.get(neighbour.address)
        if neighbour.device == bridge and mac and mac != neighbour.mac:
            yield look.differs(
                "stale-neighbour",
                NeighbourSubject(neighbour.address, bridge, of_tunnel=True),
                neighbour.mac,
                mac,
                "ovs-appctl tnl/neigh/show",
                f"ovs-appctl tnl/neigh/set {bridge} {neighbour.address} {neighbour.mac}",
            )


def _flows(look: Look, switching: Switching) -> Iterator[Difference]:
    for barrier in switching.flows:
        first, last = barrier.ports or (0, 0)
        tunnel = first <= GENEVE_PORT <= last and barrier.protocol != "tcp"
        yield look.differs(
            "tunnel-port-dropped" if tunnel else "packets-barred",
            barrier.subject,
            "no flow that drops the lab's packets",
            barrier.rule,
            barrier.shows,
            barrier.mends,
            barrier=barrier,
        )


class ChassisCheck(Check):
    """A node's own Open vSwitch: its end of tunnels, its switched interfaces, its flows."""

    order = 70
    kinds = (TUNNEL_LOCAL, UNPLUGGED)

    def on_machine(self, look: Look) -> Iterator[Difference]:
        chassis, switching = look.intended.chassis, look.observed.switching
        if chassis is None or switching is None:
            return
        yield from _end(look, chassis, switching)
        for card in look.intended.interfaces:
            if card.card:
                yield from _plugged(look, card.name, card.card, switching)
                yield from _neighbours(look, card.name, switching)
        yield from _flows(look, switching)


class LogicalNetworkCheck(Check):
    """The databases on the central machine, and the ports that each chassis binds."""

    order = 120
    kinds = (
        Kind("port-unbound"),
        Kind("tunnel-end-missing", follows=True),
        Kind("logical-port"),
        Kind("logical-route"),
        Kind("balancers-missing", fault="service-rules-missing", meets=at_services),
        Kind("balancer-missing", meets=_at_balancer),
        Kind("balancer-stale", fault="service-backend-stale", meets=_at_balancer),
    )

    def in_lab(self, look: LabLook) -> Iterator[Difference]:
        network = look.intent.logical
        if network is None:
            return
        for port in network.ports():
            yield from _bound(port, look.observed)
        yield from _tunnels(look.intent, look.observed)
        central = look.observed.get(network.central)
        if central is None or central.databases is None:
            return
        judged = _Comparison(look.intent, network, central.databases)
        for switch in network.switches:
            yield from judged.switch(switch)
        yield from judged.routes()
        yield from judged.balancers()
