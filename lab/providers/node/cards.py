"""The computer's network cards: found by their MAC, named as the Intent has it, and cleared."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

from lab._deadline import Deadline
from lab._errors import BrokenError
from lab.providers.netns.netlink import Link, Socket, list_addresses, list_links
from lab.providers.netns.operations import (
    AddressRemove,
    LinkDown,
    LinkRemove,
    LinkRename,
    Message,
    Names,
)
from lab.providers.node.work import MANAGEMENT
from lab.topology.intent import Interface, MachineIntent

_CARD_KINDS = frozenset({"", "veth"})
"""A card has no kind; in a container it is one end of a veth. Bridges and the like, which
may have the MAC of a card of theirs, are none."""
_MADE_KINDS = frozenset({"bridge", "vxlan", "veth"})
_PASSING = "hybridlab{}"
"""A name on the way to another: two cards may have each other's."""
_FIRST_INDEX = 1000
"""Far from what others use, so that a machine's indexes are as good as the same every time."""


def find(there: Sequence[Link], machine: MachineIntent) -> dict[str, Link]:
    """Each interface's card, by the interface's name. Pure.

    Raises
    ------
    BrokenError
        Naming the MAC that no card has, and the cards; or the name that a stranger's card has.

    """
    cards = [link for link in there if link.kind in _CARD_KINDS and link.mac]
    found = {one.name: _card(one, cards) for one in machine.interfaces}
    taken = {link.name for link in there} - {link.name for link in found.values()}
    for interface in machine.interfaces:
        if interface.name in taken:
            raise BrokenError(
                f"naming the network card with MAC {interface.mac} '{interface.name}'",
                "a device that is not the lab's has that name",
                f"name the management card '{MANAGEMENT}' in the image",
            )
    return found


def _card(interface: Interface, cards: Sequence[Link]) -> Link:
    own = [link for link in cards if link.mac == interface.mac and link.name != MANAGEMENT]
    if not own:
        there = ", ".join(f"'{link.name}' {link.mac}" for link in cards) or "none"
        raise BrokenError(
            f"looking for the network card '{interface.name}' with MAC {interface.mac}",
            f"the machine has no such card; it has {there}",
            f"see that the machine's definition has a card on segment '{interface.segment}'",
        )
    return next((link for link in own if link.name == interface.name), own[0])


def first_index(there: Sequence[Link]) -> int:
    """The first interface index of those that nobody uses. Pure."""
    return max(_FIRST_INDEX, *(link.index for link in there)) + 1


def check_connection(channel: Socket, found: Mapping[str, Link]) -> None:
    """Refuse to touch the card that carries the connection that this is run through.

    Raises
    ------
    BrokenError
        Naming it.

    """
    words = os.environ.get("SSH_CONNECTION", "").split()
    if len(words) != 4:  # noqa: PLR2004  client address and port, own address and port
        return
    indexes = {link.index: name for name, link in found.items()}
    for index, address in list_addresses(channel):
        if index in indexes and address.partition("/")[0] == words[2]:
            raise BrokenError(
                f"clearing network card '{indexes[index]}'",
                f"it carries this very connection, to {words[2]}",
                f"reach the machine by its management card, '{MANAGEMENT}'",
            )


def rename(channel: Socket, found: Mapping[str, Link]) -> None:
    """Give each card, which is down, its interface's name."""
    wrong = {name: link for name, link in found.items() if link.name != name}
    indexes = {link.name: link.index for link in wrong.values()}
    passing = {name: _PASSING.format(link.index) for name, link in wrong.items()}
    indexes |= {passing[name]: link.index for name, link in wrong.items()}
    aside = [LinkRename(link.name, passing[name]) for name, link in wrong.items()]
    back = [LinkRename(passing[name], name) for name in wrong]
    channel.apply([*aside, *back], _names(indexes))


def clear(channel: Socket, macs: Iterable[str]) -> None:
    """Set the cards down, which ends their routes and neighbours, and take their addresses."""
    wanted = frozenset(macs)
    cards = {
        link.index: link.name
        for link in list_links(channel)
        if link.mac in wanted and link.kind in _CARD_KINDS and link.name != MANAGEMENT
    }
    operations: list[Message] = [LinkDown(name) for name in cards.values()]
    operations += _removals(channel, cards)
    channel.apply(operations, _names({name: index for index, name in cards.items()}))


def _removals(channel: Socket, cards: Mapping[int, str]) -> Iterator[AddressRemove]:
    # The last first: the first of a prefix would take the others with it.
    for index, address in reversed(list_addresses(channel)):
        if index in cards:
            yield AddressRemove(cards[index], address)


def remove(channel: Socket, names: Iterable[str], deadline: Deadline) -> None:
    """Take away the bridges, tunnels and veths of these names, and wait until they have gone.

    A veth whose far end's namespace is ending goes by itself, at any moment.

    Raises
    ------
    DeadlineError
        With what the kernel said of those that are still there.

    """
    deadline.wait(
        "removing network devices",
        partial(_remove_once, channel, frozenset(names)),
        until=lambda refused: not refused,
    )


def _remove_once(channel: Socket, names: frozenset[str]) -> dict[str, str]:
    refused: dict[str, str] = {}
    for link in list_links(channel):
        if link.name in names and link.kind in _MADE_KINDS:
            try:
                channel.apply([LinkRemove(link.name)], _names({link.name: link.index}))
            except BrokenError as error:
                refused[link.name] = error.happened
    return refused


def _names(indexes: Mapping[str, int]) -> Names:
    return Names(indexes, _no_namespace)


def _no_namespace(name: str) -> int:
    raise KeyError(name)
