"""Intent to netlink operations, one list per namespace, and to the responder's answers. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Interface
from itertools import count

from lab._errors import UsageError
from lab.providers.netns.namespaces import FABRIC, namespace_names
from lab.providers.netns.operations import (
    AddressAdd,
    BridgeAdd,
    ChecksumOff,
    ForwardingSet,
    HairpinOn,
    LinkUp,
    MasterSet,
    MtuSet,
    NamespaceOperations,
    NeighbourSet,
    Operation,
    ProxyDelaySet,
    ProxySet,
    RouteAdd,
    RouteSet,
    RulesetLoad,
    SysctlSet,
    TapAdd,
    VethAdd,
    VxlanAdd,
)
from lab.providers.netns.services import ruleset, ruleset_beside
from lab.providers.provider import PROBE_PORT
from lab.scenario.reserved import DNS_SERVICE, SECOND_POD_PORT
from lab.topology import proxying
from lab.topology.intent import (
    Bridge,
    Intent,
    Interface,
    MachineIntent,
    Neighbour,
    Pod,
    ProxiedService,
)
from lab.topology.machines import ROUTED_MAC

LOOPBACK = "lo"
LOOPBACK_INDEX = 1
_NAME_LENGTH = 15
"""IFNAMSIZ of linux/if.h minus the terminating zero."""

NO_IPV6 = (
    SysctlSet("net/ipv6/conf/all/disable_ipv6", "1", optional=True),
    SysctlSet("net/ipv6/conf/default/disable_ipv6", "1", optional=True),
)
UNFILTERED = SysctlSet("net/bridge/bridge-nf-call-iptables", "0", optional=True)
"""Packets that cross a switch bypass its machine's IP rules."""


@dataclass(slots=True)
class Draft:
    """The operations of one namespace under construction."""

    namespace: str
    indexes: dict[str, int] = field(default_factory=lambda: {LOOPBACK: LOOPBACK_INDEX})
    operations: list[Operation] = field(default_factory=list)

    def has(self, device: str, index: int) -> None:
        """Register a device that the operations create in the namespace."""
        if device in self.indexes or len(device) > _NAME_LENGTH:
            raise UsageError(
                f"compiling namespace '{self.namespace}'",
                f"device name '{device}' is used twice or longer than {_NAME_LENGTH} characters",
                "give the device another name in its topology",
            )
        self.indexes[device] = index

    def done(self) -> NamespaceOperations:
        """Freeze."""
        return NamespaceOperations(
            self.namespace, tuple(self.indexes.items()), tuple(self.operations)
        )


def port_mac(index: int) -> str:
    """The MAC of a bridge port or fabric bridge: locally administered, the same in every run."""
    return ":".join(f"{byte:02x}" for byte in (0x0E, 0, *index.to_bytes(4)))


def draft_fabric(intent: Intent, drafts: dict[str, Draft], indexes: count[int]) -> None:
    """The fabric: one bridge per segment that is not split over hypervisors, and its ports."""
    fabric = drafts[FABRIC]
    fabric.operations += [*NO_IPV6, UNFILTERED, LinkUp(LOOPBACK)]
    cards = [
        (machine.name, card)
        for machine in intent.everything()
        for card in machine.interfaces
        if card.host is None
    ]
    plugged = {card.segment for _, card in cards}
    for segment in (segment for segment in intent.segments if segment.name in plugged):
        index = next(indexes)
        fabric.has(segment.name, index)
        fabric.operations += _add_bridge(segment.name, index, port_mac(index), segment.mtu)
    for machine, card in cards:
        index = next(indexes)
        _add_cable(fabric, card.segment, f"p{index}", index, card, drafts[machine], next(indexes))


def _add_bridge(name: str, index: int, mac: str, mtu: int) -> tuple[Operation, ...]:
    return BridgeAdd(name, index, mac), MtuSet(name, mtu)


def _add_cable(  # noqa: PLR0913, PLR0917  both ends of it
    switch: Draft, bridge: str, port: str, index: int, card: Interface, machine: Draft, far: int
) -> None:
    """Plug a machine's card into a bridge by a veth pair; ``index`` and ``far`` are its indexes."""
    name = card.card or card.name
    switch.has(port, index)
    machine.has(name, far)
    switch.operations += [
        VethAdd(port, index, port_mac(index), machine.namespace, name, far, card.mac, card.mtu),
        MasterSet(port, bridge),
    ]


def draft_hypervisor(
    intent: Intent,
    machine: MachineIntent,
    drafts: dict[str, Draft],
    indexes: count[int],
) -> None:
    """A hypervisor's part of a segment: bridge, tunnel to the other hypervisors, and ports."""
    switch = machine.switch
    if switch is None:
        return
    cards = {
        (owner.name, card.name): card for owner in intent.machines for card in owner.interfaces
    }
    draft, index = drafts[machine.name], next(indexes)
    draft.has(switch.name, index)
    draft.operations += _add_bridge(switch.name, index, switch.mac, switch.mtu)
    if machine.tunnel:
        draft.operations.append(MasterSet(machine.tunnel.name, switch.name))
    for port in switch.ports:
        card, index = cards[port.machine, port.card], next(indexes)
        _add_cable(draft, switch.name, port.name, index, card, drafts[port.machine], next(indexes))


_STRAIGHT_KEYS = ("accept_redirects", "send_redirects", "rp_filter")
_STRAIGHT = tuple(
    SysctlSet(f"net/ipv4/conf/{where}/{key}", "0")
    for key in _STRAIGHT_KEYS
    for where in ("all", "default")
)
"""No redirects, and no reverse-path filter: a new namespace copies the host's settings."""
_STRAIGHT_HERE = tuple(SysctlSet(f"net/ipv4/conf/all/{key}", "0") for key in _STRAIGHT_KEYS)
"""The same for a shared namespace, without ``default``, which would affect other software's
devices. ``all`` must be 0 because it overrides the devices' own settings."""
_EVERY_REFUSAL = (SysctlSet("net/ipv4/icmp_ratemask", "0"),)
"""Disable ICMP rate limits: every refused probe must receive its refusal.

``icmp_ratelimit`` alone would leave the global limit, bursts of fifty (Linux,
Documentation/networking/ip-sysctl.rst: icmp_msgs_per_sec); the mask is checked before both.
"""


def compile_intent(intent: Intent) -> tuple[NamespaceOperations, ...]:
    """Every namespace with its operations, in the order in which to apply them.

    Raises UsageError if two namespaces or two devices of one namespace would have the same name, or
    a device name is too long for Linux.
    """
    names = namespace_names(intent)
    indexes = count(LOOPBACK_INDEX + 1)
    drafts = {name: Draft(name) for name in names}
    draft_fabric(intent, drafts, indexes)
    for machine in intent.everything():
        _add_machine(machine, drafts, indexes, shared=False)
        draft_hypervisor(intent, machine, drafts, indexes)
        for pod in machine.pods:
            _pod(pod, drafts[pod.name])
    if intent.logical:
        _disable_checksum_offload(intent, drafts)
    return tuple(draft.done() for draft in drafts.values())


def compile_machine(
    machine: MachineIntent, cards: Mapping[str, int], first_index: int
) -> tuple[NamespaceOperations, ...]:
    """One machine and its pods, in the order in which to apply them.

    The machine's namespace is shared with other software, whose objects are not changed.

    Parameters
    ----------
    machine
        Its interfaces already exist, without addresses.
    cards
        Interface indexes by name.
    first_index
        The first index for new interfaces; it and all above it must be free.

    Raises UsageError as :func:`compile_intent`.
    """
    drafts = {name: Draft(name) for name in (machine.name, *(pod.name for pod in machine.pods))}
    draft = drafts[machine.name]
    for interface in machine.interfaces:
        draft.has(interface.name, cards[interface.name])
        draft.operations.append(MtuSet(interface.name, interface.mtu))
    _add_machine(machine, drafts, count(first_index), shared=True)
    for pod in machine.pods:
        _pod(pod, drafts[pod.name])
    return tuple(draft.done() for draft in drafts.values())


def compile_pod(
    pod: Pod, machine: MachineIntent, devices: Mapping[str, int], first_index: int
) -> tuple[NamespaceOperations, ...]:
    """One more pod of a machine whose own devices exist, in the order in which to apply them.

    ``devices``: interface indexes of the machine's devices by name. ``first_index``: as for
    :func:`compile_machine`.

    Raises UsageError as :func:`compile_intent`.
    """
    drafts = {name: Draft(name) for name in (machine.name, pod.name)}
    draft = drafts[machine.name]
    draft.indexes.update(devices)
    _plug(pod, machine, drafts, count(first_index))
    draft.operations += _by_device(pod.port)
    _pod(pod, drafts[pod.name])
    return tuple(draft.done() for draft in drafts.values())


def _add_machine(
    machine: MachineIntent, drafts: dict[str, Draft], indexes: count[int], *, shared: bool
) -> None:
    """``shared``: whether other software uses the machine's namespace, too."""
    draft = drafts[machine.name]
    draft.operations += _settings(machine, shared=shared)
    draft.operations.append(LinkUp(LOOPBACK))
    for interface in machine.interfaces:
        if interface.card:
            draft.operations.append(LinkUp(interface.card))
            _add_tap(interface, draft, indexes)
        draft.operations.append(LinkUp(interface.name))
        draft.operations += [AddressAdd(interface.name, address) for address in interface.addresses]
    if machine.bridge:
        bridge = machine.bridge
        if bridge.switch:
            _add_tap(bridge, draft, indexes)
            draft.operations.append(LinkUp(bridge.name))
        else:
            index = next(indexes)
            draft.has(bridge.name, index)
            draft.operations += _add_bridge(bridge.name, index, bridge.mac, bridge.mtu)
        draft.operations += [AddressAdd(bridge.name, address) for address in bridge.addresses]
    if machine.tunnel:
        tunnel, index = machine.tunnel, next(indexes)
        draft.has(tunnel.name, index)
        draft.operations.append(
            VxlanAdd(
                tunnel.name,
                index,
                tunnel.mac,
                tunnel.mtu,
                tunnel.vni,
                tunnel.port,
                tunnel.local,
                tunnel.device,
            )
        )
        draft.operations += [AddressAdd(tunnel.name, address) for address in tunnel.addresses]
    for pod in machine.pods:
        _plug(pod, machine, drafts, indexes)
    for device in draft.indexes if shared else ():
        draft.operations += _by_device(device)
    draft.operations += _add_routes(machine, RouteAdd if shared else RouteSet)
    rules = ruleset_beside(machine) if shared else ruleset(machine)
    if rules:
        draft.operations.append(RulesetLoad(rules))


def _add_tap(device: Interface | Bridge, draft: Draft, indexes: count[int]) -> None:
    """Create a device for a virtual switch, which takes it over unchanged when it starts."""
    index = next(indexes)
    draft.has(device.name, index)
    draft.operations += [TapAdd(device.name, index, device.mac), MtuSet(device.name, device.mtu)]


def _disable_checksum_offload(intent: Intent, drafts: dict[str, Draft]) -> None:
    """Turn off checksum offload for senders into a virtual switch."""
    for machine in intent.machines:
        draft = drafts[machine.name]
        draft.operations += [
            ChecksumOff(interface.name) for interface in machine.interfaces if not interface.card
        ]
        if machine.chassis:
            for pod in machine.pods:
                drafts[pod.name].operations.append(ChecksumOff("eth0"))


def _settings(machine: MachineIntent, *, shared: bool) -> Iterator[SysctlSet]:
    """The settings of a machine's namespace; in a shared one, no defaults for new devices."""
    if not shared:
        yield from NO_IPV6
    # before the others: writing ip_forward resets the redirect settings
    yield SysctlSet("net/ipv4/ip_forward", "1" if machine.forwards else "0")
    yield from _STRAIGHT_HERE if shared else _STRAIGHT
    yield from _EVERY_REFUSAL
    if machine.switch:
        yield UNFILTERED
    elif machine.bridge and machine.bridge.switch is None:
        yield SysctlSet("net/bridge/bridge-nf-call-iptables", "1")


def _by_device(device: str) -> tuple[SysctlSet, ...]:
    """Settings for each device of the lab; other software's devices keep theirs."""
    if device == LOOPBACK:
        return ()
    return (
        SysctlSet(f"net/ipv6/conf/{device}/disable_ipv6", "1", optional=True),
        *(SysctlSet(f"net/ipv4/conf/{device}/{key}", "0") for key in _STRAIGHT_KEYS),
    )


def _plug(pod: Pod, machine: MachineIntent, drafts: dict[str, Draft], indexes: count[int]) -> None:
    index, far = next(indexes), next(indexes)
    draft = drafts[machine.name]
    draft.has(pod.port, index)
    drafts[pod.name].has("eth0", far)
    mac = port_mac(index) if machine.bridge else ROUTED_MAC
    draft.operations.append(VethAdd(pod.port, index, mac, pod.name, "eth0", far, pod.mac, pod.mtu))
    if machine.bridge and machine.bridge.switch is None:
        draft.operations += [MasterSet(pod.port, machine.bridge.name), HairpinOn(pod.port)]


def _add_routes(machine: MachineIntent, route_type: type[RouteSet | RouteAdd]) -> list[Operation]:
    """Static routes (on-link ones first), neighbours, forwarding entries and proxies."""
    static = (route for route in machine.routes if route.by is None)
    routes = sorted(static, key=lambda route: route.via is not None)
    operations: list[Operation] = [
        route_type(route.destination, route.device, route.via, route.onlink, route.source)
        for route in routes
    ]
    operations += _add_neighbours(machine.neighbours)
    operations += [
        ForwardingSet(entry.mac, entry.device, entry.remote) for entry in machine.forwarding
    ]
    proxied = dict.fromkeys(proxy.device for proxy in machine.proxies)
    operations += [ProxyDelaySet(device, 0) for device in proxied]
    operations += [ProxySet(proxy.address, proxy.device) for proxy in machine.proxies]
    return operations


def _add_neighbours(neighbours: tuple[Neighbour, ...]) -> list[NeighbourSet]:
    return [
        NeighbourSet(neighbour.address, neighbour.mac, neighbour.device) for neighbour in neighbours
    ]


def _pod(pod: Pod, draft: Draft) -> None:
    onlink = IPv4Address(pod.gateway) not in IPv4Interface(pod.address).network
    draft.operations += [
        *NO_IPV6,
        SysctlSet("net/ipv4/ip_forward", "0"),
        *_STRAIGHT,
        *_EVERY_REFUSAL,
        LinkUp(LOOPBACK),
        LinkUp("eth0"),
        AddressAdd("eth0", pod.address),
        RouteSet("default", "eth0", pod.gateway, onlink),
        *_add_neighbours(pod.neighbours),
    ]


def configuration(intent: Intent, only: frozenset[str] | None = None) -> str:
    """The responder's configuration as JSON, limited to the namespaces in ``only``. Pure.

    :mod:`lab.providers.netns.responder` describes the format. Pods, nodes and the client answer;
    router and hypervisors do not. A machine with an API server also answers on the API port, which
    emulates the server, unless the real one runs there. Service names are
    ``NAME.default.svc.DOMAIN`` and ``kube-dns.kube-system.svc.DOMAIN``; behind a headless Service
    each pod also has ``POD.NAME.default.svc.DOMAIN``.
    """
    entries = [
        entry for entry in _list_entries(intent) if only is None or entry["namespace"] in only
    ]
    return json.dumps(entries)


def _entry(
    namespace: str, name: str = "", tcp: Sequence[int] = (), udp: Sequence[int] = (), **more: object
) -> dict[str, object]:
    usual = {"namespace": namespace, "name": name or namespace, "tcp": tcp, "udp": udp}
    return {**usual, "dns": None, "health": None, "forward": None, **more}


def _list_entries(intent: Intent) -> Iterator[dict[str, object]]:
    front = intent.services_node
    domain = f"{intent.domain}.".lower()
    forward = {"to": front.address, "but": domain} if front else None
    services = _services(intent)
    twice = proxying.asked_on(services, SECOND_POD_PORT)
    for machine in intent.machines:
        if machine.kind != "router":
            is_api = front and not front.tls and machine.name in front.api_servers
            tcp = (PROBE_PORT, front.api_port) if front and is_api else (PROBE_PORT,)
            yield _entry(
                machine.name, tcp=tcp, udp=(PROBE_PORT,), health=_list_health_ports(machine)
            )
        for pod in machine.pods:
            if pod.role == "dns":
                yield _entry(pod.name, dns=names(intent), forward=forward)
            else:
                yield _entry(pod.name, tcp=(PROBE_PORT,), udp=(PROBE_PORT,))
            if pod.name in twice:
                yield _entry(pod.name, f"{pod.name}:{SECOND_POD_PORT}", tcp=(SECOND_POD_PORT,))


def _services(intent: Intent) -> Sequence[ProxiedService]:
    """Every Service that some machine translates, without duplicates."""
    services: dict[str, ProxiedService] = {}
    for machine in intent.machines:
        for service in machine.translation.services if machine.translation else ():
            services.setdefault(service.name, service)
    return tuple(services.values())


def _list_health_ports(machine: MachineIntent) -> dict[int, tuple[str, int]] | None:
    health = {
        service.health_port: (service.name, len(proxying.local(service, machine.name)))
        for service in (machine.translation.services if machine.translation else ())
        if service.health_port is not None
    }
    return health or None


def names(intent: Intent) -> dict[str, tuple[str, ...]]:
    """Addresses by name in the cluster's domain, in lower case with a final dot."""
    addresses: dict[str, tuple[str, ...]] = {}
    for service in _services(intent):
        space = "kube-system" if service.name == DNS_SERVICE else "default"
        addresses[f"{service.name}.{space}.svc.{intent.domain}.".lower()] = (service.address,)
    for headless in intent.headless:
        name = f"{headless.name}.default.svc.{intent.domain}.".lower()
        addresses[name] = tuple(backend.address for backend in headless.backends)
        addresses |= {f"{backend.pod}.{name}": (backend.address,) for backend in headless.backends}
    return addresses
