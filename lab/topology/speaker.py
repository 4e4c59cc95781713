"""What a machine says by BGP, and to whom."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Session:
    """One BGP session, seen from one of its ends."""

    machine: str
    """The other end."""
    address: str
    asn: int
    """The other end's autonomous system."""


@dataclass(frozen=True, slots=True)
class Speaker:
    """One machine as a speaker of BGP."""

    address: str
    """Its own end of every session, and its router id."""
    asn: int
    sessions: tuple[Session, ...]
    announces: tuple[str, ...]
    """Devices whose networks it announces, as far as pods have them."""
    hold_seconds: int
    """A peer that says nothing for so long is lost."""
    passes_on: bool = False
    """Whether it announces what it has learned, with itself as the next hop."""
    tunnel: str | None = None
    """The device that what it learns leads into; None for the one that peers are on."""
    bfd_milliseconds: int | None = None
    """Between two packets that say it is alive; three missing, and a peer takes it for lost.
    None where only the hold time tells."""
    blocks: tuple[str, ...] = ()
    """Prefixes that it announces whatever stands behind them: Calico's blocks."""
