"""The facts of Open vSwitch and OVN's databases for a logical network that is as intended."""

from __future__ import annotations

from collections.abc import Iterator

from lab.facts.ovn import Databases, SeenPort, SeenSwitch, Switching
from lab.facts.translations import End, Translated
from lab.topology import proxying
from lab.topology.intent import Intent, MachineIntent
from lab.topology.logical import LogicalSwitch


def switching(intent: Intent, machine: MachineIntent) -> Switching | None:
    chassis = machine.chassis
    if chassis is None or intent.logical is None:
        return None
    ports = [
        SeenPort(port.device, chassis.integration, "", port.name, "")
        for port in intent.logical.ports()
        if port.chassis == chassis.name
    ]
    ports += [
        SeenPort(card.card, card.name, "", "", "") for card in machine.interfaces if card.card
    ]
    ports += [
        SeenPort(f"ovn-{other.name}-0", chassis.integration, "geneve", "", other.chassis.local)
        for other in intent.machines
        if other.chassis and other is not machine
    ]
    settings = {
        "ovn-encap-ip": chassis.local,
        "ovn-encap-type": chassis.encapsulation,
        "ovn-bridge": chassis.integration,
    }
    return Switching(settings, tuple(ports), (), machine.neighbours)


def databases(intent: Intent) -> Databases | None:
    network = intent.logical
    if network is None:
        return None
    return Databases(
        switches=tuple(
            SeenSwitch(
                switch.name,
                {port.name: (f"{port.mac} {port.address}",) for port in switch.ports},
                tuple(_balanced(intent, switch)),
                (),
            )
            for switch in network.switches
        ),
        routes={route.source: route.via for route in network.routes},
        chassis={
            machine.chassis.name: machine.chassis.local
            for machine in intent.machines
            if machine.chassis
        },
        bindings={port.name: port.chassis for port in network.ports()},
    )


def _balanced(intent: Intent, switch: LogicalSwitch) -> Iterator[Translated]:
    translation = intent.machine(switch.name).translation
    for service in translation.services if translation else ():
        backends = proxying.inside(service, switch.name)
        for port in service.ports:
            ends = tuple(End(backend.address, port.target_port) for backend in backends)
            for protocol in port.protocols:
                yield Translated(protocol, service.address, port.port, ends)
