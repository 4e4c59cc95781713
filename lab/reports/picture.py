"""The part of an Intent that the topology drawing shows, stored with every run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lab.scenario.terms import Os
from lab.topology.intent import Intent, MachineIntent, MachineKind, Segment


@dataclass(frozen=True, slots=True)
class DrawnPod:
    """One pod; the address has no prefix length."""

    name: str
    role: Literal["probe", "dns"]
    address: str


@dataclass(frozen=True, slots=True)
class Attachment:
    """A machine's first address on a segment, without prefix length; empty if it has none."""

    segment: str
    address: str


@dataclass(frozen=True, slots=True)
class DrawnMachine:
    """One node, router, client or hypervisor."""

    name: str
    kind: MachineKind
    os: Os
    attachments: tuple[Attachment, ...]
    pods: tuple[DrawnPod, ...]
    tunnel: str | None
    """``VXLAN 4096 on UDP 4789``, or None for a machine without a tunnel."""
    routes: int
    """Number of routes via another machine, without the default route."""
    host: str | None = None
    """The scenario's hypervisor that it runs on."""
    gateways: tuple[str, ...] = ()
    """Virtual addresses that it may hold, without prefix length."""


@dataclass(frozen=True, slots=True)
class Picture:
    """Segments and machines in the Intent's order; MTUs are bytes of an IP packet."""

    segments: tuple[Segment, ...]
    machines: tuple[DrawnMachine, ...]
    pod_mtu: int
    node_mtu: int
    hypervisors: tuple[DrawnMachine, ...] = ()


def picture_of(intent: Intent) -> Picture:
    """The picture of an Intent."""
    machines = tuple(_drawn(machine) for machine in intent.machines)
    hypervisors = tuple(_drawn(machine) for machine in intent.hypervisors)
    return Picture(intent.segments, machines, intent.pod_mtu, intent.node_mtu, hypervisors)


def _drawn(machine: MachineIntent) -> DrawnMachine:
    tunnel = machine.tunnel
    return DrawnMachine(
        name=machine.name,
        kind=machine.kind,
        os=machine.os,
        attachments=tuple(
            Attachment(card.segment, _bare(card.addresses[0]) if card.addresses else "")
            for card in machine.interfaces
        ),
        pods=tuple(DrawnPod(pod.name, pod.role, _bare(pod.address)) for pod in machine.pods),
        tunnel=f"VXLAN {tunnel.vni} on UDP {tunnel.port}" if tunnel else None,
        host=next((card.host for card in machine.interfaces if card.host), None),
        routes=sum(1 for route in machine.routes if route.via and route.destination != "default"),
        gateways=tuple(_bare(text) for card in machine.interfaces for text in card.virtual),
    )


def _bare(address: str) -> str:
    return address.partition("/")[0]
