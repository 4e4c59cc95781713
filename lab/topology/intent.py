"""What each machine's network must be: the one form that every provider and the explainer read.

Addresses are text (``"10.244.1.2"``, with ``/24`` where a prefix belongs), MACs are
lower-case text with colons, MTUs are bytes of an IP packet. Device names are Linux
interface names of at most 15 characters. Everything is in a fixed order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lab.scenario.scenario import Nic, Os, Role


@dataclass(frozen=True, slots=True)
class Segment:
    """One broadcast domain: the ``cluster`` network or the ``outside`` network."""

    name: str
    cidr: str
    mtu: int


@dataclass(frozen=True, slots=True)
class Interface:
    """A network card of a machine, plugged into a segment."""

    name: str
    segment: str
    mac: str
    addresses: tuple[str, ...]
    mtu: int


@dataclass(frozen=True, slots=True)
class Bridge:
    """The bridge that a node's pods are plugged into; ports are in hairpin mode."""

    name: str
    mac: str
    addresses: tuple[str, ...]
    mtu: int


@dataclass(frozen=True, slots=True)
class Tunnel:
    """A VXLAN device without learning: forwarding entries are given, never guessed."""

    name: str
    vni: int
    port: int
    local: str
    device: str
    mac: str
    addresses: tuple[str, ...]
    mtu: int


@dataclass(frozen=True, slots=True)
class Route:
    """``destination`` is a prefix or ``"default"``; ``via`` None means on the link."""

    destination: str
    device: str
    via: str | None = None
    onlink: bool = False


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A permanent neighbour entry."""

    address: str
    mac: str
    device: str


@dataclass(frozen=True, slots=True)
class ForwardingEntry:
    """On a tunnel: frames to ``mac`` go to the tunnel end at ``remote``."""

    mac: str
    device: str
    remote: str


@dataclass(frozen=True, slots=True)
class ProxyNeighbour:
    """The machine answers ARP for ``address`` on ``device`` with its own MAC."""

    address: str
    device: str


@dataclass(frozen=True, slots=True)
class Resolver:
    """What stands in the pod's resolv.conf."""

    server: str
    search: tuple[str, ...]
    ndots: int


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod: its ``eth0`` is the far end of the node's ``port`` on the node's bridge."""

    name: str
    role: Literal["probe", "dns"]
    port: str
    mac: str
    address: str
    """With prefix length."""
    gateway: str
    mtu: int
    neighbours: tuple[Neighbour, ...]
    resolver: Resolver


@dataclass(frozen=True, slots=True)
class Backend:
    """One ready endpoint of a Service."""

    pod: str
    address: str
    port: int


@dataclass(frozen=True, slots=True)
class Service:
    """One Service, for TCP and UDP alike, as this node's kube-proxy must program it."""

    name: str
    address: str
    port: int
    node_port: int | None
    backends: tuple[Backend, ...]


@dataclass(frozen=True, slots=True)
class Translation:
    """What a node translates.

    Traffic to Services from outside ``local_cidr`` (the node's own pod CIDR) is masqueraded,
    and so is NodePort and hairpin traffic. Pods' traffic to anything outside ``not_masqueraded``
    leaves with the node's address (flannel's ip-masq, the Windows OutBoundNAT policy).
    """

    local_cidr: str | None
    """None on a node without pods."""
    not_masqueraded: tuple[str, ...]
    services: tuple[Service, ...]


@dataclass(frozen=True, slots=True)
class Drop:
    """Packets that this machine sends itself (hook ``output``) and silently loses."""

    rule: str
    """Id of the rule that asks for it."""
    destinations: tuple[str, ...]
    """Prefixes."""
    ports: tuple[int, int] | None = None
    """First and last destination port, or None for every packet."""
    spared: tuple[str, ...] = ()
    """Prefixes within the destinations that are let through."""


@dataclass(frozen=True, slots=True)
class Hardware:
    """What a real machine is made of; the embedded provider has no use for it.

    Memory is MiB, disk GiB.
    """

    image: str
    vcpus: int
    memory_mib: int
    disk_gib: int
    hypervisor: str | None = None
    """The hypervisor that the scenario asks for; None for any."""
    nics: tuple[Nic, ...] = ()
    """Further network cards, on networks of the hypervisor."""


SMALL = Hardware("debian-12", vcpus=1, memory_mib=512, disk_gib=8)
"""For the router and the client outside, of which a scenario says nothing."""


@dataclass(frozen=True, slots=True)
class Kubelet:
    """What a node is in its cluster; the embedded provider has no use for it."""

    role: Role
    version: str
    """Minor, such as ``"1.36"``."""
    pod_cidr: str | None
    """The node's own; None where no kubelet runs (a control plane of the hard way)."""


@dataclass(frozen=True, slots=True)
class Kubernetes:
    """The cluster as a whole, where machines get a real one."""

    version: str
    """Minor of the control plane, such as ``"1.36"``."""
    pod_cidr: str
    service_cidr: str
    dns_address: str


@dataclass(frozen=True, slots=True)
class MachineIntent:
    """One machine: a node, the router (ToR), or the client outside."""

    name: str
    kind: Literal["node", "router", "client"]
    os: Os
    interfaces: tuple[Interface, ...]
    bridge: Bridge | None
    tunnel: Tunnel | None
    routes: tuple[Route, ...]
    neighbours: tuple[Neighbour, ...]
    forwarding: tuple[ForwardingEntry, ...]
    proxies: tuple[ProxyNeighbour, ...]
    pods: tuple[Pod, ...]
    translation: Translation | None
    drops: tuple[Drop, ...]
    forwards: bool
    """Whether the machine routes packets that are not its own."""
    hardware: Hardware = SMALL
    kubelet: Kubelet | None = None
    """None for the router and the client, which are no nodes."""


@dataclass(frozen=True, slots=True)
class Intent:
    """The network of the whole lab."""

    scenario: str
    topology: str
    domain: str
    segments: tuple[Segment, ...]
    machines: tuple[MachineIntent, ...]
    pod_mtu: int
    node_mtu: int
    kubernetes: Kubernetes | None = None

    def machine(self, name: str) -> MachineIntent:
        """The machine of that name; KeyError if there is none."""
        for machine in self.machines:
            if machine.name == name:
                return machine
        raise KeyError(name)
