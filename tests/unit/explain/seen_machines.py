"""The facts of a lab that is as intended, which tests change one at a time."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from seen_logical import databases, switching
from shipped import bare_intent_of, plan_of

from lab.explain.explainer import Explainer
from lab.explain.question import flow_of
from lab.facts.difference import Difference
from lab.facts.node import LinkFacts, NodeFacts, PodFacts, SeenNeighbour, SeenSession
from lab.facts.translations import End, Masquerade, Translated, Translations
from lab.matrix.cell import Cell
from lab.matrix.cells import Product, product
from lab.plan.plan import Plan
from lab.topology import bird, proxying
from lab.topology.intent import Intent, MachineIntent, Neighbour, Pod, Route

Seen = dict[str, NodeFacts]


@cache
def lab(name: str) -> tuple[Plan, Intent, Product]:
    """A lab whose pods are its own."""
    plan, intent = plan_of(name), bare_intent_of(name)
    return plan, intent, product(plan, intent)


def cell(name: str, identity: str) -> Cell:
    found = lab(name)[2].find(identity)
    assert found is not None, identity
    return found


def findings(name: str, seen: Seen, identity: str) -> tuple[Difference, ...]:
    """What is wrong on the path of a cell."""
    return Explainer(lab(name)[1], seen).explain(flow_of(cell(name, identity))).findings


def broken(seen: Seen, node: str, **what: object) -> Seen:
    return {**seen, node: replace(seen[node], **what)}  # type: ignore[arg-type]


def with_link(seen: Seen, node: str, device: str, **what: object) -> Seen:
    """The facts with one device of a node changed."""
    there = seen[node].links
    assert device in {one.name for one in there}, device
    links = tuple(replace(one, **what) if one.name == device else one for one in there)  # type: ignore[arg-type]
    return broken(seen, node, links=links)


def with_address(seen: Seen, node: str, device: str, *more: str) -> Seen:
    """The facts with further addresses on one device of a node."""
    (there,) = (one.addresses for one in seen[node].links if one.name == device)
    return with_link(seen, node, device, addresses=(*there, *more))


def down(seen: Seen, node: str, device: str) -> Seen:
    return with_link(seen, node, device, up=False, carrier=False)


def without_routes(seen: Seen, node: str, *destinations: str) -> Seen:
    kept = tuple(route for route in seen[node].routes if route.destination not in destinations)
    assert len(seen[node].routes) - len(kept) == len(destinations)
    return broken(seen, node, routes=kept)


def whole(intent: Intent) -> dict[str, NodeFacts]:
    found = {
        machine.name: replace(seen(machine), switching=switching(intent, machine))
        for machine in intent.everything()
    }
    if intent.logical:
        central = intent.logical.central
        found[central] = replace(found[central], databases=databases(intent))
    return found


def seen(machine: MachineIntent) -> NodeFacts:
    """The facts of a machine that is as intended."""
    bridge, tunnel, switch = machine.bridge, machine.tunnel, machine.switch
    links = [
        link(interface.name, "", interface.mac, interface.held, interface.mtu)
        for interface in machine.interfaces
    ]
    links += [
        link(interface.card, "", interface.mac, (), interface.mtu)
        for interface in machine.interfaces
        if interface.card
    ]
    speaker = machine.speaker
    if bridge:
        links.append(link(bridge.name, "bridge", bridge.mac, bridge.addresses, bridge.mtu))
    if tunnel:
        made = link(tunnel.name, "vxlan", tunnel.mac, tunnel.addresses, tunnel.mtu)
        links.append(replace(made, master=machine.switch.name if machine.switch else None))
    if switch:
        links.append(link(switch.name, "bridge", switch.mac, (), switch.mtu))
        for plugged in switch.ports:
            port = link(plugged.name, "veth", "0e:00:00:00:00:02", (), switch.mtu)
            links.append(replace(port, master=switch.name))
    for pod in machine.pods:
        port = link(pod.port, "veth", "0e:00:00:00:00:01", (), pod.mtu)
        links.append(replace(port, master=bridge.name if bridge else None, hairpin=True))
    return NodeFacts(
        os="linux",
        version="",
        links=tuple(links),
        bridges=(bridge,) if bridge else (),
        tunnels=(tunnel,) if tunnel else (),
        routes=machine.routes,
        neighbours=tuple(SeenNeighbour(one, "PERMANENT") for one in machine.neighbours),
        forwarding=machine.forwarding,
        proxies=machine.proxies,
        forwards=machine.forwards,
        settings=(("bridge/bridge-nf-call-iptables", "1"),),
        translations=translations(machine),
        pods=tuple(inside(pod) for pod in machine.pods),
        sessions=tuple(
            SeenSession(bird.session_name(session.machine), "up", "Established")
            for session in (speaker.sessions if speaker else ())
        ),
    )


def link(name: str, kind: str, mac: str, addresses: tuple[str, ...], mtu: int) -> LinkFacts:
    return LinkFacts(name, kind, mac, addresses, mtu, up=True, carrier=True)


def inside(pod: Pod) -> PodFacts:
    return PodFacts(
        name=pod.name,
        links=(link("eth0", "veth", pod.mac, (pod.address,), pod.mtu),),
        routes=(Route("default", "eth0", pod.gateway),),
        neighbours=tuple(SeenNeighbour(one, "PERMANENT") for one in pod.neighbours),
        listening=(("tcp", 8080), ("udp", 8080), ("udp", 53)),
        resolver=pod.resolver,
    )


def translations(machine: MachineIntent) -> Translations:
    there = machine.translation
    if there is None:
        return Translations("", (), (), marked=False)
    services = []
    for service in there.services:
        for port in service.ports:
            for protocol in port.protocols:
                ends = (proxying.inside, service.address, port.port)
                outer = (proxying.outside, None, port.node_port)
                for choose, address, number in (ends, outer):
                    if number is not None:
                        chosen = choose(service, machine.name)
                        to = tuple(End(one.address, port.target_port) for one in chosen)
                        services.append(Translated(protocol, address, number, to))
    kept = (
        () if there.local_cidr is None else (Masquerade(there.local_cidr, there.not_masqueraded),)
    )
    return Translations("lab", tuple(services), kept, marked=True)


def neighbour(address: str, mac: str, device: str) -> SeenNeighbour:
    return SeenNeighbour(Neighbour(address, mac, device), "PERMANENT")
