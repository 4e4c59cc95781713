"""The management network, over which the controller reaches machines. Pure.

The card's name, each machine's MAC on it, and candidate ranges; the provider chooses one.
"""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Network
from uuid import UUID, uuid5

from lab.providers.provider import LabHandle

DEVICE = "mgmt0"
"""The management card inside the machines."""
SUBNET_BITS = 24
"""Prefix length of a lab's range; enough for 244 machines."""
SPACE = UUID("4f3b7f9e-6a53-4bb0-9b0e-5d3c1f6f2a11")
"""UUID namespace for a lab's objects."""


def management_mac(lab: LabHandle, machine: str) -> str:
    """The MAC of a machine's management card: locally administered, unique to the lab."""
    digits = uuid5(SPACE, f"{lab.token}/mac/{machine}").hex[:8]
    return "52:56:" + ":".join(digits[at : at + 2] for at in range(0, 8, 2))


def ranges(pool: IPv4Network, token: str) -> Iterator[IPv4Network]:
    """Every range of a pool, starting at a position derived from the token.

    So labs that come up at the same time rarely try the same range first.

    ``token``: at least eight hex digits.
    """
    listed = list(pool.subnets(new_prefix=max(SUBNET_BITS, pool.prefixlen)))
    first = int(token[:8], 16) % len(listed)
    yield from listed[first:] + listed[:first]
