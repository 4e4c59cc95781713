"""The endpoints of one lab: sources, targets, and the source addresses that backends may see.

Pods are taken from the Intent, which has their real addresses once it is bound to a cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from typing import NamedTuple
from typing import Protocol as Interface

from lab._dataclass import dataclass
from lab.matrix.cell import Endpoint, Relation, Variant
from lab.plan.plan import Plan, PlannedService
from lab.providers.provider import PROBE_PORT
from lab.scenario.terms import Os, Protocol
from lab.topology import proxying
from lab.topology.intent import (
    HeadlessService,
    Intent,
    MachineIntent,
    ProxiedService,
    ServicesNode,
)
from lab.topology.routing import bare

_EVERYWHERE = {"default": "0.0.0.0/0"}


class _Way(NamedTuple):
    device: frozenset[str]
    source: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _Addresses:
    os: Os
    every: frozenset[str]
    uplink: frozenset[str]
    bridge: frozenset[str]
    outward: frozenset[str]
    """Addresses of uplinks and tunnel, which may masquerade traffic to another node's pods."""
    routes: tuple[tuple[int, Mapping[int, _Way]], ...]
    """The routing table: for each prefix length, longest first, the number of host bits, and the
    way for each network number (the address without its host bits)."""

    def toward(self, address: str, *, own: bool = False) -> frozenset[str]:
        """Addresses of the device by which packets to ``address`` leave; any if it has none.

        With ``own``, for the machine's own packets, for which a route may set the source.
        """
        number = _number(address)
        for host_bits, held in self.routes:
            way = held.get(number >> host_bits)
            if way is not None:
                return (own and way.source) or way.device or self.every
        return self.every


class SourceRules(Interface):
    """The source addresses that a backend may see; an empty set allows any."""

    def of_machine(self, name: str, backend: Endpoint) -> frozenset[str]:
        """Those of a machine."""

    def of_pod_to_pod(self, pod: Endpoint) -> frozenset[str]:
        """Those of a pod, at another pod."""

    def of_pod_to_service(self, pod: Endpoint) -> frozenset[str]:
        """Those of a pod, behind a Service."""

    def of_pod_to_itself(self, pod: Endpoint) -> frozenset[str]:
        """Those of a pod, through a Service that it backs."""

    def of_pod_to_address(self, pod: Endpoint, target: Endpoint) -> frozenset[str]:
        """Those of a pod, at a node or an outside host."""

    def of_node_port(self, entry: str, backend: Endpoint) -> frozenset[str]:
        """Those behind a NodePort of the node ``entry`` (policy Cluster)."""

    def at_entry(self, source: Endpoint, entry: Endpoint) -> frozenset[str]:
        """Those that the entry node sees before any translation."""


class Sources:
    """The source addresses that a backend may see, for each kind of path.

    The rules are those of :class:`~lab.topology.intent.Translation`, as kube-proxy and flannel's
    ip-masq implement them:

    - traffic from a node's own pods to a Service keeps its source, unless it returns to the same
      pod (hairpin);
    - everything else that a node sends to a Service is masqueraded there, NodePorts always;
    - masquerading, and a machine's own traffic, use an address of the device that the packet
      leaves by: the bridge for a local backend, the tunnel or an uplink for a remote one. If that
      device has no address, as for a routed pod, any other address of the machine may be used. A
      machine's own traffic uses the source address of the route if it has one;
    - pods' traffic to anything outside ``not_masqueraded`` leaves with the node's uplink address,
      but a packet to the pod's own node leaves by no device, so it is not translated.

    It is not documented what the filtering platform of Windows (VFP) does to a pod's Service
    traffic, nor which of its addresses a Windows node uses: from a Windows pod, the addresses of
    the pod and of its node are allowed, and from a Windows node any of its own.

    ``intent`` is read only at construction; the results are shared sets.
    """

    def __init__(self, intent: Intent) -> None:
        self._addresses: Mapping[str, _Addresses] = {
            machine.name: _addresses(machine) for machine in intent.machines
        }
        self._logical = intent.logical
        self._gateways: Mapping[str, str] = intent.logical.gateways() if intent.logical else {}
        self._not_masqueraded: Mapping[str, tuple[IPv4Network, ...]] = {
            machine.name: tuple(
                IPv4Network(prefix)
                for prefix in (machine.translation.not_masqueraded if machine.translation else ())
            )
            for machine in intent.machines
        }

    def of_machine(self, name: str, backend: Endpoint) -> frozenset[str]:
        """The machine's own addresses, of the device by which it reaches the backend."""
        addresses = self._addresses[name]
        return (
            addresses.every
            if addresses.os == "windows"
            else addresses.toward(backend.address, own=True)
        )

    def of_pod_to_pod(self, pod: Endpoint) -> frozenset[str]:
        """The pod's own address: Kubernetes specifies no translation between pods."""
        return frozenset({pod.address})

    def of_pod_to_service(self, pod: Endpoint) -> frozenset[str]:
        """The pod's own address; from a Windows pod also its node's, unless OVN translates."""
        own = frozenset({pod.address})
        if self._logical:
            return own
        return own | self._node_of(pod).every if pod.os == "windows" else own

    def of_pod_to_itself(self, pod: Endpoint) -> frozenset[str]:
        """A hairpin is masqueraded with the node's address; from a Windows pod also the pod's own.

        OVN uses one address for all hairpins.
        """
        if self._logical:
            return frozenset({self._logical.hairpin})
        node = self._node_of(pod)
        return node.every | {pod.address} if pod.os == "windows" else node.toward(pod.address)

    def of_pod_to_address(self, pod: Endpoint, target: Endpoint) -> frozenset[str]:
        """The addresses that a node or an outside host may see from a pod."""
        own = frozenset({pod.address})
        node = self._gateway_of(str(pod.node))
        if self._is_kept(node, target.address):
            return own
        if target.name == node:
            by_windows = self._addresses[node].os == "windows"
            return own | self._addresses[node].every if by_windows else own
        return self._addresses[node].uplink

    def of_node_port(self, entry: str, backend: Endpoint) -> frozenset[str]:
        """The entry node's addresses, of the device to the backend (policy Cluster)."""
        addresses = self._addresses[entry]
        if addresses.os != "windows":
            return addresses.toward(backend.address)
        return addresses.bridge if entry == backend.node else addresses.outward

    def at_entry(self, source: Endpoint, entry: Endpoint) -> frozenset[str]:
        """The addresses that the entry node sees from ``source``, before any translation."""
        if source.kind == "pod":
            return self.of_pod_to_address(source, entry)
        return self.of_machine(source.name, entry)

    def _gateway_of(self, node: str) -> str:
        """The machine by which a node's pods leave the pod network: the node, except with OVN."""
        return self._gateways.get(node, node)

    def _node_of(self, pod: Endpoint) -> _Addresses:
        return self._addresses[str(pod.node)]

    def _is_kept(self, node: str, address: str) -> bool:
        return any(IPv4Address(address) in network for network in self._not_masqueraded[node])


class ForeignSources:
    """:class:`SourceRules` for a network that is not as the lab plans it.

    Its devices are not known, only the addresses of the nodes. Kubernetes
    specifies the source between pods alone; elsewhere the pod's address and those of its node are
    allowed. What a node sends may have the address of a device that only a recognised network has
    told: of an unknown one, any is allowed.
    """

    def __init__(self, intent: Intent) -> None:
        self._known = bool(intent.cni)
        self._addresses = {
            machine.name: _strip_prefixes(
                tuple(a for card in machine.interfaces for a in card.held)
            )
            for machine in intent.machines
        }

    def of_machine(self, name: str, backend: Endpoint) -> frozenset[str]:
        """The node's addresses."""
        del backend
        return self._of_node(name)

    def of_pod_to_pod(self, pod: Endpoint) -> frozenset[str]:
        """The pod's own address: Kubernetes specifies no translation between pods."""
        return frozenset({pod.address})

    def of_pod_to_service(self, pod: Endpoint) -> frozenset[str]:
        """The pod's address, or its node's: kube-proxy may masquerade everything."""
        return self._of_node(str(pod.node), pod.address)

    def of_pod_to_itself(self, pod: Endpoint) -> frozenset[str]:
        """The pod's address, or its node's."""
        return self._of_node(str(pod.node), pod.address)

    def of_pod_to_address(self, pod: Endpoint, target: Endpoint) -> frozenset[str]:
        """The pod's address, or its node's."""
        del target
        return self._of_node(str(pod.node), pod.address)

    def of_node_port(self, entry: str, backend: Endpoint) -> frozenset[str]:
        """The entry node's addresses."""
        del backend
        return self._of_node(entry)

    def at_entry(self, source: Endpoint, entry: Endpoint) -> frozenset[str]:
        """Those of the source."""
        if source.kind == "pod":
            return self.of_pod_to_address(source, entry)
        return self.of_machine(source.name, entry)

    def _of_node(self, name: str, *others: str) -> frozenset[str]:
        return self._addresses[name] | {*others} if self._known else frozenset()


def _addresses(machine: MachineIntent) -> _Addresses:
    """The addresses of a machine; a masquerading device without an address may use any of them."""
    uplink = _strip_prefixes(tuple(a for card in machine.interfaces for a in card.addresses))
    bridge = _strip_prefixes(machine.bridge.addresses if machine.bridge else ())
    tunnel = _strip_prefixes(machine.tunnel.addresses if machine.tunnel else ())
    every = _strip_prefixes(tuple(text for _, texts in machine.addressed() for text in texts))
    nameless_tunnel = machine.tunnel is not None and not tunnel
    return _Addresses(
        os=machine.os,
        every=every,
        uplink=uplink,
        bridge=bridge or every,
        outward=every if nameless_tunnel else uplink | tunnel,
        routes=_map_ways(machine),
    )


def _map_ways(machine: MachineIntent) -> tuple[tuple[int, Mapping[int, _Way]], ...]:
    addressed = machine.addressed()
    held = {device: _strip_prefixes(texts) for device, texts in addressed}
    ways: dict[int, dict[int, _Way]] = {}

    def add_way(prefix: IPv4Network, device: str, source: str | None = None) -> None:
        host_bits = prefix.max_prefixlen - prefix.prefixlen
        number = int(prefix.network_address) >> host_bits
        own = frozenset((source,)) if source else frozenset[str]()
        ways.setdefault(host_bits, {}).setdefault(number, _Way(held.get(device, frozenset()), own))

    for device, texts in addressed:
        for text in texts:
            add_way(IPv4Interface(text).network, device)
    for route in machine.routes:
        prefix = _EVERYWHERE.get(route.destination, route.destination)
        add_way(IPv4Network(prefix), route.device, route.source)
    return tuple(sorted(ways.items()))


@lru_cache(maxsize=1 << 14)
def _number(address: str) -> int:
    return int(IPv4Address(address))


def _strip_prefixes(addresses: tuple[str, ...]) -> frozenset[str]:
    return frozenset(map(bare, addresses))


@dataclass(frozen=True, slots=True)
class SharedTarget:
    """A Service with several backends, and the pods behind it."""

    endpoint: Endpoint
    backends: tuple[Endpoint, ...]


def _choose_outside(intent: Intent, node: Endpoint) -> str:
    routed = {
        card.segment
        for machine in intent.machines
        if machine.kind == "router"
        for card in machine.interfaces
    }
    cards = intent.machine(node.name).interfaces
    known = [text for card in cards if card.segment in routed for text in card.addresses]
    return bare(known[0]) if known else node.address


def _service(service: PlannedService, os: Os, node: str | None) -> Endpoint:
    port = service.ports[0].port
    return Endpoint(service.name, "service", os, node, str(service.address), port)


def _make_shared_target(service: PlannedService, backends: tuple[Endpoint, ...]) -> SharedTarget:
    """A shared Service has the operating system of its first backend, and no node."""
    return SharedTarget(_service(service, backends[0].os, None), backends)


def _list_hosts(plan: Plan, nodes: Iterable[Endpoint]) -> tuple[Endpoint, ...]:
    """The nodes that run a kubelet."""
    pairs = zip(nodes, plan.nodes, strict=True)
    return tuple(endpoint for endpoint, node in pairs if node.pod_cidr is not None)


def _list_senders(plan: Plan, intent: Intent, hosts: tuple[Endpoint, ...]) -> tuple[Endpoint, ...]:
    """The hosts that can send: of an existing cluster Linux nodes, where a pod may send for them.

    On a Windows node that would take a HostProcess pod, which has all rights there.
    """
    if not intent.existing:
        return hosts
    is_probed = "node-pod" in plan.families
    return tuple(host for host in hosts if is_probed and host.os == "linux")


def _list_clients(plan: Plan, intent: Intent) -> tuple[Endpoint, ...]:
    address = str(plan.client_address)
    return tuple(
        Endpoint(machine.name, "client", machine.os, None, address, PROBE_PORT)
        for machine in intent.machines
        if machine.kind == "client"
    )


@dataclass(frozen=True, slots=True)
class LabEndpoints:
    """The endpoints of a lab, in the order of the plan, and the variants in which they are probed.

    ``nodes`` are all nodes, ``hosts`` those that run a kubelet. ``pods`` are probe pods only.
    """

    plan: Plan
    pods: tuple[Endpoint, ...]
    nodes: tuple[Endpoint, ...]
    hosts: tuple[Endpoint, ...]
    senders: tuple[Endpoint, ...]
    """The hosts that can send probes."""
    clients: tuple[Endpoint, ...]
    """The client outside; none in an existing cluster."""
    services: Mapping[str, Endpoint]
    """Pod name to the pod's own Service."""
    node_ports: Mapping[str, int]
    """Pod name to the NodePort of that Service."""
    shared: tuple[SharedTarget, ...]
    pods_of: Mapping[str, tuple[Endpoint, ...]]
    """Probe pods by node name; every node is a key."""
    dns_pod: Endpoint | None
    outside_addresses: Mapping[str, str]
    """Node name to its address for outside hosts: on a network that a router is on."""
    sources: SourceRules
    variants: tuple[Variant, ...]
    small: tuple[Variant, ...]
    mtu: int
    namespace: str
    machines: Mapping[str, MachineIntent]
    special: tuple[ProxiedService, ...]
    headless: tuple[HeadlessService, ...]
    services_node: ServicesNode | None
    on_cluster: bool
    """Whether its pods are Kubernetes' own, and those of Windows nodes are Windows."""

    @classmethod
    def of(cls, plan: Plan, intent: Intent) -> LabEndpoints:
        """The endpoints of a lab from its plan and Intent."""
        hosted = {
            machine.name: [
                (
                    pod,
                    Endpoint(
                        pod.name, "pod", machine.os, machine.name, bare(pod.address), PROBE_PORT
                    ),
                )
                for pod in machine.pods
            ]
            for machine in intent.machines
        }
        every_pod = {pod.name: endpoint for pods in hosted.values() for pod, endpoint in pods}
        services = _list_services(plan, intent)
        nodes = tuple(
            Endpoint(node.name, "node", node.os, node.name, str(node.address), PROBE_PORT)
            for node in plan.nodes
        )
        hosts = _list_hosts(plan, nodes)
        singles = [service for service in services if service.purpose == "single"]
        return cls(
            plan=plan,
            pods=tuple(
                endpoint
                for pods in hosted.values()
                for pod, endpoint in pods
                if pod.role == "probe"
            ),
            nodes=nodes,
            hosts=hosts,
            senders=_list_senders(plan, intent, hosts),
            clients=_list_clients(plan, intent),
            services={
                backend.name: _service(service, backend.os, backend.node)
                for service in singles
                for backend in [every_pod[service.backends[0]]]
            },
            node_ports={
                service.backends[0]: port.node_port
                for service in singles
                for port in service.ports
                if port.node_port is not None
            },
            shared=tuple(
                _make_shared_target(service, tuple(every_pod[name] for name in service.backends))
                for service in services
                if service.purpose == "shared"
            ),
            pods_of={
                node.name: tuple(
                    endpoint for pod, endpoint in hosted[node.name] if pod.role == "probe"
                )
                for node in plan.nodes
            },
            dns_pod=next(
                (
                    endpoint
                    for pods in hosted.values()
                    for pod, endpoint in pods
                    if pod.role == "dns"
                ),
                None,
            ),
            outside_addresses={node.name: _choose_outside(intent, node) for node in nodes},
            sources=Sources(intent) if intent.cni is None else ForeignSources(intent),
            variants=tuple((p, s, f"{p}-{s}") for p in plan.protocols for s in plan.sizes),
            small=tuple((p, "small", f"{p}-small") for p in plan.protocols),
            mtu=intent.pod_mtu,
            namespace=_namespace(intent),
            machines={machine.name: machine for machine in intent.machines},
            special=_list_special_services(plan, intent),
            headless=intent.headless,
            services_node=intent.services_node,
            on_cluster=intent.kubernetes is not None,
        )

    def nearest(self, node: str, os: Os, avoid: str) -> Endpoint | None:
        """A probe pod on another node with this operating system; deterministic.

        It is the first pod other than ``avoid`` on the nodes after ``node`` in the plan's order,
        then on those before it. If there is no other pod, ``avoid`` itself; None if no other node
        with this system has a pod.
        """
        names = [host.name for host in self.hosts]
        after = names.index(node) + 1
        last_resort = None
        for host in (*self.hosts[after:], *self.hosts[: after - 1]):
            if host.os != os:
                continue
            for pod in self.pods_of[host.name]:
                if pod.name != avoid:
                    return pod
                last_resort = pod
        return last_resort

    def local(self, node: str, avoid: str) -> Endpoint | None:
        """The node's first probe pod except ``avoid``; ``avoid`` if it is the only one, or None."""
        pods = self.pods_of[node]
        return next((pod for pod in pods if pod.name != avoid), pods[0] if pods else None)

    def asked_protocols(self, protocols: Iterable[Protocol]) -> Iterator[Protocol]:
        """The protocols among ``protocols`` that the scenario asks for."""
        return (protocol for protocol in protocols if protocol in self.plan.protocols)

    def nodes_and_services_node(self) -> tuple[tuple[Endpoint, ...], Endpoint]:
        """The nodes that probe the services node, and that node; without one, any node."""
        name = self.services_node.machine if self.services_node else ""
        asking = tuple(node for node in self.nodes if node.name != name)
        return asking, next((node for node in self.nodes if node.name == name), asking[0])


def _list_services(plan: Plan, intent: Intent) -> tuple[PlannedService, ...]:
    """The Services of the plan; with the addresses and node ports that the API server chose."""
    if intent.cni is None:
        return plan.services
    made = {service.name: service for service in proxying.probed_services(intent)}
    return tuple(
        replace(
            service, address=IPv4Address(made[service.name].address), ports=made[service.name].ports
        )
        for service in plan.services
        if service.name in made
    )


def _namespace(intent: Intent) -> str:
    searched = (pod.resolver.search for machine in intent.machines for pod in machine.pods)
    first = next((search[0] for search in searched if search), "default")
    return first.partition(".")[0]


def _list_special_services(plan: Plan, intent: Intent) -> tuple[ProxiedService, ...]:
    """The special Services from the Intent, which has the pods' real addresses on a cluster."""
    wanted = {service.name for service in plan.services if service.purpose == "special"}
    translations = (machine.translation for machine in intent.machines if machine.translation)
    services = next(translations).services if wanted else ()
    return tuple(service for service in services if service.name in wanted)


def find_relation(source: Endpoint, backend: Endpoint) -> Relation:
    """Where the backend is, relative to the source."""
    if source.node is None or backend.node is None:
        return "outside"
    if source.kind == "pod" and source.name == backend.name:
        return "self"
    return "same-node" if source.node == backend.node else "other-node"


SYSTEMS: tuple[Os, ...] = ("linux", "windows")
PLACEMENTS = ("local", *SYSTEMS)
Choose = Callable[[Endpoint], Endpoint]
"""Maps a source to the backend of its cell."""


def local_and_remote(
    lab: LabEndpoints, node: str, served: Mapping[str, object]
) -> dict[str, Choose]:
    """For each placement of a pod with a Service, the function that chooses a backend."""
    choices: dict[str, Choose] = {}
    for placement in PLACEMENTS:
        first = _choose_endpoint(lab, node, placement, "")
        if first is not None and first.name in served:
            other = _choose_endpoint(lab, node, placement, first.name)
            assert other is not None, "the first one is there"
            choices[placement] = partial(
                _pick_unless_same, first, other if other.name in served else first
            )
    return choices


def _choose_endpoint(lab: LabEndpoints, node: str, placement: str, avoid: str) -> Endpoint | None:
    for system in SYSTEMS:
        if placement == system:
            return lab.nearest(node, system, avoid)
    return lab.local(node, avoid)


def _pick_unless_same(first: Endpoint, other: Endpoint, source: Endpoint) -> Endpoint:
    return other if source.name == first.name else first
