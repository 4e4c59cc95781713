"""What was seen on one node, in the Intent's words: addresses, MACs and MTUs are written as there.

What could not be asked stands in ``absent`` with the reason; its facts are then empty and say
nothing. Everything is in a fixed order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from lab.topology.intent import (
    Bridge,
    ForwardingEntry,
    Neighbour,
    ProxyNeighbour,
    Resolver,
    Route,
    Tunnel,
)

if TYPE_CHECKING:  # they are made of what stands here
    from lab.cluster.observers.logical_facts import Databases, Switching


@dataclass(frozen=True, slots=True)
class Counter:
    """Something that is counted since the node started; only its rise says anything."""

    name: str
    """``"eth0 received dropped"``, ``"Ip OutNoRoutes"``."""
    value: int


@dataclass(frozen=True, slots=True)
class Link:
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


class End(NamedTuple):
    """Where packets are sent on to."""

    address: str
    port: int


@dataclass(frozen=True, slots=True)
class Translated:
    """Packets to this address and port go to these backends."""

    protocol: str
    """``"tcp"`` or ``"udp"``."""
    address: str | None
    """None for a NodePort: any address of the node."""
    port: int
    backends: tuple[End, ...]
    """None at all: packets are refused, or lost."""
    lost: bool = False
    """Whether packets without a backend are lost; else they are refused."""
    own: tuple[End, ...] | None = None
    """Of a NodePort that leads the node's own packets, and its pods', to other backends than
    those that come from elsewhere: where those go. None where it makes no difference."""
    affinity: int | None = None
    """Seconds for which a client keeps its backend; None for no affinity."""
    kept: bool = False
    """Of a NodePort: whether what comes from elsewhere keeps the address that it came from."""


@dataclass(frozen=True, slots=True)
class Masquerade:
    """Packets from ``source`` leave with the node's address, but for those to ``spared``."""

    source: str
    spared: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Barrier:
    """A rule that loses or refuses packets."""

    where: str
    """Table and chain, or device."""
    rule: str
    """As its tool writes it."""
    protocol: str = ""
    """Empty for any."""
    ports: tuple[int, int] | None = None
    """First and last destination port; None for any."""
    prefixes: tuple[str, ...] = ()
    """Sources and destinations that it names; none at all for any."""
    packets: int | None = None
    """How many it has met, where it counts."""
    shows: str = ""
    """The command that shows it."""
    mends: str = ""
    """The command that takes it away."""
    refuses: bool = False
    """Whether the sender is told; else packets are lost without a word."""
    by_chance: bool = False
    """Whether it takes some of the packets only, by lot."""
    device: str = ""
    """By which they come or leave; empty for any."""


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
    links: tuple[Link, ...]
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
class Translations:
    """What the node translates."""

    by: str
    """``"lab"``, ``"nftables"``, ``"iptables"``, ``"hns"``; empty where there is nothing."""
    services: tuple[Translated, ...]
    masquerades: tuple[Masquerade, ...]
    marked: bool
    """Whether what kube-proxy has marked is masqueraded, by Linux; HNS does without."""


NOTHING_TRANSLATED = Translations("", (), (), marked=False)


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What was seen on one node."""

    os: str
    """``"linux"`` or ``"windows"``."""
    version: str
    """Of the operating system: ``"Debian GNU/Linux 12"``, ``"20348.587"``."""
    links: tuple[Link, ...] = ()
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

    def link(self, name: str) -> Link | None:
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
