"""Broadcast domains, and what is plugged into them: cards, and the switches of hypervisors."""

from __future__ import annotations

from dataclasses import dataclass

NODE_SEGMENT = "cluster"
"""Name of the segment that all nodes are on."""


@dataclass(frozen=True, slots=True)
class Segment:
    """One broadcast domain: ``cluster``, ``outside``, or the one between ``hypervisors``."""

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
    card: str | None = None
    """Where a virtual switch has the card as a port: the card's name, while ``name`` is the
    bridge of that switch, which then has the card's MAC and addresses."""
    host: str | None = None
    """The scenario's own hypervisor whose switch it is plugged into; None where the segment is
    one piece."""
    virtual: tuple[str, ...] = ()
    """Addresses that a daemon gives it, as far as the machine holds them: see the intent."""

    @property
    def held(self) -> tuple[str, ...]:
        """Every address that it has: its own first."""
        return (*self.addresses, *self.virtual)


@dataclass(frozen=True, slots=True)
class SwitchPort:
    """What is plugged into a hypervisor's switch: a card of a machine."""

    name: str
    machine: str
    card: str


@dataclass(frozen=True, slots=True)
class Switch:
    """The bridge of a hypervisor that carries a segment; the hypervisor's tunnel is in it too."""

    name: str
    segment: str
    mac: str
    mtu: int
    ports: tuple[SwitchPort, ...]
