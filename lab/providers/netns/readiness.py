"""Whether a lab's links are up, seen from inside."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from lab._deadline import Deadline
from lab.providers.netns import namespaces
from lab.providers.netns.links import links
from lab.providers.netns.netlink import Socket
from lab.providers.netns.operations import NamespaceOperations, VethAdd


def wait_for_carrier(wanted: Sequence[NamespaceOperations], deadline: Deadline) -> None:
    """Wait until every veth has its carrier; one end speaks for both.

    Raises
    ------
    DeadlineError
        Naming the links that have none.

    """
    for one in wanted:
        veths = {op.name for op in one.operations if isinstance(op, VethAdd)}
        if veths:
            wait_for_links(one.namespace, veths, deadline)


def wait_for_links(namespace: str, wanted: set[str], deadline: Deadline) -> None:
    """Wait until the links of that namespace have their carrier.

    Raises
    ------
    DeadlineError
        Naming the links that have none.

    """
    with namespaces.within(namespace), Socket(namespace) as channel:
        deadline.wait(
            f"waiting for the carrier of links in namespace '{namespace}'",
            partial(_down, wanted, channel),
            until=lambda down: not down,
            every=0.001,
        )


def _down(wanted: set[str], channel: Socket) -> list[str]:
    return sorted(wanted - {link.name for link in links(channel) if link.carrier})
