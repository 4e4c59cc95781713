"""Whether a lab's links are up, seen from inside."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import partial

from lab._deadline import Deadline
from lab.providers.netns import namespaces
from lab.providers.netns.netlink import GET_LINK, Socket, attributes
from lab.providers.netns.operations import NamespaceOperations, VethAdd

_NAME = 3
_LOWER_UP = 1 << 16
"""IFF_LOWER_UP of linux/if.h: the device has a carrier."""


def wait_for_carrier(wanted: Sequence[NamespaceOperations], deadline: Deadline) -> None:
    """Wait until every veth has its carrier; one end speaks for both.

    Raises
    ------
    DeadlineError
        Naming the links that have none.

    """
    for one in wanted:
        links = {op.name for op in one.operations if isinstance(op, VethAdd)}
        if not links:
            continue
        with namespaces.within(one.namespace), Socket(one.namespace) as channel:
            deadline.wait(
                f"waiting for the carrier of links in namespace '{one.namespace}'",
                partial(_down, links, channel),
                until=lambda down: not down,
                every=0.001,
            )


def _down(links: set[str], channel: Socket) -> list[str]:
    return sorted(links - _up(channel))


def _up(channel: Socket) -> set[str]:
    found: set[str] = set()
    for body in channel.dump(GET_LINK, struct.pack("=BxHiII", 0, 0, 0, 0, 0)):
        (flags,) = struct.unpack_from("=I", body, 8)
        if flags & _LOWER_UP:
            found.add(attributes(body[16:])[_NAME].rstrip(b"\0").decode())
    return found
