"""Rules about address ranges: which are valid, and how they may relate."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Network

from lab._log import quantity
from lab.scenario import topics
from lab.scenario.findings import Key, Problem, quoted
from lab.scenario.reserved import HYPERVISOR_CIDR, OUTSIDE_CIDR, POD_RANGE_RESERVED
from lab.scenario.scenario import Scenario, node_names, pods_per_node, probe_pods

POD_CIDR: Key = ("kubernetes", "pod_cidr")
SERVICE_CIDR: Key = ("kubernetes", "service_cidr")
DNS_ADDRESS: Key = ("kubernetes", "dns_address")
NODE_PREFIX: Key = ("kubernetes", "node_prefix")
NODE_CIDR: Key = ("network", "cidr")
ROUTER: Key = ("network", "router")

WIDEST_SERVICES = 12
"""kube-apiserver and kubeadm refuse a service range of more than 20 bits."""
MAX_NODE_BITS = 16
"""kube-controller-manager refuses a pod range more than 16 bits wider than a node's range."""
OWN_SERVICES = 2
"""Services that every cluster has: kubernetes and the cluster's DNS."""
_EDGES = 2
"""A range's network and broadcast addresses."""
_SMALLEST = 4
"""Addresses of a /30, the smallest range with two usable ones. A smaller range is refused as too
small, and its addresses are not checked further."""

UNUSABLE = tuple(
    (IPv4Network(cidr), reason)
    for cidr, reason in (
        ("0.0.0.0/8", "means this host"),
        ("127.0.0.0/8", "is every machine's loopback"),
        ("169.254.0.0/16", "is link-local"),
        ("224.0.0.0/4", "is multicast"),
        ("240.0.0.0/4", "is reserved"),
    )
)
_PRIVATE = tuple(IPv4Network(cidr) for cidr in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"))


def check_ranges_are_usable(scenario: Scenario) -> Iterator[Problem]:
    """Ranges that cannot be used for a network."""
    for key, cidr in _list_ranges(scenario):
        for unusable, reason in UNUSABLE:
            if cidr.overlaps(unusable):
                hint = _suggest_elsewhere(scenario, key, cidr)
                yield Problem(key, f"{cidr} is within or around {unusable}, which {reason}", hint)
                break


def check_overlaps(scenario: Scenario) -> Iterator[Problem]:
    """Ranges that share addresses, with each other or with the lab's outside network."""
    ranges = _list_ranges(scenario)
    for number, (key, cidr) in enumerate(ranges):
        for other_key, other in ranges[:number]:
            if cidr.overlaps(other):
                message = f"{_name_key(key)} {cidr} overlaps {_name_key(other_key)} {other}"
                yield Problem(key, message, _suggest_elsewhere(scenario, key, cidr))
        for own, where in _own_networks(scenario):
            if cidr.overlaps(own):
                message = f"{_name_key(key)} {cidr} overlaps {own}, the lab's own network {where}"
                yield Problem(key, message, _suggest_elsewhere(scenario, key, cidr))


def check_service_range_width(scenario: Scenario) -> Iterator[Problem]:
    """A service range wider than the API server accepts."""
    cidr = scenario.kubernetes.service_cidr
    if cidr.prefixlen < WIDEST_SERVICES:
        message = (
            f"{_name_key(SERVICE_CIDR)} {cidr} is wider than /12, and kube-apiserver refuses that"
        )
        narrower = IPv4Network((cidr.network_address, WIDEST_SERVICES))
        yield Problem(SERVICE_CIDR, message, f"write {narrower}")


def check_pod_range_width(scenario: Scenario) -> Iterator[Problem]:
    """A node's range that does not fit into the pod range, or is too many bits narrower."""
    cidr, prefix = scenario.kubernetes.pod_cidr, scenario.kubernetes.node_prefix
    bits = prefix - cidr.prefixlen
    if bits < 0:
        message = f"a node's /{prefix} does not fit into {_name_key(POD_CIDR)} {cidr}"
        hint = f'write from {cidr.prefixlen} to 29, or a wider "pod_cidr"'
        yield Problem(NODE_PREFIX, message, hint if cidr.prefixlen <= 29 else 'widen "pod_cidr"')  # noqa: PLR2004  the longest node_prefix
    elif bits > MAX_NODE_BITS:
        message = f"{_name_key(POD_CIDR)} {cidr} is {bits} bits wider than a node's /{prefix}"
        allowed = f"kube-controller-manager allows {MAX_NODE_BITS}"
        narrower = IPv4Network((cidr.network_address, prefix - MAX_NODE_BITS))
        hint = f'write {narrower}, or "node_prefix: {cidr.prefixlen + MAX_NODE_BITS}"'
        yield Problem(POD_CIDR, f"{message}, and {allowed}", hint)


def check_pod_range_holds_nodes(scenario: Scenario) -> Iterator[Problem]:
    """A pod range with fewer node ranges than nodes."""
    cidr, prefix = scenario.kubernetes.pod_cidr, scenario.kubernetes.node_prefix
    nodes = sum(group.count for group in scenario.nodes if group.kubelet)
    bits = prefix - cidr.prefixlen
    if bits < 0 or nodes <= 2**bits:
        return
    parts = f"{2**bits} part" + ("" if bits == 0 else "s")
    message = (
        f"{_name_key(POD_CIDR)} {cidr} has {parts} of /{prefix}, and {nodes} nodes need one each"
    )
    yield Problem(POD_CIDR, message, _suggest_wider(cidr, prefix - _bits(nodes)))


def check_node_range_holds_pods(scenario: Scenario) -> Iterator[Problem]:
    """A node's range with fewer free addresses than pods; the worst node is named."""
    prefix = scenario.kubernetes.node_prefix
    size = 2 ** (32 - prefix)
    worst: dict[Key, tuple[int, str]] = {}
    for index, group in enumerate(scenario.nodes):
        pods = pods_per_node(scenario, group)
        dns = 1 if group.os == "linux" and group.kubelet else 0
        need = pods + dns + POD_RANGE_RESERVED
        key: Key = ("nodes", index, "pods") if group.pods is not None else NODE_PREFIX
        if group.kubelet and need > max(size, worst.get(key, (0, ""))[0]):
            beside = " and the DNS pod" if dns else ""
            worst[key] = need, f"{quantity(pods, 'pod')} of {quoted(group.name)}{beside}"
    for key, (need, whose) in worst.items():
        message = f"a node's /{prefix} has {size} addresses, {POD_RANGE_RESERVED} of them reserved"
        hint = f'write "node_prefix: {32 - _bits(need)}", or fewer pods'
        yield Problem(key, f"{message}: too few for the {whose}", hint)


def check_network_holds_nodes(scenario: Scenario) -> Iterator[Problem]:
    """A node network with fewer addresses than nodes."""
    cidr = scenario.network.cidr
    nodes = sum(group.count for group in scenario.nodes)
    need = nodes + 1 + _EDGES
    if cidr.num_addresses < need:
        room = max(0, cidr.num_addresses - 1 - _EDGES)
        fits = f"a router and {quantity(room, 'node')}"
        message = f"{_name_key(NODE_CIDR)} {cidr} has room for {fits}, not {nodes}"
        yield Problem(NODE_CIDR, message, _suggest_wider(cidr, 32 - _bits(need)))


def check_service_range_holds_services(scenario: Scenario) -> Iterator[Problem]:
    """A service range with fewer addresses than Services."""
    cidr = scenario.kubernetes.service_cidr
    pods, shared = probe_pods(scenario), len(scenario.services.shared)
    special = sum(not service.headless for service in scenario.services.special)
    need = pods + shared + special + OWN_SERVICES
    room = max(0, cidr.num_addresses - _EDGES)
    if room < need:
        message = (
            f"{_name_key(SERVICE_CIDR)} {cidr} has room for {room} Services, "
            f"and the lab has {need}: "
            f"{pods} for pods, {shared} shared, {f'{special} special, ' if special else ''}"
            "DNS and kubernetes"
        )
        yield Problem(SERVICE_CIDR, message, _suggest_wider(cidr, 32 - _bits(need + _EDGES)))


def check_dns_address(scenario: Scenario) -> Iterator[Problem]:
    """A DNS address that the cluster's DNS Service cannot have."""
    cidr, address = scenario.kubernetes.service_cidr, scenario.kubernetes.dns_address
    if cidr.num_addresses < _SMALLEST:
        return
    hint = f"write {cidr.network_address + min(10, cidr.num_addresses - _EDGES)}"
    if address not in cidr:
        message = f"{_name_key(DNS_ADDRESS)} {address} is outside {_name_key(SERVICE_CIDR)} {cidr}"
        yield Problem(DNS_ADDRESS, message, hint)
    elif address == cidr.network_address + 1:
        message = f'{address} is the first address of {cidr}, which the Service "kubernetes" has'
        yield Problem(DNS_ADDRESS, message, hint)
    elif address in {cidr.network_address, cidr.broadcast_address}:
        yield Problem(DNS_ADDRESS, f"{address} is an edge of {cidr}, not a Service's address", hint)


def check_router(scenario: Scenario) -> Iterator[Problem]:
    """A router's address that is outside the node network or at its edge."""
    cidr, address = scenario.network.cidr, scenario.network.router
    if cidr.num_addresses < _SMALLEST:
        return
    hint = f"write {cidr.network_address + 1} or {cidr.broadcast_address - 1}"
    if address not in cidr:
        yield Problem(ROUTER, f"{address} is outside the node network {cidr}", hint)
    elif address in {cidr.network_address, cidr.broadcast_address}:
        yield Problem(ROUTER, f"{address} is an edge of {cidr}, not a router's address", hint)


def check_node_addresses(scenario: Scenario) -> Iterator[Problem]:
    """Explicit node addresses that are outside the network, taken, or the router's."""
    cidr = scenario.network.cidr
    if cidr.num_addresses < _SMALLEST:
        return
    router = scenario.network.router
    taken: dict[IPv4Address, str] = {}
    first = cidr.network_address + 1
    fits = (first if first != router else first + 1, cidr.broadcast_address - 1)
    for index, group in enumerate(scenario.nodes):
        key: Key = ("nodes", index, "address")
        address = group.address
        if address is None or group.count > 1:
            continue
        name = quoted(group.name)
        if address not in cidr:
            message = f"{address} of {name} is outside the node network {cidr}"
            hint = f"write one from {fits[0]} to {fits[1]}: a lab has one node network only; "
            hint += f"see {topics.PAGE}"
            yield Problem(key, message, hint)
        elif address == router:
            hint = f"write one from {fits[0]} to {fits[1]}"
            which = f": the first of {cidr}" if address == first else ""
            yield Problem(key, f"{address} is the router's{which}", hint)
        elif address in {cidr.network_address, cidr.broadcast_address}:
            hint = f"write one from {fits[0]} to {fits[1]}"
            yield Problem(key, f"{address} is an edge of {cidr}, not a node's address", hint)
        elif address in taken:
            message = f"{address} is the address of {taken[address]} too"
            yield Problem(
                key, message, ("give each node its own, or leave it out: the plan chooses one")
            )
        taken.setdefault(address, f"{name} (line {group.line})")


def check_node_pod_ranges(scenario: Scenario) -> Iterator[Problem]:
    """Explicit pod ranges of nodes that are outside the cluster's, or taken."""
    whole, prefix = scenario.kubernetes.pod_cidr, scenario.kubernetes.node_prefix
    taken: dict[IPv4Network, str] = {}
    for index, group in enumerate(scenario.nodes):
        key: Key = ("nodes", index, "pod_cidr")
        cidr = group.pod_cidr
        if cidr is None or group.count > 1 or not group.kubelet:
            continue
        name = quoted(group.name)
        clash = next((other for other in taken if cidr.overlaps(other)), None)
        if cidr.prefixlen != prefix:
            message = f'{cidr} of {name} is a /{cidr.prefixlen}, but "node_prefix" is {prefix}'
            exact = IPv4Network((cidr.network_address, prefix), strict=False)
            yield Problem(key, message, f"write {exact}")
        elif not cidr.subnet_of(whole):
            message = f"{cidr} of {name} is outside {_name_key(POD_CIDR)} {whole}"
            first = IPv4Network((whole.network_address, max(prefix, whole.prefixlen)))
            yield Problem(key, message, f"write one within it, such as {first}")
        elif clash:
            message = f"{cidr} of {name} overlaps {clash} of {taken[clash]}"
            yield Problem(
                key, message, ("give each node its own, or leave it out: the plan chooses one")
            )
        taken.setdefault(cidr, f"{name} (line {group.line})")


def check_single_node_keys(scenario: Scenario) -> Iterator[Problem]:
    """Keys for a single machine on a group of several."""
    for index, group in enumerate(scenario.nodes):
        if group.count == 1:
            continue
        keys: list[Key] = [
            ("nodes", index, name)
            for name, value in (("address", group.address), ("pod_cidr", group.pod_cidr))
            if value is not None
        ]
        for number, nic in enumerate(group.nics):
            keys += [
                ("nodes", index, "nics", number, name)
                for name, value in (("address", nic.address), ("mac", nic.mac))
                if value is not None
            ]
        names = node_names(group)
        for key in keys:
            message = (
                f"{quoted(key[-1])} is for a single machine, but {quoted(group.name)} has "
                f"{group.count}"
            )
            hint = f"leave it out, or write {names[0]} to {names[-1]} as entries of their own"
            yield Problem(key, message, hint, at_key=True)


def _list_ranges(scenario: Scenario) -> tuple[tuple[Key, IPv4Network], ...]:
    return (
        (POD_CIDR, scenario.kubernetes.pod_cidr),
        (SERVICE_CIDR, scenario.kubernetes.service_cidr),
        (NODE_CIDR, scenario.network.cidr),
    )


def _own_networks(scenario: Scenario) -> Iterator[tuple[IPv4Network, str]]:
    yield OUTSIDE_CIDR, "outside"
    if scenario.hypervisors:
        yield HYPERVISOR_CIDR, "between hypervisors"


def _name_key(key: Key) -> str:
    return "the node network" if key == NODE_CIDR else quoted(key[-1])


def _bits(number: int) -> int:
    """Bits needed to number ``number`` things."""
    return (number - 1).bit_length()


def _suggest_wider(cidr: IPv4Network, prefix: int) -> str:
    if prefix < 8:  # noqa: PLR2004  no private range is wider than 10.0.0.0/8
        return "no private range is wide enough: make the lab smaller"
    return f"write a wider one, such as {cidr.supernet(new_prefix=prefix)}"


def _suggest_elsewhere(scenario: Scenario, key: Key, cidr: IPv4Network) -> str:
    """A hint with a private range of the same size that nothing else in the lab overlaps."""
    taken = [other for other_key, other in _list_ranges(scenario) if other_key != key]
    for block in _PRIVATE:
        start = int(block.network_address)
        while start + cidr.num_addresses - 1 <= int(block.broadcast_address):
            free = IPv4Network((start, cidr.prefixlen), strict=False)
            hit = next((other for other in taken if other.overlaps(free)), None)
            if hit is None:
                return f"write another range, such as {free}"
            past = max(int(hit.broadcast_address), int(free.broadcast_address)) + 1
            start = -(-past // cidr.num_addresses) * cidr.num_addresses
    return "write another range, and smaller ones if none is left"
