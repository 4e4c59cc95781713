"""The first hop: the pod, its interface, and its port on the node."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from lab.explain.check import (
    DNS_PORT,
    HNS_ENDPOINTS,
    NEW_LAB,
    Check,
    Kind,
    Look,
    OnWindows,
    Wanted,
    at_object,
    wanted_up,
)
from lab.facts.difference import Difference
from lab.facts.items import (
    CARRIER,
    HAIRPIN,
    LinkFacts,
    make_address,
    make_attribute,
    make_device,
    make_neighbour,
    make_route,
)
from lab.facts.node import PodFacts
from lab.topology.commands import format_route, replace_neighbour, replace_route, tables
from lab.topology.intent import Pod, Route
from lab.topology.observed import NAMESPACE
from lab.topology.path import Hop, Path
from lab.topology.routing import bare, covers, network_of
from lab.topology.subject import NeighbourSubject, PodSubject, PortSubject


def _at_way_out(difference: Difference, hop: Hop, path: Path) -> bool:
    return hop.kind == "way-out" and at_object(difference, hop, path)


def _at_question(difference: Difference, hop: Hop, path: Path) -> bool:
    asks = path.flow.port == DNS_PORT and hop.place == path.flow.source
    return asks and at_object(difference, hop, path)


def _at_target(difference: Difference, hop: Hop, path: Path) -> bool:
    return hop.place == path.request[-1].place and at_object(difference, hop, path)


def _at_hairpin(difference: Difference, hop: Hop, path: Path) -> bool:
    comes_back = path.request[0].place == path.request[-1].place
    return comes_back and at_object(difference, hop, path)


def _without_endpoint(pod: Pod) -> OnWindows:
    """A pod on Windows gets another endpoint only as another pod, which the lab makes."""
    delete = f"kubectl --namespace={NAMESPACE} delete pod {pod.name}"
    return OnWindows(
        HNS_ENDPOINTS,
        advice=f"delete the pod ({delete}); the next 'lab test' makes it again, with an endpoint",
        fault="hns-endpoint-removed",
    )


def _may_be_unread(look: Look, pod: Pod) -> bool:
    """Whether it can be there: a cluster's pods are known by what is in them."""
    unread = {part.pod for part in look.observed.unread if part.pod}
    return bool(unread) if look.by == "kubernetes" else pod.name in unread


def _wanted_port(look: Look, pod: Pod) -> Iterator[Wanted]:
    """The node's end of the pod's cable."""
    bridge, name, kind = look.intended.bridge, pod.port, "pod-link-down"
    subject, shows = PortSubject(name, pod.name, of_pod=True), f"ip -details link show dev {name}"
    yield Wanted(kind, subject, make_device(name), shows=shows, mends=NEW_LAB)
    yield wanted_up(kind, subject, name, tables(look.intended, name))
    if bridge and bridge.switch:
        return  # a virtual switch has the port; another check covers it
    hairpin = make_attribute(name, HAIRPIN, "true")
    if bridge and look.observed.items.attribute(name, "master") != bridge.name:
        item = make_attribute(name, "master", bridge.name)
        mends = f"{item.make} && {hairpin.make}"
        yield Wanted(kind, subject, item, shows=shows, mends=mends, none="plugged into nothing")
    else:
        yield Wanted(
            "hairpin-off",
            subject,
            hairpin,
            shows=f"bridge -details link show dev {name}",
            intended="in hairpin mode, which a pod needs to reach itself through a Service",
            words="hairpin mode {}",
        )


def _inside(look: Look, pod: Pod, facts: PodFacts) -> Iterator[Difference]:
    subject, cards = PodSubject(pod.name), sorted(facts.links, key=lambda link: link.name != "eth0")
    if not cards:
        yield look.differs(
            "pod-link-down", subject, "a card", "it has none", "ip link", "delete the pod"
        )
        return
    port = look.observed.link(pod.port)
    carrier = port is None or port.up
    lost = tuple(_lost_with(pod, cards[0].name, by_lab=look.by == "lab"))
    wanted = _wanted_link(subject, cards[0].name, lost, carrier=carrier)
    down = [*look.compare_pod(wanted, facts, pod.name)]
    yield from down
    if not down:
        yield from look.compare_pod(_wanted_inside(look, pod, cards[0], facts), facts, pod.name)
        yield from _answers(look, pod, facts)


def _wanted_link(
    subject: PodSubject, card: str, lost: Iterable[str], *, carrier: bool
) -> Iterator[Wanted]:
    """``carrier``: whether the node's end is up, or is not known."""
    up, words = wanted_up("pod-link-down", subject, card, lost), f"{card} {{}}"
    yield replace(up, words=words)
    if carrier:
        item = make_attribute(card, "carrier", CARRIER)
        yield Wanted("pod-link-down", subject, item, mends=up.mends, words=words)


def _way_out(pod: Pod, card: str) -> Route:
    onlink = not covers(network_of(pod.address), pod.gateway) if pod.gateway else True
    return Route("default", card, pod.gateway, onlink)


def _lost_with(pod: Pod, card: str, *, by_lab: bool) -> Iterator[str]:
    """The commands for what a pod loses with its card."""
    yield replace_route(_way_out(pod, card))
    for neighbour in pod.neighbours if by_lab else ():
        yield replace_neighbour(neighbour.address, neighbour.mac, card)


def _wanted_inside(look: Look, pod: Pod, card: LinkFacts, facts: PodFacts) -> Iterator[Wanted]:
    subject = PodSubject(pod.name)
    if bare(pod.address) not in map(bare, card.addresses):
        item = make_address(pod.address, card.name)
        lost = () if card.addresses else _lost_with(pod, card.name, by_lab=look.by == "lab")
        yield Wanted("pod-address", subject, item, mends=" && ".join((item.make, *lost)))
    yield Wanted("pod-mtu", subject, make_attribute(card.name, "mtu", str(pod.mtu)))
    default = facts.items.route("default")  # whatever its device is called, if it has one
    device = default.device if default else ""
    yield Wanted(
        "pod-gateway",
        subject,
        make_route(format_route(_way_out(pod, device or card.name))),
        words="a default route {}",
        none="no default route",
    )
    for neighbour in pod.neighbours if look.by == "lab" else ():
        item = make_neighbour(neighbour.address, card.name, neighbour.mac)
        named = NeighbourSubject(neighbour.address, pod=pod.name)
        yield Wanted("pod-neighbour", named, item, None)


def _answers(look: Look, pod: Pod, facts: PodFacts) -> Iterator[Difference]:
    if facts.resolver and facts.resolver.server != pod.resolver.server and pod.role == "probe":
        yield look.differs(
            "pod-resolver",
            PodSubject(pod.name),
            f"DNS server {pod.resolver.server}",
            f"DNS server {facts.resolver.server}",
            "in the pod: cat /etc/resolv.conf",
            "correct clusterDNS in kubelet's configuration, and delete the pod",
            place=pod.name,
            attribute="resolver",
            values=(facts.resolver.server,),
        )
    if facts.listening is None:
        return
    wanted = {DNS_PORT} if pod.role == "dns" else _ports(look, pod)
    open_ports = {port for _, port in facts.listening}
    for port in sorted(wanted - open_ports):
        yield look.differs(
            "pod-not-listening",
            PodSubject(pod.name),
            f"a program that listens on port {port}",
            "ports " + (", ".join(map(str, sorted(open_ports))) or "none"),
            "in the pod: ss -lntu",
            "delete the pod, and see its log",
            place=pod.name,
            attribute="listening",
            values=tuple(map(str, sorted(open_ports))),
        )


def _ports(look: Look, pod: Pod) -> set[int]:
    """The ports in this pod to which Services send packets."""
    services = look.intended.translation.services if look.intended.translation else ()
    behind = [
        service for service in services if any(end.pod == pod.name for end in service.backends)
    ]
    return {port.target_port for service in behind for port in service.ports}


class PodCheck(Check):
    """The pods of a node: interface, port, default route and programs of each."""

    order = 10
    question = "address"
    kinds = (
        Kind(
            "pod-missing",
            windows=OnWindows(HNS_ENDPOINTS, fault="hns-endpoint-removed"),
        ),
        Kind(
            "pod-link-down",
            fault="pod-link-down",
            windows=OnWindows(
                HNS_ENDPOINTS,
                advice="delete the pod; on build 1909 run kube-proxy as "
                "NT AUTHORITY\\NetworkService",
            ),
        ),
        Kind("pod-address"),
        Kind("pod-gateway", meets=_at_way_out),
        Kind("pod-mtu", fault="mtu-black-hole"),
        Kind("pod-neighbour"),
        Kind("pod-resolver", meets=_at_question),
        Kind("pod-not-listening", meets=_at_target, of_containers=True),
        Kind("hairpin-off", meets=_at_hairpin),
    )

    def on_machine(self, look: Look) -> Iterator[Difference]:
        for pod in look.intended.pods:
            known = look.by == "lab" or look.observed.link(pod.port)
            if known and look.observed.os == "linux":
                yield from look.compare(_wanted_port(look, pod))
            if look.observed.pods is not None:
                facts = look.pod_facts(pod)
                if facts is None and (look.lacks_pod_network or _may_be_unread(look, pod)):
                    continue
                if facts is None:
                    yield look.differs(
                        "pod-missing",
                        PodSubject(pod.name),
                        f"there, with {pod.address}",
                        "no pod here has that name or address",
                        "crictl pods" if look.by == "kubernetes" else "ip netns",
                        "delete the pod, so that it is created again"
                        if look.by == "kubernetes"
                        else NEW_LAB,
                        windows=_without_endpoint(pod),
                    )
                else:
                    yield from _inside(look, pod, facts)
