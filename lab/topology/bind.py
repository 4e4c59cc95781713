"""Combines an Intent with what a cluster has made of it. Pure.

Kubernetes assigns pod addresses, MACs and device names; until they are known the Intent holds the
planned ones. What the plan decides itself must match: nodes of pods, addresses of Services,
pod CIDRs of nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from ipaddress import ip_address, ip_network

from lab._errors import BrokenError
from lab.topology.intent import (
    Backend,
    ForwardingEntry,
    HeadlessService,
    Intent,
    MachineIntent,
    Neighbour,
    Obstacle,
    Pod,
    ProxiedService,
    ProxyNeighbour,
    Route,
)
from lab.topology.machines import route_to
from lab.topology.observed import NAMESPACE, ClusterObserved, ObservedNode, ObservedPod, PodLink
from lab.topology.proxying import probed_services
from lab.topology.routing import bare


def foresee(intent: Intent) -> Intent:
    """The Intent for a cluster before its pods exist, with the kubelet's resolver files.

    It is enough to name every cell, but not to probe any.
    """
    domain = intent.domain
    search = (f"{NAMESPACE}.svc.{domain}", f"svc.{domain}", domain)

    def without_neighbours(pod: Pod) -> Pod:
        return replace(pod, neighbours=(), resolver=replace(pod.resolver, search=search))

    return replace(
        intent,
        machines=tuple(
            replace(machine, pods=tuple(map(without_neighbours, machine.pods)))
            for machine in intent.machines
        ),
    )


def bind(intent: Intent, observed: ClusterObserved) -> Intent:
    """The Intent completed with everything that is known only at run time.

    A MAC or device that was not observed becomes empty. A pod that cannot run keeps its planned
    address, with the obstacle. The pods behind the cluster's DNS are the
    observed ones, or the Intent's if there are none.

    Raises BrokenError naming every contradiction between the cluster and the plan.
    """
    complaints = tuple(_find_disagreements(intent, observed))
    if complaints:
        raise BrokenError(
            f"comparing the cluster with what scenario '{intent.scenario}' asks for",
            "; ".join(complaints),
            "check each node's network add-on and /etc/cni/net.d; 'lab test' creates again what is "
            "deleted; 'lab gather' saves the cluster's state",
        )
    return bound_as(intent, observed)


def bound_as(intent: Intent, observed: ClusterObserved) -> Intent:
    """:func:`bind` without the comparison. Raises KeyError when a probe pod was not observed."""
    known = _Known.of(intent, observed)
    mtus = [link.mtu for link in observed.links if intent.cni is not None]
    return replace(
        intent,
        pod_mtu=min(mtus, default=intent.pod_mtu),
        machines=tuple(known.machine(machine) for machine in foresee(intent).machines),
        headless=tuple(
            replace(service, backends=known.backends(service.backends))
            for service in intent.headless
        ),
    )


def observed_in(intent: Intent, bound: Intent) -> ClusterObserved:
    """The inverse of :func:`bound_as`: the observation that leads to ``bound``."""
    planned = {
        pod for machine in foresee(intent).machines for pod in machine.pods if pod.role == "dns"
    }
    renewed = [
        (machine.name, pod)
        for machine in bound.machines
        for pod in machine.pods
        if pod not in planned
    ]
    pods, dns = (
        tuple(
            ObservedPod(pod.name, node, None, "Pending", False, "", pod.obstacle)
            if pod.obstacle
            else ObservedPod(pod.name, node, bare(pod.address), "Running", ready=True, trouble="")
            for node, pod in renewed
            if (pod.role == "dns") == is_dns
        )
        for is_dns in (False, True)
    )
    ends = {machine.name: machine.tunnel for machine in bound.machines if machine.tunnel}
    return ClusterObserved(
        pods=pods,
        dns=dns,
        services=(),
        nodes=tuple(
            ObservedNode(
                name, None, tunnel.mac, bare(tunnel.addresses[0]) if tunnel.addresses else None
            )
            for name, tunnel in ends.items()
        ),
        links=tuple(
            PodLink(pod.name, pod.mac, pod.port, pod.mtu, pod.gateway) for _, pod in renewed
        ),
    )


def _find_disagreements(intent: Intent, observed: ClusterObserved) -> Iterable[str]:
    pods = {pod.name: pod for pod in observed.pods}
    nodes = {node.name: node for node in observed.nodes}
    holders: dict[str, str] = {}
    for machine in intent.machines:
        if machine.kubelet:
            yield from _about_node(machine, nodes.get(machine.name))
        for pod in machine.pods:
            if pod.role == "probe":
                cidr = machine.kubelet.pod_cidr if machine.kubelet and intent.cni is None else None
                yield from _about_pod(machine, pods.get(pod.name), pod.name, cidr, holders)
    yield from _about_services(intent, observed)


def _about_node(machine: MachineIntent, node: ObservedNode | None) -> Iterable[str]:
    wanted = machine.kubelet.pod_cidr if machine.kubelet else None
    if wanted is None:
        return
    if node is None:
        yield f"the cluster has no node '{machine.name}'"
    elif node.pod_cidr is not None and node.pod_cidr != wanted:
        yield f"node '{machine.name}' has pod CIDR {node.pod_cidr}, not {wanted}"


def _about_pod(
    machine: MachineIntent,
    pod: ObservedPod | None,
    name: str,
    cidr: str | None,
    holders: dict[str, str],
) -> Iterable[str]:
    if pod is None:
        yield f"there is no pod '{name}'"
        return
    if pod.obstacle:
        return
    if pod.node != machine.name:
        where = f"on node '{pod.node}'" if pod.node else "nowhere"
        yield f"pod '{name}' runs {where}, not on '{machine.name}'"
        return
    if pod.address is None:
        yield f"pod '{name}' has no address"
        return
    if cidr and ip_address(pod.address) not in ip_network(cidr):
        yield (
            f"pod '{name}' has address {pod.address}, "
            f"which is not in {cidr} of its node '{machine.name}'"
        )
    other = holders.setdefault(pod.address, name)
    if other != name:
        yield f"pods '{other}' and '{name}' both have address {pod.address}"


def _about_services(intent: Intent, observed: ClusterObserved) -> Iterable[str]:
    by_name = {service.name: service for service in observed.services}
    services: tuple[ProxiedService | HeadlessService, ...] = (
        *probed_services(intent),
        *intent.headless,
    )
    for service in services:
        actual = by_name.get(service.name)
        if actual is None:
            yield f"there is no Service '{service.name}'"
        elif isinstance(service, HeadlessService):
            if actual.address != "None":
                yield f"Service '{service.name}' has address {actual.address}, but should have none"
        elif actual.address != service.address:
            yield f"Service '{service.name}' has address {actual.address}, not {service.address}"


@dataclass(frozen=True, slots=True)
class _Known:
    """What was observed, keyed by what the Intent planned."""

    addresses: Mapping[str, str]
    links: Mapping[str, PodLink]
    renewed: Mapping[str, str]
    """Planned address of a pod to its real one."""
    tunnels: Mapping[str, str]
    """Planned MAC of a tunnel device to its real one."""
    ends: Mapping[str, str]
    """Planned address of a tunnel device to its real one, which lies in the node's block too."""
    dns: tuple[ObservedPod, ...]
    obstacles: Mapping[str, Obstacle]
    """Why pods do not run, by pod."""

    @classmethod
    def of(cls, intent: Intent, observed: ClusterObserved) -> _Known:
        addresses = {
            pod.name: pod.address for pod in observed.pods if pod.address and not pod.obstacle
        }
        macs = {node.name: node.tunnel_mac for node in observed.nodes}
        return cls(
            addresses=addresses,
            links={link.pod: link for link in observed.links},
            renewed={
                bare(pod.address): addresses[pod.name]
                for machine in intent.machines
                for pod in machine.pods
                if pod.name in addresses
            },
            tunnels={
                machine.tunnel.mac: mac
                for machine in intent.machines
                if machine.tunnel and (mac := macs.get(machine.name))
            },
            ends=dict(_ends(intent, observed)),
            dns=tuple(pod for pod in observed.dns if pod.address and pod.node),
            obstacles={pod.name: pod.obstacle for pod in observed.pods if pod.obstacle},
        )

    def machine(self, machine: MachineIntent) -> MachineIntent:
        """The machine with its real pods, without the neighbours that a kernel learns by itself."""
        tunnel = machine.tunnel
        device = tunnel.name if tunnel else None
        translation = machine.translation
        pods = tuple(self._pods(machine))
        return replace(
            machine,
            pods=pods,
            routes=tuple(self._led(route) for route in _renew_routes(machine, pods)),
            tunnel=replace(
                tunnel,
                mac=self.tunnels.get(tunnel.mac, tunnel.mac),
                addresses=tuple(map(self._end, tunnel.addresses)),
            )
            if tunnel
            else None,
            neighbours=tuple(
                Neighbour(
                    self._end(neighbour.address),
                    self.tunnels.get(neighbour.mac, neighbour.mac),
                    neighbour.device,
                )
                for neighbour in machine.neighbours
                if neighbour.device == device
            ),
            forwarding=tuple(
                ForwardingEntry(self.tunnels.get(entry.mac, entry.mac), entry.device, entry.remote)
                for entry in machine.forwarding
            ),
            # a Linux node answers ARP for all addresses that it routes to its pods, without entries
            proxies=tuple(
                ProxyNeighbour(self.renewed.get(proxy.address, proxy.address), proxy.device)
                for proxy in machine.proxies
                if machine.os != "linux"
            ),
            translation=replace(
                translation,
                services=tuple(self._service(service) for service in translation.services),
            )
            if translation
            else None,
        )

    def _end(self, text: str) -> str:
        """The real address for a planned tunnel address, with or without prefix length."""
        address, slash, prefix = text.partition("/")
        return f"{self.ends.get(address, address)}{slash}{prefix}"

    def _led(self, route: Route) -> Route:
        via = self._end(route.via) if route.via else None
        host = route.destination.endswith("/32")
        where = self._end(route.destination) if host else route.destination
        return replace(route, destination=where, via=via)

    def _pods(self, machine: MachineIntent) -> Iterable[Pod]:
        for pod in machine.pods:
            if pod.role == "probe" and pod.name in self.obstacles:
                yield replace(pod, port="", mac="", obstacle=self.obstacles[pod.name])
            elif pod.role == "probe":
                yield self._renewed(pod, pod.name, self.addresses[pod.name])
            elif not self.dns:
                yield pod
        like = next(iter(machine.pods), None)
        for observed in self.dns:
            if observed.node == machine.name and observed.address and like:
                yield self._renewed(replace(like, role="dns"), observed.name, observed.address)

    def _renewed(self, pod: Pod, name: str, address: str) -> Pod:
        link = self.links.get(name)
        return replace(
            pod,
            name=name,
            address=f"{address}/{pod.address.partition('/')[2]}",
            mac=link.mac if link else "",
            port=link.port if link else "",
            mtu=link.mtu if link else pod.mtu,
            gateway=link.gateway if link and link.gateway else pod.gateway,
        )

    def backends(self, planned: Iterable[Backend]) -> tuple[Backend, ...]:
        """Backends at the pods' real addresses."""
        return tuple(
            replace(backend, address=self.addresses[backend.pod])
            if backend.pod not in self.obstacles
            else backend
            for backend in planned
        )

    def _service(self, service: ProxiedService) -> ProxiedService:
        known = self.addresses.keys() | self.obstacles.keys()
        if all(backend.pod in known for backend in service.backends):
            return replace(service, backends=self.backends(service.backends))
        if not self.dns or not service.backends:
            return service
        return replace(
            service,
            backends=tuple(Backend(pod.name, str(pod.address), str(pod.node)) for pod in self.dns),
        )


def _ends(intent: Intent, observed: ClusterObserved) -> Iterable[tuple[str, str]]:
    addresses = {node.name: node.tunnel_address for node in observed.nodes}
    for machine in intent.machines:
        address, block = addresses.get(machine.name), machine.kubelet and machine.kubelet.pod_cidr
        if machine.tunnel and address and block and ip_address(address) in ip_network(block):
            yield from ((bare(text), address) for text in machine.tunnel.addresses)


def _renew_routes(machine: MachineIntent, pods: Iterable[Pod]) -> Iterable[Route]:
    """A machine's routes; with routed pods, those to pods with a known port."""
    planned = {pod.port for pod in machine.pods}
    if not any(route.device in planned for route in machine.routes):
        yield from machine.routes
        return
    yield from (route for route in machine.routes if route.device not in planned)
    yield from (route_to(pod, machine.address()) for pod in pods if pod.port)
