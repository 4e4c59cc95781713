"""Default routes that are not the lab's, and stand in the way of the Intent's.

The Intent's default route has metric 0. Another one by the same metric would be used in turn
with it (the kernel takes the one whose gateway it has heard of last), so it is given a higher
metric, where it is used when the Intent's is gone, and is put back when the lab goes.
Most ways to configure a card (systemd-networkd, NetworkManager) give a higher one at once.
"""

from __future__ import annotations

from collections.abc import Iterable

from lab.providers.netns.netlink import DefaultRoute, Socket, list_default_routes, list_links
from lab.providers.netns.operations import Message, Names, RouteAdd, RouteRemove

METRIC = 1024
"""What systemd-networkd gives to a route that DHCP has told of."""

Demoted = tuple[str, str | None, bool]
"""Device, gateway, and whether the gateway is on the link."""


def in_the_way(channel: Socket, machine_has_default: bool) -> tuple[Demoted, ...]:
    """The default routes to be moved; to be asked when those of the lab are cleared."""
    if not machine_has_default:
        return ()
    names = {link.index: link.name for link in list_links(channel)}
    return tuple(
        (names[one.index], one.via, one.onlink)
        for one in list_default_routes(channel)
        if one.metric == 0
    )


def demote(channel: Socket, routes: Iterable[Demoted]) -> None:
    """Give each the higher metric; one that has it already is left alone."""
    _move(channel, routes, 0, METRIC)


def restore(channel: Socket, routes: Iterable[Demoted]) -> None:
    """Give each its metric back; one that has gone meanwhile is let go."""
    _move(channel, routes, METRIC, 0)


def _move(channel: Socket, routes: Iterable[Demoted], before: int, after: int) -> None:
    indexes = {link.name: link.index for link in list_links(channel)}
    there = frozenset(list_default_routes(channel))
    operations: list[Message] = []
    for device, via, onlink in routes:
        if device not in indexes:
            continue
        if DefaultRoute(indexes[device], via, onlink, before) not in there:
            continue
        if DefaultRoute(indexes[device], via, onlink, after) not in there:
            operations.append(RouteAdd("default", device, via, onlink, metric=after))
        operations.append(RouteRemove("default", device, via, onlink, before))
    channel.apply(operations, Names(indexes, _no_namespace))


def _no_namespace(name: str) -> int:
    raise KeyError(name)
