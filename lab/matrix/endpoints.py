"""The endpoints of one lab: who can ask, who can be asked, and the addresses they are known by.

Pods are the Intent's, which knows where they really are once it is bound to a cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lab.matrix.cell import Endpoint
from lab.plan.plan import Plan, PlannedService
from lab.providers.provider import PROBE_PORT
from lab.scenario.terms import Os
from lab.topology.intent import Intent, MachineIntent, Pod


@dataclass(frozen=True, slots=True)
class SharedTarget:
    """A Service with several backends, and the pods behind it."""

    endpoint: Endpoint
    backends: tuple[Endpoint, ...]


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Every endpoint, in the order of the plan.

    ``hosts`` are the nodes that run a kubelet; ``nodes`` are all. ``pods`` are probe pods only.
    """

    pods: tuple[Endpoint, ...]
    nodes: tuple[Endpoint, ...]
    hosts: tuple[Endpoint, ...]
    client: Endpoint
    services: Mapping[str, Endpoint]
    """The Service of its own that a pod has, by the pod's name."""
    node_ports: Mapping[str, int]
    """The port of that Service on every node, by the pod's name."""
    shared: tuple[SharedTarget, ...]
    pods_of: Mapping[str, tuple[Endpoint, ...]]
    """Probe pods by node name; every node is a key."""
    dns_pod: Endpoint | None
    outside: Mapping[str, str]
    """The address by which each node is known outside: on a network that a router is on."""

    def nearest(self, node: str, os: Os, avoid: str) -> Endpoint | None:
        """A probe pod on another node of that operating system, the same one every time.

        The nodes after ``node`` in the plan's order are looked at first, then those before it,
        and of each its first pod that is not named ``avoid``. Where ``avoid`` is the only one
        there is, it is the answer; None where no other node of that system has a pod.
        """
        names = [host.name for host in self.hosts]
        after = names.index(node) + 1
        last_resort = None
        for host in (*self.hosts[after:], *self.hosts[: after - 1]):
            if host.os != os:
                continue
            for pod in self.pods_of[host.name]:
                if pod.name != avoid:
                    return pod
                last_resort = pod
        return last_resort

    def local(self, node: str, avoid: str) -> Endpoint | None:
        """The node's first probe pod but ``avoid``; ``avoid`` if it is alone, None without pods."""
        pods = self.pods_of[node]
        return next((pod for pod in pods if pod.name != avoid), pods[0] if pods else None)


def endpoints(plan: Plan, intent: Intent) -> Endpoints:
    """Every endpoint of the lab."""
    hosted = {machine.name: _pods(machine) for machine in intent.machines}
    every_pod = {pod.name: endpoint for pods in hosted.values() for pod, endpoint in pods}
    nodes = tuple(
        Endpoint(node.name, "node", node.os, node.name, str(node.address), PROBE_PORT)
        for node in plan.nodes
    )
    singles = [service for service in plan.services if service.purpose == "single"]
    return Endpoints(
        pods=tuple(one for pods in hosted.values() for pod, one in pods if pod.role == "probe"),
        nodes=nodes,
        hosts=tuple(
            endpoint
            for endpoint, node in zip(nodes, plan.nodes, strict=True)
            if node.pod_cidr is not None
        ),
        client=_client(plan, intent),
        services={
            service.backends[0]: _service(service, every_pod[service.backends[0]])
            for service in singles
        },
        node_ports={
            service.backends[0]: port.node_port
            for service in singles
            for port in service.ports
            if port.node_port is not None
        },
        shared=tuple(
            _shared(service, tuple(every_pod[name] for name in service.backends))
            for service in plan.services
            if service.purpose == "shared"
        ),
        pods_of={
            node.name: tuple(one for pod, one in hosted[node.name] if pod.role == "probe")
            for node in plan.nodes
        },
        dns_pod=next(
            (one for pods in hosted.values() for pod, one in pods if pod.role == "dns"), None
        ),
        outside={node.name: _outside(intent, node) for node in nodes},
    )


def _outside(intent: Intent, node: Endpoint) -> str:
    routed = {
        card.segment
        for machine in intent.machines
        if machine.kind == "router"
        for card in machine.interfaces
    }
    cards = intent.machine(node.name).interfaces
    known = [text for card in cards if card.segment in routed for text in card.addresses]
    return known[0].partition("/")[0] if known else node.address


def _pods(machine: MachineIntent) -> tuple[tuple[Pod, Endpoint], ...]:
    """The machine's pods where the Intent has them: on a cluster, where they really are."""
    return tuple(
        (
            pod,
            Endpoint(
                pod.name,
                "pod",
                machine.os,
                machine.name,
                pod.address.partition("/")[0],
                PROBE_PORT,
            ),
        )
        for pod in machine.pods
    )


def _service(service: PlannedService, backend: Endpoint) -> Endpoint:
    return Endpoint(
        service.name,
        "service",
        backend.os,
        backend.node,
        str(service.address),
        service.ports[0].port,
    )


def _shared(service: PlannedService, backends: tuple[Endpoint, ...]) -> SharedTarget:
    """A shared Service counts as of its first backend's operating system, and of no node."""
    endpoint = Endpoint(
        service.name, "service", backends[0].os, None, str(service.address), service.ports[0].port
    )
    return SharedTarget(endpoint, backends)


def _client(plan: Plan, intent: Intent) -> Endpoint:
    machine = next(machine for machine in intent.machines if machine.kind == "client")
    return Endpoint(machine.name, "client", machine.os, None, str(plan.client_address), PROBE_PORT)
