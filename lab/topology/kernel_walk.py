"""The intended path of a request and its answer, walked through the Intent. Pure.

It follows what the kernel does with the Intent's tables: a pod's default route, the bridge, Service
translation, the longest prefix, masquerading, the neighbour, the tunnel and its forwarding entry;
on the way back translations are reversed. It does not depend on the topology.

Each machine is plugged into its hypervisor's switch, and frames between hypervisors go through
their tunnel. A segment that is not split has nothing between two interfaces.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from lab.topology.intent import (
    BLACKHOLE,
    Backend,
    Intent,
    Interface,
    MachineIntent,
    Pod,
    Route,
    Translation,
    Tunnel,
)
from lab.topology.path import Flow, Hop, HopKind, Packet, Path
from lab.topology.proxying import ProxyChoice, choice
from lab.topology.routing import (
    address_of,
    bare,
    card_of,
    covers,
    find_route,
    holder,
    network_of,
    own_addresses,
    pod_with,
    source_by,
)
from lab.topology.subject import (
    FORWARDING,
    DeviceSubject,
    EntrySubject,
    FirewallSubject,
    LeavingSubject,
    MachineSubject,
    NeighbourSubject,
    PodSubject,
    PortSubject,
    RouteSubject,
    ServiceSubject,
    Subject,
    TrackingSubject,
)

_MOST_MACHINES = 16
"""A packet that passes more machines than this is in a loop."""
_MULTICAST = "224.0.0.0/4"
_POD_CARD = "eth0"


class Ends(Exception):  # noqa: N818  not an error: the Intent leads no further, a valid result
    """The Intent leads no further; the message says why."""


@dataclass(slots=True)
class KernelWalk:
    """One path, as it is walked."""

    intent: Intent
    flow: Flow
    choice: int
    """Index of the Service's backend to take."""
    choices: int = 1
    backend: str | None = None
    hops: list[Hop] = field(default_factory=list)
    passed: int = 0
    changed: list[tuple[str, Packet, Packet]] = field(default_factory=list)
    """Machine, and a request's packet before and after its translation; answers reverse it."""

    def path(self) -> Path:
        """The whole path, there and back."""
        way: tuple[Hop, ...] = ()
        end = ""
        try:
            arrived = self._start(self._place(self.flow.source), self._asked())
            way = tuple(self.hops)
            self.hops.clear()
            self.passed = 0
            self._forward(way[-1].place)
            self._start(self._place(way[-1].place), arrived.answered())
        except Ends as reason:
            end = str(reason)
        done = tuple(self.hops)
        return Path(self.flow, way or done, done if way else (), self.backend, end)

    def _forward(self, server: str) -> None:
        """The DNS server's own query to the services node, and the answer."""
        front = self.intent.services_node
        if not self.flow.forwarded or front is None or server == front.machine:
            return
        request = Flow(server, front.address, self.flow.port, "udp")  # CoreDNS prefers UDP
        path = type(self)(self.intent, request, 0).path()
        self.hops += path.hops
        if path.end:
            raise Ends(path.end)

    def _place(self, name: str) -> tuple[MachineIntent, Pod | None]:
        for machine in self.intent.machines:
            if machine.name == name:
                return machine, None
            for pod in machine.pods:
                if pod.name == name:
                    return machine, pod
        raise KeyError(name)

    def _asked(self) -> Packet:
        """A machine's own packet has the address of the device it leaves by as its source."""
        machine, pod = self._place(self.flow.source)
        flow = self.flow
        if pod:
            source = bare(pod.address)
        else:
            way = find_route(machine, flow.target)
            source = source_by(machine, way, flow.target) if way else ""
        return Packet(flow.protocol, source, flow.target, flow.port)

    def _start(self, place: tuple[MachineIntent, Pod | None], packet: Packet) -> Packet:
        machine, pod = place
        if pod is None:
            self._hop("endpoint", machine, MachineSubject(machine.name), packet)
            return self._in(machine, packet, arrived_by=None)
        self._hop("endpoint", machine, PodSubject(pod.name), packet, _POD_CARD, pod.name)
        neighbours = {neighbour.address for neighbour in pod.neighbours}
        nearby = packet.target in neighbours or pod_with(machine, packet.target) is not None
        on_link = nearby and covers(network_of(pod.address), packet.target)
        next_hop = packet.target if on_link else pod.gateway
        if not on_link:
            self._hop("way-out", machine, PodSubject(pod.name), packet, place=pod.name)
        subject = NeighbourSubject(next_hop, pod=pod.name)
        self._hop("neighbour", machine, subject, packet, place=pod.name)
        self._port(machine, pod, packet)
        return self._left(machine, pod, packet, on_link=on_link)

    def _left(self, machine: MachineIntent, pod: Pod, packet: Packet, *, on_link: bool) -> Packet:
        """Handle a packet that leaves a pod by its port."""
        if machine.bridge is None:
            return self._in(machine, packet, arrived_by=pod.port)
        self._bridge(machine, packet)
        sibling = pod_with(machine, packet.target) if on_link else None
        if sibling is None:
            return self._in(machine, packet, arrived_by=machine.bridge.name)
        return self._to_pod(machine, sibling, self._put_back(machine, packet))

    def _in(self, machine: MachineIntent, packet: Packet, arrived_by: str | None) -> Packet:
        self.passed += 1
        if self.passed > _MOST_MACHINES:
            raise Ends(f"the packet loops at {machine.name}")
        before, marked = packet, False
        if packet.answer:
            packet = self._put_back(machine, packet)
        else:
            packet, marked = self._translated(machine, packet, own=arrived_by is None)
        if packet.target in own_addresses(machine):
            if arrived_by is not None:
                self._hop("firewall", machine, FirewallSubject("input"), packet)
            self._note(machine, before, packet)
            self._hop("endpoint", machine, MachineSubject(machine.name), packet)
            return packet
        if arrived_by is not None:
            self._hop("forwarding", machine, FORWARDING, packet)
        hook = "forward" if arrived_by is not None else "output"
        self._hop("firewall", machine, FirewallSubject(hook), packet)
        way = find_route(machine, packet.target)
        if way is None:
            raise Ends(f"{machine.name} has no route to {packet.target}")
        self._hop("route", machine, RouteSubject(way.destination), packet)
        if way.device == BLACKHOLE:
            raise Ends(f"{machine.name} drops packets to {packet.target}: no pod has that address")
        if not packet.answer:
            packet = self._masqueraded(machine, packet, way, marked=marked)
            self._note(machine, before, packet)
        return self._out(machine, packet, way)

    # Translation

    def _translated(
        self, machine: MachineIntent, packet: Packet, *, own: bool
    ) -> tuple[Packet, bool]:
        """The packet to a backend, and whether it is marked to be masqueraded."""
        chosen = choice(machine, packet.protocol, packet.source, packet.target, packet.port)
        if chosen is None:
            return packet, False
        subject = ServiceSubject(chosen.service.name)
        if chosen.port is None or not chosen.backends:
            self._hop("service", machine, subject, packet)
            if not own and packet.target not in own_addresses(machine):
                self._hop("forwarding", machine, FORWARDING, packet)  # and is refused afterwards
            raise Ends(explain_unserved(machine, packet, chosen))
        backend = self._pick(chosen.backends)
        marked = chosen.masqueraded or packet.source == backend.address
        packet = replace(packet, target=backend.address, port=chosen.port.target_port)
        self._hop("service", machine, subject, packet)
        return packet, marked

    def _pick(self, backends: tuple[Backend, ...]) -> Backend:
        """The backend that this path takes."""
        self.choices = max(self.choices, len(backends))
        backend = backends[min(self.choice, len(backends) - 1)]
        self.backend = backend.pod
        return backend

    def _masqueraded(
        self, machine: MachineIntent, packet: Packet, way: Route, *, marked: bool
    ) -> Packet:
        translation = machine.translation
        if translation is None:
            return packet
        local = translation.local_cidr
        if not marked and not self._leaves(translation, packet):
            return packet
        packet = replace(packet, source=address_of(machine, way.device, way.via or packet.target))
        subject = LeavingSubject() if marked else LeavingSubject(str(local))
        self._hop("masquerade", machine, subject, packet)
        return packet

    def _leaves(self, translation: Translation, packet: Packet) -> bool:
        local, kept = translation.local_cidr, (*translation.not_masqueraded, _MULTICAST)
        from_here = local is not None and covers(local, packet.source)
        return from_here and not any(covers(kept_range, packet.target) for kept_range in kept)

    def _note(self, machine: MachineIntent, before: Packet, after: Packet) -> None:
        if before != after:
            self.changed.append((machine.name, before, after))

    def _put_back(self, machine: MachineIntent, packet: Packet, where: str = "") -> Packet:
        """The answer with the addresses of its request, if that was translated there."""
        for name, before, after in self.changed:
            if name == (where or machine.name) and after.answered() == packet:
                self._hop("untranslated", machine, TrackingSubject(), before.answered())
                return before.answered()
        return packet

    # Forwarding

    def _out(self, machine: MachineIntent, packet: Packet, way: Route) -> Packet:
        next_hop = way.via or packet.target
        if machine.bridge and way.device == machine.bridge.name:
            pod = pod_with(machine, next_hop)
            if pod is None:
                raise Ends(f"no pod of {machine.name} has the address {next_hop}")
            self._neighbour(machine, next_hop, way.device, packet)
            self._bridge(machine, packet)
            return self._to_pod(machine, pod, packet)
        routed = next((pod for pod in machine.pods if pod.port == way.device), None)
        if machine.bridge is None and routed:
            self._neighbour(machine, next_hop, way.device, packet)
            return self._to_pod(machine, routed, packet)
        if machine.tunnel and way.device == machine.tunnel.name:
            return self._tunnelled(machine, machine.tunnel, packet, next_hop)
        next_machine, card = self._across(machine, packet, way.device, next_hop)
        return self._in(next_machine, packet, arrived_by=card)

    def _tunnelled(
        self, machine: MachineIntent, tunnel: Tunnel, packet: Packet, next_hop: str
    ) -> Packet:
        self._neighbour(machine, next_hop, tunnel.name, packet)
        ends = {
            neighbour.address: neighbour.mac
            for neighbour in machine.neighbours
            if neighbour.device == tunnel.name
        }
        next_machine, end = self._through(machine, tunnel, ends.get(next_hop, ""), packet, next_hop)
        return self._in(next_machine, packet, arrived_by=end)

    def _through(
        self, machine: MachineIntent, tunnel: Tunnel, mac: str, packet: Packet, target: str
    ) -> tuple[MachineIntent, str]:
        """A frame to ``mac`` through a tunnel: the machine at its other end, and that end's name.

        ``target``: the frame's target in an error.
        """
        self._hop("tunnel", machine, DeviceSubject(tunnel.name, "tunnel"), packet, tunnel.name)
        entry = next((candidate for candidate in machine.forwarding if candidate.mac == mac), None)
        if entry is None:
            raise Ends(f"{machine.name} has no forwarding entry for {target}")
        outer = Packet("udp", tunnel.local, entry.remote, tunnel.port)
        subject = EntrySubject(entry.mac, tunnel.name)
        self._hop("entry", machine, subject, outer, carried=packet)
        self._hop("firewall", machine, FirewallSubject("output"), outer, carried=packet)
        way = find_route(machine, entry.remote)
        if way is None:
            raise Ends(f"{machine.name} has no route to {entry.remote}")
        self._hop("route", machine, RouteSubject(way.destination), outer, carried=packet)
        next_machine, _ = self._across(machine, outer, way.device, way.via or entry.remote, packet)
        while entry.remote not in own_addresses(next_machine):
            next_machine = self._passed_on(next_machine, outer, packet)
        self._hop("firewall", next_machine, FirewallSubject("input"), outer, carried=packet)
        if next_machine.tunnel is None:
            raise Ends(f"{next_machine.name} has no tunnel")
        self._hop(
            "tunnel",
            next_machine,
            DeviceSubject(next_machine.tunnel.name, "tunnel"),
            packet,
            next_machine.tunnel.name,
        )
        return next_machine, next_machine.tunnel.name

    def _passed_on(self, machine: MachineIntent, outer: Packet, carried: Packet) -> MachineIntent:
        """A tunnel's packet that another machine, such as the router, forwards."""
        self.passed += 1
        way = find_route(machine, outer.target)
        if way is None or self.passed > _MOST_MACHINES:
            raise Ends(f"{machine.name} has no route to {outer.target}")
        self._hop("forwarding", machine, FORWARDING, outer, carried=carried)
        self._hop("firewall", machine, FirewallSubject("forward"), outer, carried=carried)
        self._hop("route", machine, RouteSubject(way.destination), outer, carried=carried)
        return self._across(machine, outer, way.device, way.via or outer.target, carried)[0]

    def _across(
        self,
        machine: MachineIntent,
        packet: Packet,
        device: str,
        next_hop: str,
        carried: Packet | None = None,
    ) -> tuple[MachineIntent, str]:
        """From one machine's interface over its segment to the receiving machine and interface."""
        card = card_of(machine, device)
        if card is None:
            raise Ends(f"{machine.name} has no device {device}")
        self._neighbour(machine, next_hop, device, packet, carried)
        self._sent(machine, card, packet, carried)
        end = holder(self.intent, card.segment, next_hop)
        if end is None:
            raise Ends(f"no machine on segment '{card.segment}' has the address {next_hop}")
        next_machine, arrived_by = end
        far = card_of(next_machine, arrived_by)
        if far:
            self._between_hypervisors((machine, card), (next_machine, far), packet)
        self._received(next_machine, arrived_by, packet, carried)
        return next_machine, arrived_by

    def _between_hypervisors(
        self,
        sender: tuple[MachineIntent, Interface],
        receiver: tuple[MachineIntent, Interface],
        packet: Packet,
    ) -> None:
        """A frame's way through the switches of both machines' hypervisors, if they have any."""
        known = {hypervisor.name: hypervisor for hypervisor in self.intent.hypervisors}
        here, far = (known.get(card.host or "") for _, card in (sender, receiver))
        if here is None or far is None:
            return
        self._switch_port(here, *sender, packet)
        self._switch(here, packet)
        if here is not far and here.tunnel:
            mac = receiver[1].mac
            self._through(here, here.tunnel, mac, packet, mac)
            self._switch(far, packet)
        self._switch_port(far, *receiver, packet)

    def _switch(self, host: MachineIntent, packet: Packet) -> None:
        name = host.switch.name if host.switch else ""
        self._hop("switch", host, DeviceSubject(name, "switch"), packet, name)

    def _switch_port(
        self, host: MachineIntent, machine: MachineIntent, card: Interface, packet: Packet
    ) -> None:
        for port in host.switch.ports if host.switch else ():
            if (port.machine, port.card) == (machine.name, card.name):
                self._hop("switch", host, PortSubject(port.name, machine.name), packet, port.name)

    def _sent(
        self, machine: MachineIntent, card: Interface, packet: Packet, carried: Packet | None
    ) -> None:
        subject = DeviceSubject(card.name, "card")
        self._hop("card", machine, subject, packet, card.name, carried=carried)

    def _received(
        self, machine: MachineIntent, card: str, packet: Packet, carried: Packet | None
    ) -> None:
        self._hop("card", machine, DeviceSubject(card, "card"), packet, card, carried=carried)

    def _to_pod(self, machine: MachineIntent, pod: Pod, packet: Packet) -> Packet:
        self._port(machine, pod, packet)
        self._hop("endpoint", machine, PodSubject(pod.name), packet, _POD_CARD, pod.name)
        return packet

    # Recording hops

    def _port(self, machine: MachineIntent, pod: Pod, packet: Packet) -> None:
        subject = PortSubject(pod.port, pod.name, of_pod=True)
        self._hop("port", machine, subject, packet, pod.port)

    def _bridge(self, machine: MachineIntent, packet: Packet) -> None:
        name = machine.bridge.name if machine.bridge else ""
        self._hop("bridge", machine, DeviceSubject(name, "bridge"), packet, name)

    def _neighbour(
        self,
        machine: MachineIntent,
        address: str,
        device: str,
        packet: Packet,
        carried: Packet | None = None,
    ) -> None:
        neighbour = NeighbourSubject(address, device)
        self._hop("neighbour", machine, neighbour, packet, carried=carried)

    def _hop(  # noqa: PLR0913, PLR0917  a hop is all of these
        self,
        kind: HopKind,
        machine: MachineIntent,
        subject: Subject,
        packet: Packet,
        device: str = "",
        place: str = "",
        carried: Packet | None = None,
    ) -> None:
        hop = Hop(kind, machine.name, place or machine.name, device, subject, packet, carried)
        self.hops.append(hop)


REFUSES = "refuses it"
"""At the end of a path that is rejected instead of dropped."""


def explain_unserved(machine: MachineIntent, packet: Packet, chosen: ProxyChoice) -> str:
    """Why a Service's packet goes no further, and whether it is rejected or dropped."""
    name, does = chosen.service.name, REFUSES if chosen.refused else "loses it"
    if chosen.port is None:
        why = f"has no {packet.protocol.upper()} port {packet.port}"
    elif chosen.service.backends:
        why = f"is for local backends only, and none is on {machine.name}"
    else:
        why = "has no backends"
    return f"Service {name} {why}: {machine.name} {does}"
