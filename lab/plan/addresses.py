"""Addresses handed out in order, and the MAC that belongs to each."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from ipaddress import IPv4Address, IPv4Network
from itertools import chain

ROUTER_OFFSET = 1
"""The router's address on the node segment is network + 1."""
FIRST_NODE_OFFSET = 10
"""Nodes start at network + 10, so that a person can tell them from infrastructure."""
FIRST_POD_OFFSET = 4
"""Pods start at network + 4: a tunnel end (+0), a Linux bridge or VRRP gateway (+1), the
l2bridge gateway (+2) and one spare go before (facts: wincni uses network + 2)."""
FIRST_SERVICE_OFFSET = 20
"""Services start at network + 20; +1 is the API server's own and +10 is usually DNS."""

OUTSIDE = IPv4Network("198.51.100.0/24")
"""The outside segment: TEST-NET-2 of RFC 5737, never a user's own network."""
OUTSIDE_ROUTER = OUTSIDE[1]
OUTSIDE_CLIENT = OUTSIDE[10]


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
