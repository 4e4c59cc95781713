"""What a node does to packets, as it was seen: translates, masquerades, loses or refuses them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


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
    table: str = ""
    """Of nftables; empty where it is none of its."""
    networks: tuple[str, ...] = ()
    """Of a rule about ARP: those in which the machine itself asks with an address of the rule."""


@dataclass(frozen=True, slots=True)
class Translations:
    """What the node translates."""

    by: str
    """``"lab"``, ``"nftables"``, ``"iptables"``, ``"hns"``; empty where there is nothing."""
    services: tuple[Translated, ...]
    masquerades: tuple[Masquerade, ...]
    marked: bool
    """Whether what kube-proxy has marked is masqueraded, by Linux; HNS does without."""
    stranded: bool = False
    """Whether kube-proxy has chains for Services that nothing leads to."""


NOTHING_TRANSLATED = Translations("", (), (), marked=False)
