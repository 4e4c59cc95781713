"""The topology of a lab as reports draw it: its picture, stored with every run, rows and labels."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from lab._log import quantity
from lab.reports.figures import Share
from lab.scenario.terms import Os
from lab.topology.intent import Intent, MachineIntent, MachineKind, Segment
from lab.topology.routing import bare

ADDRESSES = 2
"""Number of a machine's addresses shown on its card."""
LISTED_PODS = 4
"""With more pods on a node, or more than ``LISTED_NODES`` nodes, pods are drawn as dots."""
LISTED_NODES = 16
_ROOTED = frozenset({"node", "services"})
"""Kinds of machine that are on the nodes' segment."""
_KINDS = {"router": "router", "client": "client, outside", "services": "HAProxy, DNS"}


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
    machines = tuple(_draw_machine(machine) for machine in intent.machines)
    hypervisors = tuple(_draw_machine(machine) for machine in intent.hypervisors)
    return Picture(intent.segments, machines, intent.pod_mtu, intent.node_mtu, hypervisors)


def _draw_machine(machine: MachineIntent) -> DrawnMachine:
    tunnel = machine.tunnel
    return DrawnMachine(
        name=machine.name,
        kind=machine.kind,
        os=machine.os,
        attachments=tuple(
            Attachment(card.segment, bare(card.addresses[0]) if card.addresses else "")
            for card in machine.interfaces
        ),
        pods=tuple(DrawnPod(pod.name, pod.role, bare(pod.address)) for pod in machine.pods),
        tunnel=f"VXLAN {tunnel.vni} on UDP {tunnel.port}" if tunnel else None,
        host=next((card.host for card in machine.interfaces if card.host), None),
        routes=sum(1 for route in machine.routes if route.via and route.destination != "default"),
        gateways=tuple(bare(text) for card in machine.interfaces for text in card.virtual),
    )


@dataclass(frozen=True, slots=True)
class Rows:
    """The drawing from top to bottom; without nodes, ``hosts`` is empty."""

    outside: tuple[DrawnMachine, ...]
    upper: tuple[str, ...]
    """Descriptions of the segments between outside machines and routers."""
    routers: tuple[DrawnMachine, ...]
    segment: str
    """Description of the nodes' segment."""
    hosts: tuple[tuple[DrawnMachine | None, tuple[DrawnMachine, ...]], ...]
    """Each of the scenario's hypervisors with its machines; None if the scenario has none."""
    carriage: str
    """How pods' packets get from node to node; empty if they do not."""
    dots: bool
    """Whether pods are drawn as dots."""


def arrange(picture: Picture) -> Rows:
    """Put every machine and segment of the picture on its row."""
    nodes = tuple(machine for machine in picture.machines if machine.kind in _ROOTED)
    inner = {each.segment for node in nodes for each in node.attachments}
    beneath = {
        each.segment for hypervisor in picture.hypervisors for each in hypervisor.attachments
    }
    others = [machine for machine in picture.machines if machine.kind not in _ROOTED]
    routers = tuple(
        machine for machine in others if inner & {at.segment for at in machine.attachments}
    )
    hosts: list[tuple[DrawnMachine | None, tuple[DrawnMachine, ...]]] = [
        (host, tuple(node for node in nodes if node.host == host.name))
        for host in picture.hypervisors
    ]
    words = "; ".join(_segment(segment) for segment in picture.segments if segment.name in inner)
    if len(picture.hypervisors) > 1:
        between = next(segment for segment in picture.segments if segment.name in beneath)
        words += f"; carried by {picture.hypervisors[0].tunnel} on {_segment(between)}"
    return Rows(
        outside=tuple(machine for machine in others if machine not in routers),
        upper=tuple(_segment(s) for s in picture.segments if s.name not in inner | beneath),
        routers=routers,
        segment=words,
        hosts=tuple((host, machines) for host, machines in hosts or [(None, nodes)] if machines),
        carriage=_describe_tunnels(nodes, routers, picture.pod_mtu),
        dots=len(nodes) > LISTED_NODES or any(len(node.pods) > LISTED_PODS for node in nodes),
    )


def _segment(segment: Segment) -> str:
    return f"{segment.name} {segment.cidr}, MTU {segment.mtu}"


def _describe_tunnels(
    nodes: Sequence[DrawnMachine], routers: Sequence[DrawnMachine], pod_mtu: int
) -> str:
    tunnel = next((node.tunnel for node in nodes if node.tunnel), None)
    router = next((router.name for router in routers if router.routes), None)
    if tunnel:
        words = tunnel
    elif router:
        words = f"{router} routes to every node's pods"
    elif any(node.routes for node in nodes):
        words = "nodes route to each other's pods"
    else:
        return ""
    return f"{words}, pods' MTU {pod_mtu}"


@dataclass(frozen=True, slots=True)
class Labels:
    """Labels of machines and pods, and their share of red cells."""

    shares: Mapping[str, Share]
    emulated: Collection[str]

    def share(self, drawn: DrawnMachine | DrawnPod) -> Share:
        """The share of red cells among those that involve the machine or pod."""
        return self.shares.get(drawn.name, Share(0, 0))

    def kind(self, machine: DrawnMachine) -> str:
        """``Windows, emulated``."""
        words = _KINDS.get(machine.kind, machine.os.capitalize())
        if machine.gateways:
            words += f", holds {quantity(len(machine.gateways), 'gateway')}"
        return f"{words}, emulated" if machine.name in self.emulated else words

    def title(self, machine: DrawnMachine) -> str:
        """Everything known about a machine, one fact per line."""
        return "\n".join(self._lines(machine))

    def _lines(self, machine: DrawnMachine) -> Iterator[str]:
        emulated = ", emulated" if machine.name in self.emulated else ""
        yield f"{machine.kind} {machine.name} ({machine.os}{emulated})"
        yield from (f"{each.segment}: {each.address}" for each in machine.attachments)
        yield from (f"holds gateway {address}" for address in machine.gateways)
        if machine.tunnel:
            yield machine.tunnel
        if machine.routes:
            yield f"{machine.routes} routes to other networks"
        yield self.share(machine).words
