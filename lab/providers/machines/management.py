"""The management network: how the controller reaches machines. Pure.

Its card, and each machine's MAC on it; which range a lab takes is its provider's matter.
"""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Network
from uuid import UUID, uuid5

from lab.providers.provider import LabHandle

DEVICE = "mgmt0"
"""The management card inside the machines."""
SUBNET_BITS = 24
"""Prefix length of a lab's range: at most 244 machines."""
SPACE = UUID("4f3b7f9e-6a53-4bb0-9b0e-5d3c1f6f2a11")
"""What names of a lab's objects are made unique in."""


def management_mac(lab: LabHandle, machine: str) -> str:
    """The MAC of a machine's management card: local, and of no other lab."""
    digits = uuid5(SPACE, f"{lab.token}/mac/{machine}").hex[:8]
    return "52:56:" + ":".join(digits[at : at + 2] for at in range(0, 8, 2))


def ranges(pool: IPv4Network, token: str) -> Iterator[IPv4Network]:
    """Every range of a pool, beginning at a place of the token's own.

    Labs that come up at once seldom want the same one first.

    ``token``: hex digits, eight at least.
    """
    listed = list(pool.subnets(new_prefix=max(SUBNET_BITS, pool.prefixlen)))
    first = int(token[:8], 16) % len(listed)
    yield from listed[first:] + listed[:first]
