"""Rules about the static routes of nodes."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Network

from lab.scenario.address_rules import UNUSABLE
from lab.scenario.findings import Key, Problem, quoted
from lab.scenario.scenario import NodeGroup, Scenario, StaticRoute


def node_routes(scenario: Scenario) -> Iterator[Problem]:
    """Routes that lead nowhere, to where the node is already, or to one place twice."""
    for index, group in enumerate(scenario.nodes):
        seen = set()
        for number, route in enumerate(group.routes):
            key: Key = ("nodes", index, "routes", number)
            yield from _way(scenario, group, route, key)
            yield from _end(scenario, group, route, key)
            if route.to in seen:
                what = f"{quoted(group.name)} has a route to {route.to} already"
                yield Problem((*key, "to"), what, "leave one of them out")
            seen.add(route.to)


def _way(scenario: Scenario, group: NodeGroup, route: StaticRoute, key: Key) -> Iterator[Problem]:
    segment, via = scenario.network.cidr, route.via
    usable = {segment.network_address, segment.broadcast_address}
    if via not in segment or via in usable:
        what = f"{via} is no address of the nodes' segment {segment}, so no node reaches it"
        yield Problem((*key, "via"), what, f"write one of {segment}, such as the router's")
    elif via == group.address:
        what = f"{via} is the node's own address"
        yield Problem((*key, "via"), what, "write another machine's, such as the router's")
    elif via in route.to and not segment.subnet_of(route.to):
        what = f"{route.to} has {via} in it, which the route is to lead through"
        yield Problem((*key, "to"), what, "write a narrower range, or another way")


def _may_be_own(scenario: Scenario, group: NodeGroup, to: IPv4Network) -> bool:
    """Whether the plan may choose pods of the group's nodes from that range."""
    written = [one.pod_cidr for one in scenario.nodes if one.pod_cidr]
    chosen = group.kubelet and not group.pod_cidr and scenario.kubernetes.pod_cidr.overlaps(to)
    return chosen and not any(to.subnet_of(one) for one in written)


def _end(scenario: Scenario, group: NodeGroup, route: StaticRoute, key: Key) -> Iterator[Problem]:
    to, segment = route.to, scenario.network.cidr
    if to.prefixlen == 0:
        what = "the default route is the router's"
        yield Problem((*key, "to"), what, 'give the router another address: "network.router"')
    elif segment.subnet_of(to):
        what = f"{to} holds the nodes' own segment {segment}"
        yield Problem((*key, "to"), what, "write a range beside it, or a part of it")
    elif group.pod_cidr and group.pod_cidr.overlaps(to):
        what = f"{to} overlaps the node's own pods, {group.pod_cidr}"
        yield Problem((*key, "to"), what, "leave the route out: they are on the node itself")
    elif _may_be_own(scenario, group, to):
        what = f"{to} may be the pods of {quoted(group.name)} itself, whose range the plan chooses"
        one = "the node" if group.count == 1 else "each node an entry of its own with"
        yield Problem((*key, "to"), what, f'give {one} a "pod_cidr" beside it')
    else:
        for unusable, why in UNUSABLE:
            if to.overlaps(unusable):
                what = f"{to} is within or around {unusable}, which {why}"
                yield Problem((*key, "to"), what, "write a range that packets are sent to")
