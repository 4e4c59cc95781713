"""Every rule about values of a scenario that depend on each other.

A rule is a pure function from a scenario to problems. It is not run if a part that it reads is a
stand-in for something broken: it would report values that the author never wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from fnmatch import fnmatchcase
from ipaddress import IPv4Network

from lab._dataclass import dataclass
from lab.scenario import address_rules as addresses
from lab.scenario import service_rules as services
from lab.scenario.address_rules import UNUSABLE
from lab.scenario.families import services_node_families
from lab.scenario.findings import Key, Problem, did_you_mean, quoted
from lab.scenario.reserved import NAMES
from lab.scenario.scenario import (
    MAX_NODES,
    NodeGroup,
    Scenario,
    StaticRoute,
    hypervisor_names,
    node_names,
    pod_names,
    probe_pods,
)
from lab.scenario.versions import (
    MAX_SKEW,
    REFUSED_IMAGES,
    SUPPORTED,
    WINDOWS_IMAGES,
    minor,
    unsupported,
)


def services_node(scenario: Scenario) -> Iterator[Problem]:
    """More than one services node, or one that runs Windows."""
    first = ""
    for index, group in enumerate(scenario.nodes):
        if group.role != "services":
            continue
        if group.os == "windows":
            message = f"{quoted(group.name)} is Windows, which has no HAProxy: no services node"
            yield Problem(("nodes", index, "os"), message, 'write "os: linux"')
        if first or group.count > 1:
            message = f"{quoted(group.name)} is a second services node, and a cluster has one"
            key: Key = ("nodes", index, "role" if group.count == 1 else "count")
            yield Problem(key, message, "keep only the first")
        first = first or group.name


def hypervisors(scenario: Scenario) -> Iterator[Problem]:
    """Nodes placed on a hypervisor that the scenario does not have, or named like one."""
    known = hypervisor_names(scenario)
    if not known:
        return
    for index, group in enumerate(scenario.nodes):
        hypervisor = group.hypervisor
        if hypervisor is not None and hypervisor not in known:
            message = f"{quoted(group.name)} is placed on {quoted(hypervisor)}, which is none of "
            message += f"the scenario's {len(known)} hypervisors"
            span = f"{known[0]} to {known[-1]}" if len(known) > 1 else known[0]
            hint = did_you_mean(
                hypervisor, known, (f"write {span}, or leave it out: the plan chooses one")
            )
            yield Problem(("nodes", index, "hypervisor"), message, hint)
        clash = next((name for name in node_names(group) if name in known), None)
        if clash:
            message = f"{quoted(clash)} is one of the scenario's hypervisors"
            yield Problem(("nodes", index, "name"), message, "give the node another name")


def families(scenario: Scenario) -> Iterator[Problem]:
    """Families of cells that need a services node, if there is none."""
    if any(group.role == "services" for group in scenario.nodes):
        return
    for family in scenario.matrix.families or ():
        if family in services_node_families():
            message = f"{quoted(family)} needs a services node, and there is none"
            hint = 'leave it out, or give a Linux node "role: services"'
            yield Problem(("matrix", "families"), message, hint)


NETBIOS = 15
"""Characters of a Windows computer name (NetBIOS)."""

MAX_NODE_NAME = 63 - len("to-") - len("-p250")
"""Characters of a node's name: the Service of its pod, to-NODE-pN, must be a DNS label too."""


def too_many_nodes(scenario: Scenario) -> Iterator[Problem]:
    """More nodes than a lab can have."""
    nodes = sum(group.count for group in scenario.nodes)
    if nodes > MAX_NODES:
        message = f"the lab has {nodes} nodes; the limit is {MAX_NODES}"
        yield Problem(("nodes",), message, "lower the counts")


def control_plane(scenario: Scenario) -> Iterator[Problem]:
    """No control plane, or one that runs Windows."""
    if not any(group.role == "control-plane" for group in scenario.nodes):
        message = "no node is a control plane, but a cluster needs one"
        yield Problem(("nodes",), message, 'give one Linux node "role: control-plane"', at_key=True)
    for index, group in enumerate(scenario.nodes):
        if group.role == "control-plane" and group.os == "windows":
            message = f"{quoted(group.name)} is Windows, which cannot be a control plane"
            hint = 'write "role: worker" here, and make a Linux node the control plane'
            yield Problem(("nodes", index, "role"), message, hint)


def without_kubelet(scenario: Scenario) -> Iterator[Problem]:
    """Workers without a kubelet, and nodes with pods but no kubelet."""
    for index, group in enumerate(scenario.nodes):
        if group.kubelet:
            continue
        name = quoted(group.name)
        if group.role == "worker":
            message = f"{name} is a worker without a kubelet, which does nothing"
            hint = 'delete "kubelet: false", or write "role: control-plane"'
            yield Problem(("nodes", index, "kubelet"), message, hint)
        if group.pods:
            message = f"{name} has pods but no kubelet to run them"
            hint = 'delete "pods", or "kubelet: false"'
            yield Problem(("nodes", index, "pods"), message, hint, at_key=True)
        if group.pod_cidr:
            message = f"{name} has a pod range but no kubelet, so no pods"
            hint = 'delete "pod_cidr", or "kubelet: false"'
            yield Problem(("nodes", index, "pod_cidr"), message, hint, at_key=True)


def somewhere_to_run(scenario: Scenario) -> Iterator[Problem]:
    """No pods for the matrix, or no Linux node for the cluster's DNS."""
    if not probe_pods(scenario):
        message = "no node has a pod, so there would be nothing to test"
        yield Problem(("nodes",), message, 'raise "pods_per_node" or a node\'s "pods"', at_key=True)
    if not any(group.kubelet and group.os == "linux" for group in scenario.nodes):
        message = "no Linux node runs a kubelet, so the cluster's DNS has nowhere to run"
        yield Problem(("nodes",), message, "add a Linux worker", at_key=True)


def lengths(scenario: Scenario) -> Iterator[Problem]:
    """Names too long for NetBIOS, or for the names derived from them."""
    for index, group in enumerate(scenario.nodes):
        longest = node_names(group)[-1]
        limit = NETBIOS if group.os == "windows" else MAX_NODE_NAME
        if len(longest) <= limit:
            continue
        whose = (
            f"a Windows computer name (NetBIOS) at most {limit}"
            if group.os == "windows"
            else f"a Linux node's at most {limit}, as its pods' Services to-NODE-pN are DNS labels"
        )
        message = f"{quoted(longest)} has {len(longest)} characters, and {whose}"
        digits = len(longest) - len(group.name)
        shorter = group.name[: limit - digits].rstrip("-")
        yield Problem(_name(index), message, f"shorten it, such as {quoted(shorter)}")


def names(scenario: Scenario) -> Iterator[Problem]:
    """Names that the lab uses itself, or that two nodes or pods would share."""
    taken: dict[str, str] = {}
    for index, group in enumerate(scenario.nodes):
        for name in node_names(group):
            if name in NAMES:
                message = f"{quoted(name)} is reserved: in every lab it is {NAMES[name]}"
                yield Problem(_name(index), message, "give the node another name")
        clash = next((name for name in _all_names(scenario, group) if name in taken), None)
        if clash:
            message = f"the name {quoted(clash)} is taken by {taken[clash]}"
            yield Problem(_name(index), message, "give one of the two another name")
        for name in node_names(group):
            taken.setdefault(name, f"a node of {quoted(group.name)} (line {group.line})")
        for name in pod_names(scenario, group):
            taken.setdefault(name, f"a pod of {quoted(group.name)} (line {group.line})")


def versions(scenario: Scenario) -> Iterator[Problem]:
    """Kubernetes minors that are not supported, and kubelets outside the skew policy."""
    cluster = scenario.kubernetes.version
    why = unsupported(cluster)
    if why:
        hint = f'write "{SUPPORTED[-1]}", or another from {SUPPORTED[0]} on'
        yield Problem(("kubernetes", "version"), f"Kubernetes {cluster} {why}", hint)
    for index, group in enumerate(scenario.nodes):
        if group.version is None:
            continue
        skew = minor(cluster) - minor(group.version)
        message = f"the kubelet {group.version} of {quoted(group.name)} is "
        hint = f'write "{cluster}", or leave it out for the cluster\'s own'
        key: Key = ("nodes", index, "version")
        policy = "Kubernetes version skew policy"
        if skew < 0:
            message += f"newer than the control plane {cluster}, which the {policy} forbids"
            yield Problem(key, message, hint)
        elif skew > MAX_SKEW:
            message += f"{skew} minors older than the control plane {cluster}, and the {policy} "
            yield Problem(key, f"{message}allows {MAX_SKEW}", hint)
        elif not why and (reason := unsupported(group.version)):
            yield Problem(key, f"Kubernetes {group.version} {reason}", hint)


def images(scenario: Scenario) -> Iterator[Problem]:
    """Windows images that do not exist, cannot join a cluster, or are for a Linux node."""
    for index, group in enumerate(scenario.nodes):
        if group.image is None:
            continue
        key: Key = ("nodes", index, "image")
        known = f"write {quoted(WINDOWS_IMAGES[-1])}"
        if group.os == "linux":
            if group.image in {*WINDOWS_IMAGES, *REFUSED_IMAGES}:
                message = f"{quoted(group.image)} is for Windows, but {quoted(group.name)} is Linux"
                yield Problem(key, message, 'write "os: windows", or leave the image out')
        elif group.image in REFUSED_IMAGES:
            yield Problem(key, f"{quoted(group.image)} {REFUSED_IMAGES[group.image]}", known)
        elif group.image not in WINDOWS_IMAGES:
            message = f"{quoted(group.image)} is not a known Windows image"
            hint = did_you_mean(group.image, WINDOWS_IMAGES, known)
            yield Problem(key, message, hint)


def cards(scenario: Scenario) -> Iterator[Problem]:
    """MAC addresses that two cards would share."""
    taken: dict[str, str] = {}
    for index, group in enumerate(scenario.nodes):
        for number, nic in enumerate(group.nics):
            if nic.mac is None:
                continue
            if nic.mac in taken:
                message = (
                    f"the MAC address {quoted(nic.mac)} is taken by a card of {taken[nic.mac]}"
                )
                key: Key = ("nodes", index, "nics", number, "mac")
                yield Problem(
                    key, message, ("give each card its own, or leave it out: the plan chooses one")
                )
            taken.setdefault(nic.mac, f"{quoted(group.name)} (line {group.line})")


def links(scenario: Scenario) -> Iterator[Problem]:
    """Links of no node, links that do nothing, and two entries for one direction of a link."""
    names = [name for group in scenario.nodes for name in node_names(group)]
    taken: dict[tuple[str, str], int] = {}
    for index, link in enumerate(scenario.links):
        key: Key = ("links", index)
        if link.delay_ms is None and link.loss is None and link.rate is None:
            message = f"the link of {quoted(link.node)} has no delay, loss or rate"
            yield Problem(key, message, 'write one of them, such as "rate: 10mbit"', at_key=True)
        matching = [name for name in names if fnmatchcase(name, link.node)]
        if not matching:
            message = f"no node in this lab has a name like {quoted(link.node)}"
            hint = did_you_mean(link.node, names, f"write a node's, such as {names[0]}")
            yield Problem((*key, "node"), message, hint)
        directions = ("sends", "receives") if link.direction == "both" else (link.direction,)
        ends = [(name, direction) for name in matching for direction in directions]
        clash = next((end for end in ends if end in taken), None)
        if clash:
            message = f"entry {taken[clash]} of the list says what {quoted(clash[0])} {clash[1]}"
            yield Problem((*key, "node"), message, "keep one entry for each direction of a link")
        for end in ends:
            taken.setdefault(end, index + 1)


def _name(index: int) -> Key:
    return ("nodes", index, "name")


def _all_names(scenario: Scenario, group: NodeGroup) -> Iterator[str]:
    yield from node_names(group)
    yield from pod_names(scenario, group)


def node_routes(scenario: Scenario) -> Iterator[Problem]:
    """Routes with an unreachable gateway, to a network the node is on, or duplicates."""
    for index, group in enumerate(scenario.nodes):
        networks = set()
        for number, route in enumerate(group.routes):
            key: Key = ("nodes", index, "routes", number)
            yield from _check_gateway(scenario, group, route, key)
            yield from _end(scenario, group, route, key)
            if route.to in networks:
                message = f"{quoted(group.name)} already has a route to {route.to}"
                yield Problem((*key, "to"), message, "leave one of them out")
            networks.add(route.to)


def _check_gateway(
    scenario: Scenario, group: NodeGroup, route: StaticRoute, key: Key
) -> Iterator[Problem]:
    segment, via = scenario.network.cidr, route.via
    usable = {segment.network_address, segment.broadcast_address}
    if via not in segment or via in usable:
        message = f"{via} is not an address of the nodes' segment {segment}, so no node reaches it"
        yield Problem((*key, "via"), message, f"write one of {segment}, such as the router's")
    elif via == group.address:
        message = f"{via} is the node's own address"
        yield Problem((*key, "via"), message, "write another machine's, such as the router's")
    elif via in route.to and not segment.subnet_of(route.to):
        message = f"{route.to} contains its own gateway {via}"
        yield Problem((*key, "to"), message, "write a narrower range, or another gateway")


def _may_be_own(scenario: Scenario, group: NodeGroup, to: IPv4Network) -> bool:
    """Whether the plan may choose pod ranges of the group's nodes from this range."""
    written = [node.pod_cidr for node in scenario.nodes if node.pod_cidr]
    chosen = group.kubelet and not group.pod_cidr and scenario.kubernetes.pod_cidr.overlaps(to)
    return chosen and not any(to.subnet_of(network) for network in written)


def _end(scenario: Scenario, group: NodeGroup, route: StaticRoute, key: Key) -> Iterator[Problem]:
    to, segment = route.to, scenario.network.cidr
    if to.prefixlen == 0:
        message = "the default route belongs to the router"
        yield Problem((*key, "to"), message, 'give the router another address: "network.router"')
    elif segment.subnet_of(to):
        message = f"{to} holds the nodes' own segment {segment}"
        yield Problem((*key, "to"), message, "write a range outside it, or a part of it")
    elif group.pod_cidr and group.pod_cidr.overlaps(to):
        message = f"{to} overlaps the node's own pods, {group.pod_cidr}"
        yield Problem((*key, "to"), message, "leave the route out: the pods are on the node itself")
    elif _may_be_own(scenario, group, to):
        message = (
            f"{to} may be the pods of {quoted(group.name)} itself, whose range the plan chooses"
        )
        owner = "the node" if group.count == 1 else "each node an entry of its own with"
        yield Problem((*key, "to"), message, f'give {owner} a "pod_cidr" beside it')
    else:
        for unusable, why in UNUSABLE:
            if to.overlaps(unusable):
                message = f"{to} is within or around {unusable}, which {why}"
                yield Problem((*key, "to"), message, "write a range of unicast addresses")


Check = Callable[[Scenario], Iterable[Problem]]


@dataclass(frozen=True, slots=True)
class Rule:
    """A check and the parts of the file that it reads; ``*`` means any entry."""

    check: Check
    needs: tuple[str, ...]


_RANGES = ("kubernetes.pod_cidr", "kubernetes.service_cidr", "network.cidr")
_PODS = ("pods_per_node", "nodes.*.count", "nodes.*.kubelet", "nodes.*.pods")
_NAMES = ("nodes.*.name", "nodes.*.count")
_SPECIAL = ("services.special",)
_RANGE = "services.check_node_ports"
_PREFIX = "kubernetes.node_prefix"

RULES: tuple[Rule, ...] = (
    Rule(addresses.check_ranges_are_usable, _RANGES),
    Rule(addresses.check_overlaps, _RANGES),
    Rule(addresses.check_service_range_width, ("kubernetes.service_cidr",)),
    Rule(addresses.check_pod_range_width, ("kubernetes.pod_cidr", _PREFIX)),
    Rule(addresses.check_pod_range_holds_nodes, ("kubernetes.pod_cidr", _PREFIX, *_PODS)),
    Rule(addresses.check_node_range_holds_pods, (_PREFIX, "nodes.*.os", *_PODS)),
    Rule(addresses.check_network_holds_nodes, ("network.cidr", "nodes.*.count")),
    Rule(
        addresses.check_service_range_holds_services,
        ("kubernetes.service_cidr", "services.shared.*", *_SPECIAL, *_PODS),
    ),
    Rule(addresses.check_dns_address, ("kubernetes.service_cidr", "kubernetes.dns_address")),
    Rule(addresses.check_router, ("network.cidr", "network.router")),
    Rule(
        addresses.check_node_addresses,
        ("network.cidr", "network.router", "nodes.*.count", "nodes.*.address"),
    ),
    Rule(
        addresses.check_node_pod_ranges,
        ("kubernetes.pod_cidr", _PREFIX, "nodes.*.count", "nodes.*.kubelet", "nodes.*.pod_cidr"),
    ),
    Rule(addresses.check_single_node_keys, ("nodes.*.count",)),
    Rule(control_plane, ("nodes.*.role", "nodes.*.os")),
    Rule(without_kubelet, ("nodes.*.role", "nodes.*.kubelet")),
    Rule(somewhere_to_run, ("nodes.*.os", *_PODS)),
    Rule(lengths, ("nodes.*.os", *_NAMES)),
    Rule(names, (*_NAMES, *_PODS)),
    Rule(versions, ("kubernetes.version", "nodes.*.version")),
    Rule(images, ("nodes.*.os", "nodes.*.image")),
    Rule(cards, ("nodes.*.nics",)),
    Rule(
        node_routes,
        ("network", "kubernetes.pod_cidr", "nodes.*.address", "nodes.*.pod_cidr", "nodes.*.routes"),
    ),
    Rule(services_node, ("nodes.*.role", "nodes.*.os", "nodes.*.count")),
    Rule(hypervisors, ("hypervisors", *_NAMES, "nodes.*.hypervisor")),
    Rule(families, ("matrix.families", "nodes.*.role")),
    Rule(links, ("links", *_NAMES)),
    Rule(services.check_shared_backends, ("services.shared.*.backends", *_PODS)),
    Rule(services.check_names, ("services.shared.*.name", "services.special.*.name", *_NAMES)),
    Rule(services.check_node_port_range, (_RANGE, "services.shared.*", *_SPECIAL, *_PODS)),
    Rule(
        services.check_exceptions,
        ("exceptions", "services.shared.*.name", "services.special.*.name", *_NAMES, *_PODS),
    ),
    Rule(services.check_assertions, ("assertions", *_NAMES, *_PODS)),
    Rule(services.check_backends, (*_SPECIAL, *_NAMES, *_PODS)),
    Rule(services.check_behaviour, _SPECIAL),
    Rule(services.check_subdomains, _SPECIAL),
    Rule(services.check_ports, _SPECIAL),
    Rule(services.check_node_ports, (_RANGE, *_SPECIAL)),
    Rule(services.check_asked_families, ("matrix.families", *_SPECIAL)),
)

TOPOLOGY_NEEDS = (
    "topology",
    "network",
    "kubernetes",
    "nodes.*.name",
    "nodes.*.os",
    "nodes.*.count",
    "nodes.*.role",
    "nodes.*.kubelet",
)
"""Parts that a topology's check may read."""


def problems(scenario: Scenario, tainted: Collection[Key], topology: Check) -> Iterator[Problem]:
    """Every problem that the rules and the topology's check find.

    ``scenario``: the scenario, with stand-ins for broken parts of the file. ``tainted``: key paths
    of the stand-ins. ``topology``: the check of the topology and its parameters.
    """
    too_many = tuple(too_many_nodes(scenario))
    yield from too_many
    unknown = {*tainted, *(problem.key for problem in too_many)}
    for rule in (*RULES, Rule(topology, TOPOLOGY_NEEDS)):
        if not any(_needs_key(need, key) for need in rule.needs for key in unknown):
            yield from rule.check(scenario)


def _needs_key(need: str, key: Key) -> bool:
    """Whether a part that a rule reads contains a key path, or is inside it."""
    parts = need.split(".")
    return all(part in {"*", str(name)} for part, name in zip(parts, key, strict=False))
