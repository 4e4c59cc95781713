"""Links, routes, neighbours and forwarding entries from the JSON of ``ip`` and ``bridge``. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from ipaddress import ip_address
from typing import Any

from lab.cluster.observers.facts import Counter, Link, SeenNeighbour
from lab.cluster.observers.passage import Barrier
from lab.topology.intent import (
    Bridge,
    ForwardingEntry,
    Neighbour,
    ProxyNeighbour,
    Route,
    Tunnel,
)

Entry = Mapping[str, Any]

_CAST = "unicast"
_ORDINARY_QUEUES = {"noqueue", "pfifo_fast", "fq_codel", "fq", "mq", "pfifo", "clsact", "ingress"}
"""Queueing disciplines that a system sets by itself, and hooks that do nothing by themselves."""
_SLOWING = {"tbf", "htb", "netem", "police", "hfsc", "cbs", "sfb", "red"}
_ERRORS = ("errors", "dropped")


def links(entries: Iterable[Entry], ports: Iterable[Entry] = ()) -> tuple[Link, ...]:
    """Every device, from ``ip -details address`` and ``bridge -details link``."""
    hairpin = {str(port.get("ifname")): port.get("hairpin") for port in ports}
    return tuple(_link(entry, hairpin) for entry in entries)


def _link(entry: Entry, hairpin: Mapping[str, object]) -> Link:
    flags = entry.get("flags", ())
    name = str(entry.get("ifname", ""))
    said = hairpin.get(name)
    master = entry.get("master")
    return Link(
        name=name,
        kind=_kind(entry),
        mac=str(entry.get("address", "")).lower(),
        addresses=_addresses(entry),
        mtu=int(entry.get("mtu", 0)),
        up="UP" in flags,
        carrier="LOWER_UP" in flags and entry.get("operstate") not in {"DOWN", "LOWERLAYERDOWN"},
        master=str(master) if master else None,
        hairpin=said if isinstance(said, bool) else None,
    )


def _kind(entry: Entry) -> str:
    if entry.get("link_type") == "loopback":
        return "loopback"
    return str(entry.get("linkinfo", {}).get("info_kind", ""))


def _addresses(entry: Entry) -> tuple[str, ...]:
    return tuple(
        f"{one['local']}/{one['prefixlen']}"
        for one in entry.get("addr_info", ())
        if one.get("family") == "inet" and "local" in one
    )


def bridges(seen: Iterable[Link]) -> tuple[Bridge, ...]:
    """Those of the devices that are bridges."""
    return tuple(
        Bridge(link.name, link.mac, link.addresses, link.mtu)
        for link in seen
        if link.kind == "bridge"
    )


def tunnels(entries: Iterable[Entry]) -> tuple[Tunnel, ...]:
    """Those that are VXLAN devices."""
    return tuple(_tunnel(entry) for entry in entries if _kind(entry) == "vxlan")


def _tunnel(entry: Entry) -> Tunnel:
    data = _data(entry)
    return Tunnel(
        name=str(entry["ifname"]),
        vni=int(data.get("id", 0)),
        port=int(data.get("port", 0)),
        local=str(data.get("local", "")),
        device=str(data.get("link", "")),
        mac=str(entry.get("address", "")).lower(),
        addresses=_addresses(entry),
        mtu=int(entry.get("mtu", 0)),
    )


def learning(entries: Iterable[Entry]) -> tuple[str, ...]:
    """Names of the VXLAN devices that learn."""
    return tuple(
        str(entry["ifname"])
        for entry in entries
        if _kind(entry) == "vxlan" and _data(entry).get("learning") is True
    )


def _data(entry: Entry) -> Entry:
    data = entry.get("linkinfo", {}).get("info_data", {})
    return data if isinstance(data, Mapping) else {}


def routes(entries: Iterable[Entry]) -> tuple[Route, ...]:
    """The best route of each destination: the one of the lowest metric, the first of several."""
    best: dict[str, tuple[int, Route]] = {}
    for entry in entries:
        destination = str(entry.get("dst", ""))
        metric = int(entry.get("metric", 0))
        if destination not in best or metric < best[destination][0]:
            best[destination] = (metric, _route(destination, entry))
    return tuple(route for _, route in best.values())


def _route(destination: str, entry: Entry) -> Route:
    kind = str(entry.get("type", _CAST))
    via = entry.get("gateway")
    flags = entry.get("flags", ())
    device = str(entry.get("dev", "")) if kind == _CAST else kind
    if kind == _CAST and ("dead" in flags or "linkdown" in flags):
        device = f"{device} (down)"
    source = None if entry.get("protocol") == "kernel" else entry.get("prefsrc")
    return Route(destination, device, str(via) if via else None, "onlink" in flags, source=source)


def neighbours(entries: Iterable[Entry]) -> tuple[SeenNeighbour, ...]:
    """Every IPv4 neighbour entry that is one machine's, in the order of addresses."""
    found = [_neighbour(entry) for entry in entries if _is_machine(str(entry.get("dst", "")))]
    return tuple(
        sorted(found, key=lambda one: (one.neighbour.device, ip_address(one.neighbour.address)))
    )


def _neighbour(entry: Entry) -> SeenNeighbour:
    state = entry.get("state", ())
    return SeenNeighbour(
        Neighbour(
            str(entry["dst"]), str(entry.get("lladdr", "")).lower(), str(entry.get("dev", ""))
        ),
        "|".join(str(one) for one in state) if isinstance(state, list) else str(state),
    )


def _is_machine(text: str) -> bool:
    try:
        address = ip_address(text)
    except ValueError:
        return False
    return address.version == 4 and not address.is_multicast  # noqa: PLR2004  IPv4


def forwarding(entries: Iterable[Entry]) -> tuple[ForwardingEntry, ...]:
    """The entries that name a tunnel's end."""
    return tuple(
        ForwardingEntry(
            str(entry.get("mac", "")).lower(), str(entry.get("ifname", "")), str(entry["dst"])
        )
        for entry in entries
        if "dst" in entry
    )


def proxies(entries: Iterable[Entry]) -> tuple[ProxyNeighbour, ...]:
    """The addresses that the node answers ARP for."""
    return tuple(
        ProxyNeighbour(str(entry["dst"]), str(entry.get("dev", "")))
        for entry in entries
        if "dst" in entry
    )


def shapers(entries: Iterable[Entry]) -> tuple[Barrier, ...]:
    """Queueing disciplines that slow or lose packets, from ``tc qdisc``."""
    return tuple(_shaper(entry) for entry in entries if entry.get("kind") in _SLOWING)


def _shaper(entry: Entry) -> Barrier:
    device, kind = str(entry.get("dev", "")), str(entry["kind"])
    options = entry.get("options", {})
    said = " ".join(f"{key} {_plain(value)}" for key, value in options.items() if value)
    return Barrier(
        where=device,
        rule=f"{kind} {said}".strip(),
        packets=int(entry.get("drops", 0)),
        shows=f"tc -statistics qdisc show dev {device}",
        mends=f"tc qdisc del dev {device} root",
    )


def _plain(value: object) -> str:
    if isinstance(value, Mapping):
        return " ".join(f"{key} {_plain(inner)}" for key, inner in value.items())
    return str(value)


def counters(entries: Iterable[Entry]) -> Iterator[Counter]:
    """Packets, errors and drops of every device."""
    for entry in entries:
        said = entry.get("stats64") or entry.get("stats") or {}
        for way, words in (("rx", "received"), ("tx", "sent")):
            for key, value in said.get(way, {}).items():
                if key == "packets" or (key.endswith(_ERRORS) and value):
                    yield Counter(f"{entry.get('ifname')} {words} {key}", int(value))
