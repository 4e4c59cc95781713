"""Addresses handed out in order, and the MAC that belongs to each."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from ipaddress import IPv4Address, IPv4Network
from itertools import chain

from lab.scenario.reserved import OUTSIDE_CIDR

FIRST_NODE_OFFSET = 10
"""Nodes start at network + 10, so that a person can tell them from infrastructure."""
FIRST_SERVICE_OFFSET = 20
"""Services start at network + 20; +1 is the API server's own and +10 is usually DNS."""

OUTSIDE_ROUTER = OUTSIDE_CIDR[1]
OUTSIDE_CLIENT = OUTSIDE_CIDR[10]


def mac(address: IPv4Address) -> str:
    """``0a:58`` and the four bytes of the address, as the CNI bridge plugin does."""
    return "0a:58:" + ":".join(f"{byte:02x}" for byte in address.packed)


def hand_out(
    network: IPv4Network, start: int, taken: Collection[IPv4Address]
) -> Iterator[IPv4Address]:
    """Yield the network's free host addresses from ``start`` on, then those before it."""
    last = network.num_addresses - 1
    for offset in chain(range(start, last), range(2, min(start, last))):
        address = network[offset]
        if address not in taken:
            yield address


def hand_out_subnets(
    network: IPv4Network, prefix: int, taken: Collection[IPv4Network]
) -> Iterator[IPv4Network]:
    """Yield the network's subnets of that prefix length that overlap none of ``taken``."""
    for subnet in network.subnets(new_prefix=prefix):
        if not any(subnet.overlaps(other) for other in taken):
            yield subnet
