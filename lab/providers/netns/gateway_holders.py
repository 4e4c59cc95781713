"""Who holds the lab's virtual gateways now: asked of the machines that may."""

from __future__ import annotations

from collections.abc import Mapping

from lab._deadline import Deadline
from lab.providers.netns import namespaces
from lab.providers.netns.entry import HolderEntry
from lab.providers.netns.links import addresses, links
from lab.providers.netns.netlink import Socket
from lab.topology.intent import Intent

_SECONDS = 10.0


def holders(entry: HolderEntry, intent: Intent) -> Mapping[str, tuple[str, ...]]:
    """Machines that have the address on their card, by the node whose gateway it is."""
    machines = dict.fromkeys(name for one in intent.gateways for name in one.candidates)

    def look(_: object) -> Mapping[str, frozenset[tuple[str, str]]]:
        return {name: _held(name) for name in machines}

    seen = entry.call("looking for the holders of gateways", look, Deadline(_SECONDS))
    return {
        one.node: tuple(name for name in one.candidates if (one.device, one.address) in seen[name])
        for one in intent.gateways
    }


def _held(machine: str) -> frozenset[tuple[str, str]]:
    """Device and address of a machine, seen from inside."""
    with namespaces.within(machine), Socket(machine) as channel:
        names = {link.index: link.name for link in links(channel)}
        return frozenset((names[index], address) for index, address in addresses(channel))
