"""The facts of a lab that is as intended, which tests change one at a time."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from seen_logical import databases, switching

from lab.facts.node import LinkFacts, NodeFacts, PodFacts, SeenNeighbour, SeenSession
from lab.facts.translations import End, Masquerade, Translated, Translations
from lab.matrix.cells import Product, product
from lab.plan.plan import Plan
from lab.plan.planner import make_plan
from lab.scenario.loader import find, load
from lab.topology import bird, proxying, registry
from lab.topology.intent import Intent, MachineIntent, Neighbour, Pod, Route


@cache
def lab(name: str) -> tuple[Plan, Intent, Product]:
    plan = make_plan(load(find(name)))
    intent = replace(registry.intent(plan), kubernetes=None)  # pods are the lab's own
    return plan, intent, product(plan, intent)


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
    links = [link(one.name, "", one.mac, one.held, one.mtu) for one in machine.interfaces]
    links += [link(one.card, "", one.mac, (), one.mtu) for one in machine.interfaces if one.card]
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
        links.append(
            LinkFacts(*port_parts(port), master=bridge.name if bridge else None, hairpin=True)
        )
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
            SeenSession(bird.session_name(one.machine), "up", "Established")
            for one in (speaker.sessions if speaker else ())
        ),
    )


def port_parts(one: LinkFacts) -> tuple[object, ...]:
    return one.name, one.kind, one.mac, one.addresses, one.mtu, one.up, one.carrier


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
