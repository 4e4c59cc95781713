"""The intended path of a request and its answer through OVN's pipelines. Pure.

A packet enters by a logical port, is balanced if it is for a Service's address, goes to a port of
the same switch or through the router to another switch, and is carried to the chassis with that
port. All but the last port is decided on the chassis where the packet enters. The nodes' own
kernels are walked as for other topologies.
"""

from __future__ import annotations

from dataclasses import replace

from lab.topology import proxying
from lab.topology.intent import Interface, MachineIntent, Pod, Route, Translation
from lab.topology.kernel_walk import Ends, KernelWalk, explain_unserved
from lab.topology.logical import GENEVE_PORT, LogicalNetwork, LogicalPort, LogicalSwitch
from lab.topology.path import HopKind, Packet
from lab.topology.proxying import ProxyChoice
from lab.topology.routing import card_of, covers, own_addresses
from lab.topology.subject import (
    DeviceSubject,
    FlowsSubject,
    LogicalSubject,
    NeighbourSubject,
    ServiceSubject,
    Subject,
    TunnelSubject,
)


class LogicalWalk(KernelWalk):
    """One path through a logical network, as it is walked."""

    @property
    def network(self) -> LogicalNetwork:
        """The lab's logical network."""
        assert self.intent.logical is not None, "walked so for having one"
        return self.intent.logical

    # Entering the logical network from a pod or from a node's own port

    def _left(self, machine: MachineIntent, pod: Pod, packet: Packet, *, on_link: bool) -> Packet:
        if machine.chassis is None:
            return super()._left(machine, pod, packet, on_link=on_link)
        return self._entered(machine, self._port_named(pod.name), packet)

    def _out(self, machine: MachineIntent, packet: Packet, way: Route) -> Packet:
        if machine.chassis is None or machine.bridge is None or way.device != machine.bridge.name:
            return super()._out(machine, packet, way)
        self._neighbour(machine, way.via or packet.target, way.device, packet)
        self._bridge(machine, packet)
        own = next(
            port
            for port in self.network.ports()
            if (port.chassis, port.device) == (machine.chassis.name, way.device)
        )
        return self._entered(machine, own, packet)

    def _port_named(self, name: str) -> LogicalPort:
        return next(port for port in self.network.ports() if port.name == name)

    # Pipelines of the logical network

    def _entered(self, machine: MachineIntent, port: LogicalPort, packet: Packet) -> Packet:
        switch = next(switch for switch in self.network.switches if port in switch.ports)
        self._logical(machine, port, packet)
        if packet.answer:
            if packet.target == self.network.hairpin:
                packet = self._put_back(machine, packet, _key(switch))
        else:
            before = packet
            packet = self._balanced(machine, switch, packet)
            if before != packet:
                self.changed.append((_key(switch), before, packet))
        gate, out = self._aimed(machine, switch, packet)
        if packet.answer:
            packet = self._put_back(machine, packet, _key(gate))
        return self._delivered(machine, out, packet)

    def _balanced(self, machine: MachineIntent, switch: LogicalSwitch, packet: Packet) -> Packet:
        """The packet to a backend of its Service; the same packet if it is for none."""
        services = machine.translation.services if machine.translation else ()
        service = next((service for service in services if service.address == packet.target), None)
        if service is None:
            return packet
        self._hop("service", machine, ServiceSubject(service.name), packet)
        port = proxying.port_of(service, packet.protocol, packet.port)
        backends = proxying.inside(service, switch.name)
        chosen = ProxyChoice(service, port, backends, refused=not service.backends)
        if port is None or not backends:
            raise Ends(explain_unserved(machine, packet, chosen))
        backend = self._pick(backends)
        hairpin = packet.source == backend.address
        return replace(
            packet,
            source=self.network.hairpin if hairpin else packet.source,
            target=backend.address,
            port=port.target_port,
        )

    def _aimed(
        self, machine: MachineIntent, switch: LogicalSwitch, packet: Packet
    ) -> tuple[LogicalSwitch, LogicalPort]:
        """The switch and the port by which the packet leaves."""
        if covers(switch.subnet, packet.target):
            return switch, _with_address(switch, packet.target)
        self._hop("logical-router", machine, LogicalSubject("router", self.network.router), packet)
        for other in self.network.switches:
            if covers(other.subnet, packet.target):
                return other, _with_address(other, packet.target)
        route = next(
            (route for route in self.network.routes if covers(route.source, packet.source)), None
        )
        if route is None:
            raise Ends(f"{self.network.router} has no route to {packet.target}")
        self._hop("logical-route", machine, LogicalSubject("route", route.source), packet)
        gate = next(
            candidate for candidate in self.network.switches if covers(candidate.subnet, route.via)
        )
        return gate, _with_address(gate, route.via)

    def _delivered(self, machine: MachineIntent, port: LogicalPort, packet: Packet) -> Packet:
        target = self.intent.machine(port.chassis)
        if target is not machine:
            self._carried(machine, target, packet)
        self._logical(target, port, packet)
        if target.bridge and port.device == target.bridge.name:
            self._bridge(target, packet)
            return self._in(target, packet, arrived_by=port.device)
        return self._to_pod(
            target, next(pod for pod in target.pods if pod.name == port.name), packet
        )

    def _logical(self, machine: MachineIntent, port: LogicalPort, packet: Packet) -> None:
        self._hop("logical-port", machine, LogicalSubject("port", port.name), packet, port.device)

    # Between chassis

    def _carried(self, machine: MachineIntent, target: MachineIntent, packet: Packet) -> None:
        assert machine.chassis is not None, "only a chassis has a logical port"
        assert target.chassis is not None, "only a chassis has a logical port"
        outer = Packet("udp", machine.chassis.local, target.chassis.local, GENEVE_PORT)
        card, far = _switched_card(machine), _switched_card(target)
        self._hop("tunnel", machine, TunnelSubject(target.name), packet)
        if card and far:
            known = NeighbourSubject(target.chassis.local, card.name, of_tunnel=True)
            self._hop("neighbour", machine, known, outer, carried=packet)
            self._through_switch(machine, card, outer, packet)
            self._through_switch(target, far, outer, packet, inward=True)
        self._hop("tunnel", target, TunnelSubject(machine.name), packet)

    def _sent(
        self, machine: MachineIntent, card: Interface, packet: Packet, carried: Packet | None
    ) -> None:
        super()._sent(machine, card, packet, carried)
        if card.card:
            self._through_switch(machine, card, packet, carried)

    def _received(
        self, machine: MachineIntent, card: str, packet: Packet, carried: Packet | None
    ) -> None:
        interface = card_of(machine, card)
        if interface and interface.card:
            self._through_switch(machine, interface, packet, carried, inward=True)
        super()._received(machine, card, packet, carried)

    def _through_switch(
        self,
        machine: MachineIntent,
        card: Interface,
        packet: Packet,
        carried: Packet | None,
        *,
        inward: bool = False,
    ) -> None:
        """The switch that has the interface and the interface itself, in the packet's order."""
        name = str(card.card)
        hops: list[tuple[HopKind, Subject, str]] = [
            ("flows", FlowsSubject(card.name), ""),
            ("card", DeviceSubject(name, "card"), name),
        ]
        for kind, subject, device in reversed(hops) if inward else hops:
            self._hop(kind, machine, subject, packet, device, carried=carried)

    # Translation in a node's own kernel: NodePorts, and packets that leave the pod network

    def _translated(
        self, machine: MachineIntent, packet: Packet, *, own: bool
    ) -> tuple[Packet, bool]:
        if machine.chassis is None:
            return super()._translated(machine, packet, own=own)
        chosen = proxying.choice(
            machine, packet.protocol, packet.source, packet.target, packet.port
        )
        if chosen is None or chosen.port is None or chosen.service.address == packet.target:
            return packet, False
        service, subject = chosen.service, ServiceSubject(chosen.service.name)
        local_pods = machine.translation and proxying.is_from_own_pods(
            machine.translation, packet.source
        )
        near = packet.source in own_addresses(machine) or bool(local_pods)
        if service.outside == "cluster" or near:
            packet = replace(packet, target=service.address, port=chosen.port.port)
            self._hop("service", machine, subject, packet)
            return packet, True
        local = proxying.local(service, machine.name)
        if not local:
            self._hop("service", machine, subject, packet)
            raise Ends(explain_unserved(machine, packet, replace(chosen, backends=())))
        backend = self._pick(local)
        packet = replace(packet, target=backend.address, port=chosen.port.target_port)
        self._hop("service", machine, subject, packet)
        return packet, False

    def _leaves(self, translation: Translation, packet: Packet) -> bool:
        """Whether to masquerade, for any node's pod: Windows nodes' pods leave by other nodes."""
        pods = translation.not_masqueraded
        return any(covers(pod, packet.source) for pod in pods) and not any(
            covers(pod, packet.target) for pod in pods
        )


def _key(switch: LogicalSwitch) -> str:
    return f"switch {switch.name}"


def _with_address(switch: LogicalSwitch, address: str) -> LogicalPort:
    port = next((port for port in switch.ports if port.address == address), None)
    if port is None:
        raise Ends(f"no port of logical switch {switch.name} has the address {address}")
    return port


def _switched_card(machine: MachineIntent) -> Interface | None:
    return next((interface for interface in machine.interfaces if interface.card), None)
