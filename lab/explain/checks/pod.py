"""The first hop: the pod, its interface, and its port on the node."""

from __future__ import annotations

from collections.abc import Iterator

from lab.explain.check import DNS_PORT, HNS_ENDPOINTS, NEW_LAB, Check, Kind, Look, at_object
from lab.facts.command_lines import IN_POD
from lab.facts.difference import Difference
from lab.facts.node import PodFacts
from lab.topology.intent import Pod
from lab.topology.path import Hop, Path
from lab.topology.routing import bare, covers, network_of
from lab.topology.subject import NeighbourSubject, PodSubject, PortSubject


def _at_way_out(difference: Difference, hop: Hop, path: Path) -> bool:
    return hop.kind == "way-out" and at_object(difference, hop, path)


def _at_question(difference: Difference, hop: Hop, path: Path) -> bool:
    asks = path.flow.port == DNS_PORT and hop.place == path.flow.source
    return asks and at_object(difference, hop, path)


def _at_target(difference: Difference, hop: Hop, path: Path) -> bool:
    return hop.place == path.there[-1].place and at_object(difference, hop, path)


def _at_hairpin(difference: Difference, hop: Hop, path: Path) -> bool:
    comes_back = path.there[0].place == path.there[-1].place
    return comes_back and at_object(difference, hop, path)


def _seen(look: Look, pod: Pod) -> PodFacts | None:
    pods = look.observed.pods or ()
    named = next((candidate for candidate in pods if candidate.name == pod.name), None)
    if named:
        return named
    address = bare(pod.address)
    return next(
        (candidate for candidate in pods if address in map(bare, candidate.addresses())), None
    )


def _may_be_unread(look: Look, pod: Pod) -> bool:
    """Whether it can be there: a cluster's pods are known by what is in them."""
    unread = {part.pod for part in look.observed.unread if part.pod}
    return bool(unread) if look.by == "kubernetes" else pod.name in unread


def _port(look: Look, pod: Pod) -> Iterator[Difference]:
    """The node's end of the pod's cable."""
    link, bridge = look.observed.link(pod.port), look.intended.bridge
    shows = f"ip -details link show dev {pod.port}"
    subject = PortSubject(pod.port, pod.name, of_pod=True)
    if link is None:
        yield look.differs(
            "pod-link-down",
            subject,
            "there",
            "there is no such device",
            shows,
            NEW_LAB,
        )
        return
    if not link.up:
        mends = f"ip link set dev {pod.port} up"
        yield look.differs("pod-link-down", subject, "up", "set down", shows, mends)
    if bridge and bridge.switch:
        return  # a virtual switch has the port; another check covers it
    if bridge and link.master != bridge.name:
        yield look.differs(
            "pod-link-down",
            subject,
            f"plugged into {bridge.name}",
            f"plugged into {link.master or 'nothing'}",
            shows,
            f"ip link set dev {pod.port} master {bridge.name} && "
            f"bridge link set dev {pod.port} hairpin on",
        )
    elif link.hairpin is False:
        yield look.differs(
            "hairpin-off",
            subject,
            "in hairpin mode, which a pod needs to reach itself through a Service",
            "hairpin mode off",
            f"bridge -details link show dev {pod.port}",
            f"bridge link set dev {pod.port} hairpin on",
        )


def _inside(look: Look, pod: Pod, facts: PodFacts) -> Iterator[Difference]:
    subject, cards = PodSubject(pod.name), sorted(facts.links, key=lambda link: link.name != "eth0")
    card = cards[0] if cards else None
    if card is None:
        yield look.differs(
            "pod-link-down", subject, "a card", "it has none", "ip link", "delete the pod"
        )
        return
    port = look.observed.link(pod.port)
    port_is_down = port is not None and not port.up
    if not card.up or (not card.carrier and not port_is_down):
        yield look.differs(
            "pod-link-down",
            subject,
            f"{card.name} up",
            f"{card.name} set down" if not card.up else f"{card.name} has no carrier",
            f"in the pod: ip link show dev {card.name}",
            f"in the pod: ip link set dev {card.name} up",
            place=pod.name,
            attribute="up",
        )
        return
    if bare(pod.address) not in map(bare, card.addresses):
        yield look.differs(
            "pod-address",
            subject,
            pod.address,
            " ".join(card.addresses) or "no address",
            "in the pod: ip address",
            f"in the pod: ip address replace {pod.address} dev {card.name}",
            place=pod.name,
            attribute="address",
            values=tuple(card.addresses),
        )
    shows = f"{IN_POD}ip link show dev {card.name}"
    yield from look.mtu("pod-mtu", subject, card.name, pod.mtu, card.mtu, shows, pod.name)
    yield from _way_out(look, pod, facts, card.name)
    yield from _answers(look, pod, facts)


def _way_out(look: Look, pod: Pod, facts: PodFacts, card: str) -> Iterator[Difference]:
    default = next((route for route in facts.routes if route.destination == "default"), None)
    onlink = "" if pod.gateway and covers(network_of(pod.address), pod.gateway) else " onlink"
    if default is None or default.via != pod.gateway:
        yield look.differs(
            "pod-gateway",
            PodSubject(pod.name),
            f"a default route through {pod.gateway}",
            f"one through {default.via or default.device}" if default else "none",
            "in the pod: ip route",
            f"in the pod: ip route replace default via {pod.gateway} dev {card}{onlink}",
            place=pod.name,
            attribute="gateway",
            values=(default.via or default.device,) if default else (),
        )
    macs = {neighbour.address: neighbour.mac for neighbour in pod.neighbours}
    for neighbour in facts.neighbours if look.by == "lab" else ():
        intended, mac = macs.get(neighbour.neighbour.address), neighbour.neighbour.mac
        if neighbour.state != "NOARP" and intended and mac and mac != intended:
            yield look.differs(
                "pod-neighbour",
                NeighbourSubject(neighbour.neighbour.address, pod=pod.name),
                intended,
                mac,
                "in the pod: ip neighbour",
                f"in the pod: ip neighbour replace {neighbour.neighbour.address} lladdr {intended} "
                f"dev {card} nud permanent",
                place=pod.name,
                values=(mac,),
            )


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
            windows=(HNS_ENDPOINTS, "delete the pod, so that its endpoint is created again"),
        ),
        Kind(
            "pod-link-down",
            fault="pod-link-down",
            windows=(
                HNS_ENDPOINTS,
                "delete the pod; on build 1909 run kube-proxy as NT AUTHORITY\\NetworkService",
            ),
        ),
        Kind("pod-address"),
        Kind("pod-gateway", meets=_at_way_out),
        Kind("pod-mtu", fault="mtu-black-hole"),
        Kind("pod-neighbour"),
        Kind("pod-resolver", meets=_at_question),
        Kind("pod-not-listening", meets=_at_target),
        Kind("hairpin-off", meets=_at_hairpin),
    )

    def on_machine(self, look: Look) -> Iterator[Difference]:
        for pod in look.intended.pods:
            known = look.by == "lab" or look.observed.link(pod.port)
            if known and look.observed.os == "linux":
                yield from _port(look, pod)
            if look.observed.pods is not None:
                facts = _seen(look, pod)
                if facts is None and _may_be_unread(look, pod):
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
                    )
                else:
                    yield from _inside(look, pod, facts)
