"""What of an Intent is the machines' own network, where Kubernetes makes the rest."""

from __future__ import annotations

from dataclasses import replace

from lab.topology.intent import Intent, MachineIntent

OWN_TUNNELS = frozenset({"upstream-vrrp"})
"""Topologies whose nodes are joined by a tunnel that no network add-on makes."""


def underlay(intent: Intent) -> Intent:
    """The Intent without all that kubelet, kube-proxy and the network add-on make on a node.

    Left are cards with their addresses, the default route, static routes that the scenario asks
    for, the router's own, and a tunnel that is there without an add-on, with its entries. A card
    that the add-on's virtual switch takes over is still itself.
    """
    tunnels = intent.topology in OWN_TUNNELS
    return replace(
        intent, machines=tuple(_machine(one, tunnels=tunnels) for one in intent.machines)
    )


def _machine(machine: MachineIntent, *, tunnels: bool) -> MachineIntent:
    if machine.kind != "node":
        return machine
    tunnel = machine.tunnel if tunnels else None
    bare = {card.name: card.card or card.name for card in machine.interfaces}
    return replace(
        machine,
        bridge=None,
        tunnel=tunnel,
        interfaces=tuple(
            replace(card, name=bare[card.name], card=None) for card in machine.interfaces
        ),
        routes=tuple(
            replace(route, device=bare.get(route.device, route.device))
            for route in machine.routes
            if route.destination == "default" or route.asked
        ),
        neighbours=tuple(one for one in machine.neighbours if tunnel and one.device == tunnel.name),
        forwarding=machine.forwarding if tunnel else (),
        proxies=(),
        pods=(),
        translation=None,
        drops=(),
    )
