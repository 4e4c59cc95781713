"""One thing in a machine's or a pod's state that is not as the lab made it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StateDifference:
    """What differs, and the commands that show and undo it; no command where none does."""

    section: str
    """``"nftables"``, ``"route"``, ``"rule"``, ``"link"``, ``"setting"``, ..."""
    object: str
    """``"chain ip filter forward"``, ``"route to 10.244.1.0/24"``, ``"eth0"``."""
    intended: str
    observed: str
    shows: str
    mends: str
    device: str = ""
    """The one that it concerns alone; empty where it concerns none or all."""
    table: str = ""
    """Family and name of its nftables table."""
