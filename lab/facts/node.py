"""What was seen on one node, in the Intent's words: addresses, MACs and MTUs are written as there.

What could not be asked is in ``absent`` with the reason; its facts are then empty and say
nothing. Everything is in a fixed order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lab.facts.ovn import Databases, Switching
from lab.facts.translations import NOTHING_TRANSLATED, Barrier, Translations
from lab.topology.intent import (
    Bridge,
    ForwardingEntry,
    Neighbour,
    ProxyNeighbour,
    Resolver,
    Route,
    Tunnel,
)


@dataclass(frozen=True, slots=True)
class Counter:
    """Something that is counted since the node started; only its rise says anything."""

    name: str
    """``"eth0 received dropped"``, ``"Ip OutNoRoutes"``."""
    value: int


SWITCHED = "hns card"
"""The kind of a card of Windows that is in a virtual switch."""


@dataclass(frozen=True, slots=True)
class LinkFacts:
    """A network device, whatever its kind."""

    name: str
    kind: str
    """``"veth"``, ``"bridge"``, ``"vxlan"``, ...; empty for a card."""
    mac: str
    addresses: tuple[str, ...]
    """IPv4, with prefix length."""
    mtu: int
    up: bool
    """Whether it was set up."""
    carrier: bool
    """Whether its other end is up, too."""
    master: str | None = None
    """The bridge that it is a port of."""
    hairpin: bool | None = None
    """Of a bridge's port; None where nobody said."""


@dataclass(frozen=True, slots=True)
class SeenNeighbour:
    """A neighbour entry and its state."""

    neighbour: Neighbour
    """Its MAC is empty while nobody has answered."""
    state: str
    """``"PERMANENT"``, ``"REACHABLE"``, ``"FAILED"``, ...; Windows' states in capitals."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A service of the operating system."""

    name: str
    state: str
    """``"active"``, ``"failed"``, ``"running"``, ``"stopped"``, ..."""
    log: tuple[str, ...] = ()
    """Its last lines."""


@dataclass(frozen=True, slots=True)
class SeenSession:
    """A session of BGP, as the daemon tells of it."""

    name: str
    """The daemon's own: ``"to-worker1"``."""
    state: str
    """``"up"``, ``"start"``, or ``"down"`` where it was shut."""
    info: str
    """``"Established"``, ``"Active Socket: Connection refused"``."""


@dataclass(frozen=True, slots=True)
class PodFacts:
    """What was seen inside a pod."""

    name: str
    """The pod's, or the name of its network namespace where nobody knows more."""
    links: tuple[LinkFacts, ...]
    routes: tuple[Route, ...]
    neighbours: tuple[SeenNeighbour, ...]
    listening: tuple[tuple[str, int], ...] | None
    """Protocol and port; None where nobody looked."""
    resolver: Resolver | None = None
    """None where nobody looked."""

    def addresses(self) -> tuple[str, ...]:
        """Its addresses, with prefix length, without loopback."""
        return tuple(
            text for link in self.links for text in link.addresses if not text.startswith("127.")
        )


@dataclass(frozen=True, slots=True)
class Software:
    """What a node of a cluster runs and reads beside its network; None where nobody could look."""

    processes: tuple[tuple[str, str], ...] | None = None
    """Of kube-proxy and flanneld those that there are, and their states as ps(1) writes them."""
    cni: tuple[str, ...] | None = None
    """The files that containerd may read a CNI configuration from."""
    subnet: str | None = None
    """flannel's line about the node's part of the network; empty where its file has none."""
    expired: str | None = None
    """When the certificate of the kubelet expired; empty while it is valid."""
    full: tuple[str, ...] = ()
    """Where file systems are mounted that have no space left."""
    dns_replicas: int | None = None
    """How many CoreDNS the cluster is asked to have; seen on control planes."""


@dataclass(frozen=True, slots=True)
class CalicoFacts:
    """What Calico does on a node, and is asked for; None where nobody could look."""

    felix: tuple[str, ...] | None = None
    """The states of its processes, as ps(1) writes them."""
    pools: Mapping[str, Mapping[str, Any]] | None = None
    """Name and ``spec`` of each, as they are stored."""
    systems: Mapping[str, str] | None = None
    """By node, what its annotation says; empty where there is none."""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What was seen on one node."""

    os: str
    """``"linux"`` or ``"windows"``."""
    version: str
    """Of the operating system: ``"Debian GNU/Linux 12"``, ``"20348.587"``."""
    links: tuple[LinkFacts, ...] = ()
    bridges: tuple[Bridge, ...] = ()
    tunnels: tuple[Tunnel, ...] = ()
    learning: tuple[str, ...] = ()
    """Tunnels that learn forwarding entries by themselves."""
    routes: tuple[Route, ...] = ()
    """The best one of each destination; its device is ``"blackhole"`` and the like where
    packets go nowhere."""
    neighbours: tuple[SeenNeighbour, ...] = ()
    forwarding: tuple[ForwardingEntry, ...] = ()
    proxies: tuple[ProxyNeighbour, ...] = ()
    forwards: bool | None = None
    """None where nobody could look."""
    settings: tuple[tuple[str, str], ...] = ()
    """Kernel settings by their paths below ``/proc/sys/net``."""
    translations: Translations = NOTHING_TRANSLATED
    barriers: tuple[Barrier, ...] = ()
    let_in: tuple[tuple[str, int, int], ...] | None = None
    """Protocol, first and last port of the firewall's rules that let packets in, of those asked
    for; None where everything that no barrier names comes in, as on Linux."""
    shapers: tuple[Barrier, ...] = ()
    """What slows or loses packets on a device."""
    listening: tuple[tuple[str, int], ...] = ()
    pods: tuple[PodFacts, ...] | None = None
    """None where the pods were not looked at."""
    sandboxes: tuple[tuple[str, str], ...] = ()
    """The container runtime's pods, ``namespace/name``, and their states."""
    units: tuple[Unit, ...] = ()
    software: Software | None = None
    """None where Kubernetes is not."""
    calico: CalicoFacts | None = None
    """None where Calico is not."""
    sessions: tuple[SeenSession, ...] = ()
    """None at all where no daemon that speaks BGP could be asked."""
    counters: tuple[Counter, ...] = ()
    switching: Switching | None = None
    """None where Open vSwitch does not run."""
    databases: Databases | None = None
    """None where OVN's databases are not."""
    absent: tuple[tuple[str, str], ...] = ()
    """What could not be asked, and why."""

    def knows(self, what: str) -> bool:
        """Whether that part of the questions was answered."""
        return what not in dict(self.absent)

    def link(self, name: str) -> LinkFacts | None:
        """The device of that name."""
        return next((link for link in self.links if link.name == name), None)

    def setting(self, path: str) -> str | None:
        """A kernel setting."""
        return dict(self.settings).get(path)


def rises(before: NodeFacts, after: NodeFacts) -> tuple[Counter, ...]:
    """The counters that rose between two looks, by how much, the largest rise first. Pure."""
    old = {counter.name: counter.value for counter in before.counters}
    risen = [
        Counter(counter.name, counter.value - old.get(counter.name, 0))
        for counter in after.counters
        if counter.value > old.get(counter.name, 0)
    ]
    return tuple(sorted(risen, key=lambda one: (-one.value, one.name)))
