"""The facts of a lab that is as intended, which tests change one at a time."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import made_items
from made_items import changed, make_links, make_routes, make_tables, make_tunnel, without
from seen_logical import databases, switching
from shipped import bare_intent_of, plan_of

from lab.explain.explainer import Explainer
from lab.explain.paths import flow_of
from lab.facts.difference import Difference
from lab.facts.items import (
    HAIRPIN,
    Item,
    Items,
    LinkFacts,
    make_attribute,
    make_device_items,
    make_neighbour,
    make_setting,
)
from lab.facts.node import NodeFacts, PodFacts, SeenSession
from lab.facts.translations import End, Masquerade, Translated, Translations
from lab.matrix.cell import Cell
from lab.matrix.cells import Matrix, make_matrix
from lab.plan.plan import Plan
from lab.topology import bird, proxying
from lab.topology.intent import Intent, MachineIntent, Pod, Route
from lab.topology.subject import RouteSubject

Seen = dict[str, NodeFacts]


@cache
def lab(name: str) -> tuple[Plan, Intent, Matrix]:
    """A lab whose pods are its own."""
    plan, intent = plan_of(name), bare_intent_of(name)
    return plan, intent, make_matrix(plan, intent)


def cell(name: str, identity: str) -> Cell:
    cell = lab(name)[2].find(identity)
    assert cell is not None, identity
    return cell


def findings(name: str, facts: Seen, identity: str) -> tuple[Difference, ...]:
    """What is wrong on the path of a cell."""
    return Explainer(lab(name)[1], facts).explain(flow_of(cell(name, identity))).findings


def broken(facts: Seen, node: str, **what: object) -> Seen:
    return {**facts, node: replace(facts[node], **what)}  # type: ignore[arg-type]


def with_items(facts: Seen, node: str, *new: Item) -> Seen:
    """The facts with other items in the place of those with the same keys."""
    return broken(facts, node, items=changed(facts[node].items, *new))


def without_items(facts: Seen, node: str, *kinds: type, words: str = "") -> Seen:
    """The facts without the items of some kinds of subjects, whose names have the words."""
    return broken(facts, node, items=without(facts[node].items, *kinds, words=words))


def with_link(facts: Seen, node: str, device: str, **what: object) -> Seen:
    """The facts with one device of a node changed."""
    link = facts[node].link(device)
    assert link is not None, device
    changed_link = replace(link, **what)  # type: ignore[arg-type]
    return broken(facts, node, items=made_items.with_link(facts[node].items, changed_link))


def with_address(facts: Seen, node: str, device: str, *more: str) -> Seen:
    """The facts with further addresses on one device of a node."""
    (address,) = (link.addresses for link in facts[node].links if link.name == device)
    return with_link(facts, node, device, addresses=(*address, *more))


def down(facts: Seen, node: str, device: str) -> Seen:
    return with_link(facts, node, device, up=False, carrier=False)


def without_routes(facts: Seen, node: str, *destinations: str) -> Seen:
    keys = {f"route {RouteSubject(destination)}" for destination in destinations}
    assert keys <= facts[node].items.keys()
    kept = (item for key, item in facts[node].items.items() if key not in keys)
    return broken(facts, node, items=Items.of(kept))


def whole(intent: Intent) -> dict[str, NodeFacts]:
    facts = {
        machine.name: replace(seen(machine), switching=switching(intent, machine))
        for machine in intent.everything()
    }
    if intent.logical:
        central = intent.logical.central
        facts[central] = replace(facts[central], databases=databases(intent))
    return facts


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
    if switch:
        links.append(link(switch.name, "bridge", switch.mac, (), switch.mtu))
        for plugged in switch.ports:
            port = link(plugged.name, "veth", "0e:00:00:00:00:02", (), switch.mtu)
            links.append(replace(port, master=switch.name))
    for pod in machine.pods:
        port = link(pod.port, "veth", "0e:00:00:00:00:01", (), pod.mtu)
        links.append(replace(port, master=bridge.name if bridge else ""))
    return NodeFacts(
        os="linux",
        version="",
        items=Items.of(
            (
                *make_links(links),
                *(make_attribute(pod.port, HAIRPIN, "true") for pod in machine.pods),
                *(make_tunnel(tunnel, switch.name if switch else "") if tunnel else ()),
                *make_tables(machine),
                make_setting("bridge/bridge-nf-call-iptables", "1"),
            )
        ),
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
        items=Items.of(
            (
                *make_device_items(link("eth0", "veth", pod.mac, (pod.address,), pod.mtu)),
                *make_routes((Route("default", "eth0", pod.gateway),)),
                *(make_neighbour(it.address, "eth0", it.mac) for it in pod.neighbours),
            )
        ),
        listening=(("tcp", 8080), ("udp", 8080), ("udp", 53)),
        resolver=pod.resolver,
    )


def translations(machine: MachineIntent) -> Translations:
    translation = machine.translation
    if translation is None:
        return Translations("", (), (), marked=False)
    services = []
    for service in translation.services:
        for port in service.ports:
            for protocol in port.protocols:
                ends = (proxying.inside, service.address, port.port)
                outer = (proxying.outside, None, port.node_port)
                for choose, address, number in (ends, outer):
                    if number is not None:
                        chosen = choose(service, machine.name)
                        to = tuple(End(backend.address, port.target_port) for backend in chosen)
                        services.append(Translated(protocol, address, number, to))
    kept = (
        ()
        if translation.local_cidr is None
        else (Masquerade(translation.local_cidr, translation.not_masqueraded),)
    )
    return Translations("lab", tuple(services), kept, marked=True)
