"""What of an Intent is the machines' own network, where Kubernetes makes the rest."""

from __future__ import annotations

from dataclasses import replace

from lab.topology.intent import Intent, MachineIntent


def underlay(intent: Intent) -> Intent:
    """The Intent without all that kubelet, kube-proxy and the network add-on make on a node.

    Left are cards with their addresses, the default route and the router's own routes.
    """
    return replace(intent, machines=tuple(_machine(one) for one in intent.machines))


def _machine(machine: MachineIntent) -> MachineIntent:
    if machine.kind != "node":
        return machine
    return replace(
        machine,
        bridge=None,
        tunnel=None,
        routes=tuple(route for route in machine.routes if route.destination == "default"),
        neighbours=(),
        forwarding=(),
        proxies=(),
        pods=(),
        translation=None,
        drops=(),
    )
