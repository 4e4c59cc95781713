"""HNS' objects as the intended network of a node, and the changes from one to the next. Pure.

The Intent is the one that every provider reads, so that a Wine node has the namespaces provider's
devices, Service rules and Windows rules. What HNS cannot express otherwise:

- A load balancer without front-end addresses is a NodePort; it is a Service of its own, with an
  address that no packet has.
- The node of a backend matters only for being this one or another.
- What the node itself sends to its pods has its card's address, as on Windows, where the pods'
  gateway is the switch's and no address of the node.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from ipaddress import IPv4Network

from lab.providers.netns import windows
from lab.providers.netns.compile import compile_machine, compile_pod
from lab.providers.netns.operations import (
    AddressAdd,
    AddressRemove,
    BridgeAdd,
    LinkRemove,
    NamespaceOperations,
    Operation,
    RouteAdd,
    RouteRemove,
    RulesetLoad,
    VxlanAdd,
)
from lab.scenario.terms import Protocol, ServicePort
from lab.topology.intent import (
    SMALL,
    Backend,
    Bridge,
    ForwardingEntry,
    Intent,
    Interface,
    MachineIntent,
    Neighbour,
    Pod,
    ProxiedService,
    ProxyNeighbour,
    Resolver,
    Route,
    Translation,
    Tunnel,
)
from lab.windows.wine.hns import documents
from lab.windows.wine.hns.documents import Document
from lab.windows.wine.hns.filters import rules_of_node, rules_of_pod
from lab.windows.wine.hns.service import UNUSED_CARD, Card, HnsState

NODE = "node"
"""Name of the node's own network namespace."""
BRIDGE = "hns"
PORT = 4789
"""The UDP port of VXLAN on Windows, which nothing can change."""
VXLAN_OVERHEAD = 50
FIRST_INDEX = 100_000
"""Interface indexes from here on are HNS': the bridge's, the tunnel's, then two for each pod."""
NOWHERE = "0.0.0.0"  # noqa: S104  an address that no packet has, not one to listen at
_PROTOCOLS: Mapping[int, Protocol] = {6: "tcp", 17: "udp"}
_DISTRIBUTE_BY_CLIENT = frozenset({1, 2})
"""hcn.LoadBalancerDistributionSourceIPProtocol and ...SourceIP: session affinity."""
_AFFINITY_SECONDS = 10_800
"""Kubernetes' default; HNS is not told the Service's own."""
_IMAGES = {17763: "windows-server-2019", 20348: "windows-server-2022", 26100: "windows-server-2025"}


@dataclass(frozen=True, slots=True)
class NodeNetwork:
    """What a node's HNS has become."""

    machine: MachineIntent
    """Without pods, Windows' rules applied."""
    pods: Mapping[str, Pod]
    """By GUID of their endpoint."""
    filters: Mapping[str, str]
    """nftables scripts of access control lists: for a pod by GUID of its endpoint, and for the
    node by :data:`NODE`."""


def tunnel_name(vni: int) -> str:
    """Name of the Linux device of an overlay."""
    return f"vxlan{vni}"


def pod_network(state: HnsState) -> Document | None:
    """The network that has the pods: the newest."""
    return next(reversed([*state.of("networks").values()]), None)


def node_network(state: HnsState, off: frozenset[str] = frozenset()) -> NodeNetwork:
    """The node's network. ``off``: Windows rules that are switched off."""
    network = pod_network(state)
    cards = tuple(_interface(card) for card in state.cards)
    hardware = replace(SMALL, image=_IMAGES.get(state.build, SMALL.image))
    machine = MachineIntent(NODE, "node", "windows", cards, hardware=hardware, forwards=True)
    if network is None:
        return NodeNetwork(machine, {}, {})
    card = next(card for card in state.cards if card.name == network["NetworkAdapterName"])
    subnet = documents.subnet(network).get("IpAddressPrefix", "")
    overlay = str(network.get("Type", "")).lower() == "overlay"
    mtu = card.mtu - VXLAN_OVERHEAD * overlay
    pods = dict(_pods(state, network, mtu))
    bridge = _bridge(state, network, mtu)
    if bridge is not None:
        machine = replace(machine, routes=(Route(subnet, BRIDGE, source=_bare(card.address)),))
    machine = replace(machine, bridge=bridge, translation=_translation(state, network, subnet))
    others: tuple[MachineIntent, ...] = ()
    if overlay:
        machine = _with_tunnel(machine, network, card, mtu)
        others = tuple(_other(route.destination) for route in machine.routes if route.via)
    else:
        proxies = (ProxyNeighbour(_bare(pod.address), card.name) for pod in pods.values())
        machine = replace(machine, proxies=tuple(proxies))
    intent = Intent("hns", "", "", (), (machine, *others), mtu, card.mtu)
    plugged = {guid: state.of("endpoints")[guid] for guid in pods}
    scripts = {guid: rules_of_pod(endpoint) for guid, endpoint in plugged.items()}
    scripts[NODE] = rules_of_node({_bare(pods[guid].address): plugged[guid] for guid in pods})
    filters = {place: script for place, script in scripts.items() if script}
    return NodeNetwork(windows.realise(intent, off).machines[0], pods, filters)


def _interface(card: Card) -> Interface:
    addresses = (card.address,) if card.address else ()
    return Interface(card.name, card.name, card.mac, addresses, card.mtu)


def _other(prefix: str) -> MachineIntent:
    """Another node, of which only the pods' range is known."""
    return MachineIntent(prefix, "node", "linux", (), translation=Translation(prefix, (), ()))


def _bare(address: str) -> str:
    return address.partition("/")[0]


def _mac(text: str) -> str:
    return text.replace("-", ":").lower()


def _bridge(state: HnsState, network: Document, mtu: int) -> Bridge | None:
    """The virtual switch, with the addresses of it that the node itself has.

    An overlay has its gateway; a bridged network the node's own endpoint, which is the pods'
    gateway.
    """
    subnet = documents.subnet(network)
    prefix = subnet.get("IpAddressPrefix", "")
    if not prefix:
        return None
    held = [
        documents.address(state.of("endpoints")[guid])
        for guid in state.hosted
        if state.of("endpoints")[guid]["HostComputeNetwork"] == network["ID"]
    ]
    if str(network.get("Type", "")).lower() == "overlay":
        held.append(documents.gateway(subnet))
    addresses = tuple(f"{address}/32" for address in held if address)
    mac = f"0a:58:{bytes(IPv4Network(prefix).network_address.packed).hex(':')}"
    return Bridge(BRIDGE, mac, addresses, mtu)


def _with_tunnel(machine: MachineIntent, network: Document, card: Card, mtu: int) -> MachineIntent:
    """The overlay's end here, and its entries for each remote subnet."""
    vni = documents.isolation(network)
    router = next(documents.policies(network, "DrMacAddress"), {}).get("Address", "")
    if vni is None or not router:
        return machine
    subnet = IPv4Network(documents.subnet(network)["IpAddressPrefix"])
    name = tunnel_name(vni)
    neighbours, forwarding, routes = [], [], []
    for remote in documents.policies(network, "RemoteSubnetRoute"):
        prefix = str(remote["DestinationPrefix"])
        base = str(IPv4Network(prefix, strict=False).network_address)
        mac = _mac(str(remote["DistributedRouterMacAddress"]))
        neighbours.append(Neighbour(base, mac, name))
        if card != UNUSED_CARD:  # no other node can be reached from it
            forwarding.append(ForwardingEntry(mac, name, str(remote["ProviderAddress"])))
        routes.append(Route(prefix, name, base, onlink=True))
    return replace(
        machine,
        tunnel=Tunnel(
            name=name,
            vni=vni,
            port=PORT,
            local=_bare(card.address),
            device=card.name,
            mac=_mac(router),
            addresses=(f"{subnet.network_address}/32",),
            mtu=mtu,
        ),
        neighbours=tuple(neighbours),
        forwarding=tuple(forwarding),
        routes=(*machine.routes, *routes),
    )


def _pods(state: HnsState, network: Document, mtu: int) -> Iterator[tuple[str, Pod]]:
    """The endpoints in namespaces of pods, by GUID."""
    for guid, endpoint in state.of("endpoints").items():
        space = state.spaces.get(str(endpoint.get("HostComputeNamespace", "")).lower())
        if space is None or endpoint["HostComputeNetwork"] != network["ID"]:
            continue
        length = documents.prefix_length(endpoint)
        gateway = documents.gateway(endpoint) or documents.gateway(documents.subnet(network))
        yield (
            guid,
            Pod(
                name=space,
                role="probe",
                port=f"h{guid.replace('-', '')[:12]}",
                mac=_mac(str(endpoint["MacAddress"])),
                address=f"{documents.address(endpoint)}/{length}",
                gateway=gateway,
                mtu=mtu,
                neighbours=(),
                resolver=Resolver("", (), 1),
            ),
        )


def _translation(state: HnsState, network: Document, subnet: str) -> Translation:
    services: dict[tuple[str, ServicePort], ProxiedService] = {}
    for guid, balancer in state.of("loadbalancers").items():
        for service in _services(state, guid, balancer):
            (port,) = service.ports
            key = (service.address, replace(port, target_port=0))
            services.setdefault(key, service)  # an older load balancer goes first
    return Translation(subnet or None, _untranslated(state, network), tuple(services.values()))


def _untranslated(state: HnsState, network: Document) -> tuple[str, ...]:
    """Destinations that pods reach with their own address.

    They are what every pod's OutBoundNAT excepts, or all without such a policy. A policy without
    exceptions translates everything: a plugin that loses them on the way asks for that. One with
    destinations is win-bridge's ``loopbackDSR``, for what a pod sends to itself through a Service.
    """
    exceptions: list[tuple[str, ...]] = []
    for endpoint in state.of("endpoints").values():
        remote = int(endpoint.get("Flags") or 0) & documents.REMOTE
        if endpoint["HostComputeNetwork"] == network["ID"] and not remote:
            exceptions += [
                tuple(settings.get("Exceptions") or ())
                for settings in documents.policies(endpoint, "OutBoundNAT")
                if not settings.get("Destinations")
            ]
    if not exceptions:
        return ("0.0.0.0/0",)
    first, *others = exceptions
    return tuple(prefix for prefix in first if all(prefix in other for other in others))


def _services(state: HnsState, guid: str, balancer: Document) -> Iterator[ProxiedService]:
    backends = tuple(_backends(state, balancer))
    fronts = [str(address) for address in balancer.get("FrontendVIPs") or ()]
    # kube-proxy asks for it on a NodePort if externalTrafficPolicy is Local
    keeps_source = not fronts and int(balancer.get("Flags") or 0) & documents.DSR
    for number, mapping in enumerate(balancer.get("PortMappings") or ()):
        protocol = _PROTOCOLS.get(int(mapping.get("Protocol", 6)))
        if protocol is None:
            continue
        outer, inner = int(mapping["ExternalPort"]), int(mapping["InternalPort"])
        by_client = int(mapping.get("DistributionType") or 0) in _DISTRIBUTE_BY_CLIENT
        for place, address in enumerate(fronts or [NOWHERE]):
            node_port = None if fronts else outer
            yield ProxiedService(
                name=f"{guid[:8]}-{number}-{place}",
                address=address,
                ports=(ServicePort("", (protocol,), outer, inner, node_port),),
                backends=backends,
                affinity=_AFFINITY_SECONDS if by_client else None,
                outside="local" if keeps_source else "cluster",
            )


def _backends(state: HnsState, balancer: Document) -> Iterator[Backend]:
    """The load balancer's endpoints.

    With Direct Server Return a pod reaches itself only if an OutBoundNAT policy of its endpoint has
    its own address as a destination (``loopbackDSR``): Azure/AKS 2608, projectcalico/calico 5522,
    sig-windows-tools 119.
    """
    # no pod of a Windows node reaches a NodePort of its own node
    direct = not balancer.get("FrontendVIPs") or int(balancer.get("Flags") or 0) & documents.DSR
    for guid in balancer.get("HostComputeEndpoints") or ():
        endpoint = state.of("endpoints").get(str(guid).lower())
        if endpoint is None:
            continue
        address = documents.address(endpoint)
        loops = any(
            address in (_bare(str(prefix)) for prefix in settings.get("Destinations") or ())
            for settings in documents.policies(endpoint, "OutBoundNAT")
        )
        remote = int(endpoint.get("Flags") or 0) & documents.REMOTE
        where = "elsewhere" if remote else NODE
        yield Backend(str(guid)[:8], address, where, hairpin=loops or not direct)


def own_operations(machine: MachineIntent, indexes: Mapping[str, int]) -> NamespaceOperations:
    """The operations in the node's own namespace, whose cards keep their addresses."""
    (made,) = compile_machine(machine, indexes, FIRST_INDEX)
    cards = {card.name for card in machine.interfaces}
    kept = (
        operation
        for operation in made.operations
        if not (isinstance(operation, AddressAdd) and operation.device in cards)
    )
    return replace(made, operations=tuple(kept))


def changes(before: NamespaceOperations | None, after: NamespaceOperations) -> NamespaceOperations:
    """The operations that lead from one network of the node to the next.

    A device that differs is removed first, and what lay on it is added again.
    """
    done = before.operations if before else ()
    wanted = set(after.operations)
    gone = [operation for operation in done if operation not in wanted]
    lost = {operation.name for operation in gone if isinstance(operation, BridgeAdd | VxlanAdd)}
    kept = {operation for operation in done if not _devices(operation) & lost}
    undone = (_undo(operation) for operation in gone if not _lies_on(operation, lost))
    added = (operation for operation in after.operations if operation not in kept)
    operations = (*(LinkRemove(name) for name in sorted(lost)), *filter(None, undone), *added)
    known = dict(before.indexes if before else ()) | dict(after.indexes)
    return NamespaceOperations(after.namespace, tuple(known.items()), operations)


def _devices(operation: Operation) -> frozenset[str]:
    """The devices that an operation makes or names."""
    names = (getattr(operation, key, None) for key in ("name", "device", "master"))
    return frozenset(name for name in names if isinstance(name, str))


def _lies_on(operation: Operation, lost: Iterable[str]) -> bool:
    return bool(_devices(operation) & set(lost))


def _undo(operation: Operation) -> Operation | None:
    """What takes an operation back; None for what may stay, or is replaced by its successor."""
    if isinstance(operation, RouteAdd):
        route = operation
        return RouteRemove(route.destination, route.device, route.via, route.onlink, route.metric)
    if isinstance(operation, AddressAdd):
        return AddressRemove(operation.device, operation.address)
    return None


def pod_operations(
    pod: Pod, machine: MachineIntent, devices: Mapping[str, int], number: int
) -> tuple[NamespaceOperations, ...]:
    """The operations that plug a pod in. ``number``: the pod's, never used before."""
    return compile_pod(pod, machine, devices, FIRST_INDEX + 2 + 2 * number)


def rules(operations: NamespaceOperations) -> str:
    """The nftables script among the operations; empty if there is none."""
    return "".join(
        operation.text for operation in operations.operations if isinstance(operation, RulesetLoad)
    )
