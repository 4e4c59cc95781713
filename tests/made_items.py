"""Items of machines that are as their Intent, and the same with one thing changed."""

from __future__ import annotations

from collections.abc import Iterable

from lab.facts.items import (
    KIND,
    LOCAL,
    PORT,
    VNI,
    Item,
    Items,
    LinkFacts,
    make_attribute,
    make_device_items,
    make_entry,
    make_neighbour,
    make_proxy,
    make_route,
    make_setting,
)
from lab.topology.commands import format_route
from lab.topology.intent import MachineIntent, Route, Tunnel
from lab.topology.subject import FORWARDING, RouteSubject


def make_links(links: Iterable[LinkFacts]) -> list[Item]:
    return [item for link in links for item in make_device_items(link)]


def make_tunnel(tunnel: Tunnel, master: str = "") -> list[Item]:
    name, addresses = tunnel.name, tunnel.addresses
    link = LinkFacts(name, "vxlan", tunnel.mac, addresses, tunnel.mtu, True, True, master)
    attributes = {VNI: tunnel.vni, PORT: tunnel.port, LOCAL: tunnel.local}
    made = [make_attribute(name, key, str(value)) for key, value in attributes.items()]
    return [*make_device_items(link), *made]


def make_routes(routes: Iterable[Route]) -> list[Item]:
    return [make_route(format_route(route)) for route in routes]


def make_tables(machine: MachineIntent) -> list[Item]:
    """Routes, neighbours, forwarding entries, ARP answers and forwarding as intended."""
    return [
        *make_routes(machine.routes),
        *(make_neighbour(it.address, it.device, it.mac) for it in machine.neighbours),
        *(make_entry(it.mac, it.device, it.remote) for it in machine.forwarding),
        *(make_proxy(it.address, it.device) for it in machine.proxies),
        make_setting(FORWARDING.path, str(int(machine.forwards))),
    ]


def changed(items: Items, *new: Item) -> Items:
    """With other items in the place of those with the same keys."""
    return Items.of((*items.values(), *new))


def without(items: Items, *kinds: type, words: str = "") -> Items:
    """Without the items of some kinds of subjects whose names or values have these words."""
    return Items.of(
        item
        for item in items.values()
        if not (isinstance(item.subject, kinds) and words in f"{item.object} {item.value}")
    )


def with_link(items: Items, link: LinkFacts) -> Items:
    """With other values of a device, what is not known of it kept."""
    gone = {f"link {link.name} {name}" for name in (KIND, "address", "master", "mtu", "carrier")}
    kept = (
        item
        for key, item in items.items()
        if key not in gone and not (item.section == "address" and item.device == link.name)
    )
    return Items.of((*kept, *make_device_items(link)))


def with_routes(items: Items, routes: Iterable[Route]) -> Items:
    """With other routes instead of all."""
    return changed(without(items, RouteSubject), *make_routes(routes))
