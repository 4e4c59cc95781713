"""The holders of virtual gateways, and their effect on every machine. Pure.

An Intent is written for the holders that it names. With other holders the address moves to another
interface, and what BGP speakers learn leads to the new holder.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from ipaddress import ip_interface

from lab.topology import bird
from lab.topology.intent import Gateway, Intent, MachineIntent, Route
from lab.topology.routing import bare, own_addresses


def prefix(gateway: Gateway) -> str:
    """The range of the pods behind it."""
    return str(ip_interface(gateway.address).network)


def held(intent: Intent, holders: Mapping[str, str | None]) -> Intent:
    """The Intent with these holders, by the gateway's node; other gateways are unchanged."""
    gateways = tuple(
        replace(gateway, holder=holders.get(gateway.node, gateway.holder))
        for gateway in intent.gateways
    )
    named = {machine.name: machine for machine in intent.machines}
    return replace(
        intent,
        gateways=gateways,
        machines=tuple(_settle_machine(machine, gateways, named) for machine in intent.machines),
    )


def settle_gateways(intent: Intent, holders: Mapping[str, Collection[str]]) -> Intent:
    """The Intent with each gateway on the one machine that was seen holding it.

    A gateway that no machine or several machines hold is unchanged.
    """
    alone = {node: next(iter(names)) for node, names in holders.items() if len(names) == 1}
    return held(intent, alone) if alone else intent


def without(intent: Intent, lost: str) -> Intent:
    """The Intent of the remaining machines when one is lost: its routes are no longer learned."""
    speaker = intent.machine(lost).speaker
    end = speaker.address if speaker else None
    return replace(
        intent,
        machines=tuple(
            replace(
                machine,
                routes=tuple(
                    route for route in machine.routes if route.by is None or route.via != end
                ),
            )
            for machine in intent.machines
            if machine.name != lost
        ),
    )


def _settle_machine(
    machine: MachineIntent, gateways: tuple[Gateway, ...], named: Mapping[str, MachineIntent]
) -> MachineIntent:
    cards = tuple(
        replace(
            card,
            virtual=tuple(
                gateway.address
                for gateway in gateways
                if gateway.holder == machine.name and gateway.device == card.name
            ),
        )
        for card in machine.interfaces
    )
    behind = {prefix(gateway) for gateway in gateways}
    own = tuple(
        route for route in machine.routes if route.by is None or route.destination not in behind
    )
    learned = tuple(_learned_routes(machine, gateways, named)) if machine.speaker else ()
    return replace(machine, interfaces=cards, routes=(*own, *learned))


def _learned_routes(
    machine: MachineIntent, gateways: tuple[Gateway, ...], named: Mapping[str, MachineIntent]
) -> Iterator[Route]:
    for gateway in gateways:
        holder = named[gateway.holder].speaker if gateway.holder else None
        if holder and machine.tunnel and gateway.holder != machine.name:
            yield Route(
                prefix(gateway), machine.tunnel.name, holder.address, onlink=True, by=bird.NAME
            )


def moving_addresses(intent: Intent, machine: MachineIntent) -> frozenset[str]:
    """The addresses, without prefix length, that daemons add to a machine and remove from it.

    A virtual switch has those of its machine.
    """
    virtual = frozenset(bare(gateway.address) for gateway in intent.gateways)
    return virtual | own_addresses(machine) if machine.chassis else virtual
