"""One difference between a machine's or pod's state and what the lab made."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StateDifference:
    """A difference, and the commands that show and undo it; empty if no command can."""

    section: str
    """``"nftables"``, ``"route"``, ``"rule"``, ``"link"``, ``"setting"``, ..."""
    object: str
    """``"chain ip filter forward"``, ``"route to 10.244.1.0/24"``, ``"eth0"``."""
    intended: str
    observed: str
    shows: str
    mends: str
    device: str = ""
    """The only device concerned; empty if none or all are."""
    table: str = ""
    """Family and name of its nftables table."""
