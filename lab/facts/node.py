"""The observed state of one node: what its kernel and its tools know, as items, and the rest.

What could not be queried is listed in ``absent`` with the reason; its facts are then empty and mean
nothing. Everything has a fixed order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from lab.facts.items import Items, LinkFacts
from lab.facts.ovn import Databases, Switching
from lab.facts.translations import NOTHING_TRANSLATED, Barrier, Translations
from lab.topology.intent import Resolver


@dataclass(frozen=True, slots=True)
class DeviceCounter:
    """A counter of a network device since its start; only its increase means anything."""

    device: str
    direction: Literal["received", "sent"]
    event: str
    """:data:`PACKETS`; else why packets were lost: ``"dropped"``, ``"over_errors"``."""
    value: int

    @property
    def loses(self) -> bool:
        """Whether what it counts was lost."""
        return self.event != PACKETS


PACKETS = "packets"
"""The event of counters of all packets."""


SWITCHED = "hns card"
"""Kind of a Windows adapter that is in a virtual switch."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A service of the operating system."""

    name: str
    state: str
    """``"active"``, ``"failed"``, ``"running"``, ``"stopped"``, ..."""
    log: tuple[str, ...] = ()
    """Last lines of its log."""


@dataclass(frozen=True, slots=True)
class SeenSession:
    """A BGP session as the daemon reports it."""

    name: str
    """The daemon's name for it: ``"to-worker1"``."""
    state: str
    """``"up"``, ``"start"``, or ``"down"`` if it was disabled."""
    info: str
    """``"Established"``, ``"Active Socket: Connection refused"``."""


@dataclass(frozen=True, slots=True)
class PodFacts:
    """The observed state inside a pod."""

    name: str
    """The pod's name, or its network namespace's if unknown."""
    items: Items
    listening: tuple[tuple[str, int], ...] | None
    """Protocol and port; None if not queried."""
    resolver: Resolver | None = None
    """None if not queried."""

    @property
    def links(self) -> tuple[LinkFacts, ...]:
        """Its devices, without loopback."""
        return tuple(link for link in self.items.links() if link.name != "lo")

    def addresses(self) -> tuple[str, ...]:
        """Its addresses with prefix length, without loopback."""
        return tuple(
            text for link in self.links for text in link.addresses if not text.startswith("127.")
        )


@dataclass(frozen=True, slots=True)
class Software:
    """Software and configuration files of a cluster node; fields are None if not queried."""

    processes: tuple[tuple[str, str], ...] | None = None
    """Running processes among kube-proxy and flanneld, with ps(1)'s states."""
    cni: tuple[str, ...] | None = None
    """The files from which containerd may read a CNI configuration."""
    dropped: tuple[str, ...] = ()
    """Windows: endpoint policies of the CNI configuration that its plugin drops silently."""
    subnet: str | None = None
    """flannel's line with the node's pod CIDR; empty if its file has none."""
    expired: str | None = None
    """When the kubelet's certificate expired; empty while it is valid."""
    full: tuple[str, ...] = ()
    """Mount points of file systems without free space."""
    dns_replicas: int | None = None
    """Number of CoreDNS replicas requested in the cluster; read on control planes."""


@dataclass(frozen=True, slots=True)
class CalicoFacts:
    """Calico's state and configuration on a node; fields are None if not queried."""

    felix: tuple[str, ...] | None = None
    """ps(1)'s states of Felix' processes."""
    pools: Mapping[str, Mapping[str, Any]] | None = None
    """Name and ``spec`` of each pool as stored."""
    systems: Mapping[str, str] | None = None
    """AS number annotation by node; empty if there is none."""


@dataclass(frozen=True, slots=True)
class Unread:
    """A part of a machine's state that could not be read: nothing is known of it."""

    part: str
    """The query that has no answer: ``"nftables"``."""
    reason: str
    pod: str = ""
    """The pod of which nothing is known; empty for a part of the machine itself."""
    installed: bool = True
    """False if the program, or the part of the kernel, is not there to be asked."""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """The observed state of one node."""

    os: str
    """``"linux"`` or ``"windows"``."""
    version: str
    """Version of the operating system: ``"Debian GNU/Linux 12"``, ``"20348.587"``."""
    items: Items = field(default_factory=Items)
    """Devices, addresses, routes, neighbours, forwarding entries, settings, ..."""
    translations: Translations = NOTHING_TRANSLATED
    barriers: tuple[Barrier, ...] = ()
    allowed_ports: tuple[tuple[str, int, int], ...] | None = None
    """Protocol, first and last port of firewall rules that allow inbound packets, among the ports
    queried; None if everything is allowed that no barrier blocks, as on Linux.
    """
    listening: tuple[tuple[str, int], ...] = ()
    pods: tuple[PodFacts, ...] | None = None
    """None if pods were not queried."""
    sandboxes: tuple[tuple[str, str], ...] = ()
    """The container runtime's pods, ``namespace/name``, and their states."""
    units: tuple[Unit, ...] = ()
    software: Software | None = None
    """None without Kubernetes."""
    calico: CalicoFacts | None = None
    """None without Calico."""
    sessions: tuple[SeenSession, ...] = ()
    """Empty if no BGP daemon could be queried."""
    counters: tuple[DeviceCounter, ...] = ()
    switching: Switching | None = None
    """None if Open vSwitch does not run."""
    databases: Databases | None = None
    """None if OVN's databases are not on it."""
    absent: tuple[tuple[str, str], ...] = ()
    """What could not be queried, and why."""
    unread: tuple[Unread, ...] = ()
    """The queries among them that every machine must answer: those of the kernel and the pods."""

    def knows(self, part: str) -> bool:
        """Whether that query was answered."""
        return part not in dict(self.absent)

    @property
    def links(self) -> tuple[LinkFacts, ...]:
        """Its devices of any kind."""
        return self.items.links()

    def link(self, name: str) -> LinkFacts | None:
        """The device with this name."""
        return self.items.link(name)


def find_rises(before: NodeFacts, after: NodeFacts) -> tuple[DeviceCounter, ...]:
    """The increase of counters between two observations, the largest first. Pure."""
    old = {replace(counter, value=0): counter.value for counter in before.counters}
    rises = (
        replace(counter, value=counter.value - old.get(replace(counter, value=0), 0))
        for counter in after.counters
    )
    risen = [rise for rise in rises if rise.value > 0]
    return tuple(sorted(risen, key=lambda rise: (-rise.value, rise.device, rise.event)))
