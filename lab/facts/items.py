"""The facts of one network namespace: one item for each object. Pure.

What a machine must have, and what its tools print (:mod:`lab.facts.readers`), are items made by the
same functions (:func:`make_route`, :func:`make_neighbour`, :func:`make_device_items`, ...), so that
both sides have the same notation and the same commands.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from lab.facts.difference import name_in_state
from lab.topology.subject import (
    AddressSubject,
    DeviceSubject,
    EntrySubject,
    NeighbourSubject,
    ProxySubject,
    RouteSubject,
    SettingSubject,
    Subject,
    device_of,
)

THERE = "there"
"""The value of an object of which nothing is known but that it exists."""
SET, NOT_SET = "set", "not set"
"""The values of a device's flags."""
CARRIER, DARK = "carrier", "no carrier: its other end is down or missing"
"""The values of a device's attribute ``carrier``."""
OPEN = "open"
"""The value of a socket whose program is not known."""
VNI, PORT, LOCAL, KIND, HAIRPIN = (
    "linkinfo.info_data.id",
    "linkinfo.info_data.port",
    "linkinfo.info_data.local",
    "linkinfo.info_kind",
    "linkinfo.info_slave_data.hairpin",
)
"""Attributes of devices, by their paths in the output of ``ip -json -details link``."""
_FLOOD = "00:00:00:00:00:00"
FLAGS = {
    "UP": ("up", "down"),
    "NOARP": ("arp off", "arp on"),
    "PROMISC": ("promisc on", "promisc off"),
    "ALLMULTI": ("allmulticast on", "allmulticast off"),
    "MULTICAST": ("multicast on", "multicast off"),
    "BROADCAST": ("", ""),
}
"""What sets a flag of a device, and what unsets it."""
_WORDS = {
    ("up", SET): "up",
    ("up", NOT_SET): "set down",
    ("carrier", CARRIER): "up",
    (HAIRPIN, "true"): "on",
    (HAIRPIN, "false"): "off",
    ("mtu", ""): "MTU {}",
    (VNI, ""): "VNI {}",
    (PORT, ""): "UDP port {}",
    (LOCAL, ""): "from {}",
    ("master", ""): "plugged into {}",
}
"""Values of devices' attributes for readers."""
_STATES = {"disabled": 0, "listening": 1, "learning": 2, "forwarding": 3, "blocking": 4}
_PORT_NAMES = {"multicast_router": "mcast_router"}
_ROUTE_FLAGS = re.compile(r" (?:linkdown|dead|rt_offload|rt_trap|offload|trap|pervasive)\b")
_OF_KERNEL_ARP = frozenset({"", _FLOOD, "ff:ff:ff:ff:ff:ff"})


@dataclass(frozen=True, slots=True)
class Item:
    """One object of a machine, or an attribute of one, with the commands that are for it."""

    section: str
    """``"link"``, ``"route"``, ``"setting"``, ...; ``"learned"`` for a neighbour that comes and
    goes by itself."""
    subject: Subject
    value: str = THERE
    """As its tool prints it."""
    make: str = ""
    """The command that creates it."""
    remove: str = ""
    """The command that removes it."""
    shows: str = ""
    attribute: str = ""
    short: str = ""
    """What of its value matters to a packet, in words: a MAC, another end, where a route leads."""

    @property
    def words(self) -> str:
        """Its value for readers."""
        return self.short or self.value

    @property
    def object(self) -> str:
        """Its name."""
        return name_in_state(self.subject, self.attribute)

    @property
    def key(self) -> str:
        """What tells it from all others of its machine."""
        return f"{self.section} {self.object}"

    @property
    def device(self) -> str:
        """The only device that it is of; empty if it is of none or of all."""
        return device_of(self.subject)

    @property
    def exists(self) -> bool:
        """Whether it is a device itself, not an attribute of one."""
        return isinstance(self.subject, DeviceSubject) and not self.attribute


@dataclass(frozen=True, slots=True)
class LinkFacts:
    """The items of one network device that most checks need."""

    name: str
    kind: str
    """``"veth"``, ``"bridge"``, ``"vxlan"``, ...; empty for a physical interface."""
    mac: str
    addresses: tuple[str, ...]
    """IPv4, with prefix length."""
    mtu: int
    """0 if it is not known."""
    up: bool
    """Whether it is administratively up."""
    carrier: bool
    """Whether its other end is up, too."""
    master: str = ""
    """The bridge that it is a port of."""


class Items(dict[str, Item]):
    """Items by their keys."""

    @classmethod
    def of(cls, items: Iterable[Item]) -> Items:
        """The items; of several with the same key the last one."""
        return cls((item.key, item) for item in items)

    def attribute(self, device: str, name: str) -> str:
        """The value of a device's attribute; empty if it is not known."""
        item = self.get(f"link {device} {name}")
        return item.value if item else ""

    def addresses(self, device: str) -> tuple[str, ...]:
        """The addresses of a device, with their prefix lengths."""
        return tuple(
            item.subject.address
            for item in self.values()
            if isinstance(item.subject, AddressSubject) and item.subject.device == device
        )

    def held(self) -> frozenset[str]:
        """The addresses of all devices, without prefix length."""
        subjects = (item.subject for item in self.values())
        return frozenset(
            subject.address.partition("/")[0]
            for subject in subjects
            if isinstance(subject, AddressSubject)
        )

    def devices(self, kind: str = "") -> tuple[str, ...]:
        """The names of all devices, or of those of a kind: ``"bridge"``, ``"vxlan"``."""
        names = (item.device for item in self.values() if item.exists)
        return tuple(name for name in names if not kind or self.attribute(name, KIND) == kind)

    def link(self, name: str) -> LinkFacts | None:
        """The device with this name."""
        if f"link {name}" not in self:
            return None
        return LinkFacts(
            name,
            self.attribute(name, KIND),
            self.attribute(name, "address"),
            self.addresses(name),
            int(self.attribute(name, "mtu") or 0),
            up=self.attribute(name, "up") == SET,
            carrier=self.attribute(name, "up") == SET and self.attribute(name, "carrier") != DARK,
            master=self.attribute(name, "master"),
        )

    def links(self) -> tuple[LinkFacts, ...]:
        """Every device."""
        return tuple(link for name in self.devices() if (link := self.link(name)))

    def routes(self) -> Mapping[str, Item]:
        """The best route of the main table to each destination: the lowest metric, the first."""
        best: dict[str, Item] = {}
        for item in self.values():
            route = item.subject
            if isinstance(route, RouteSubject) and route.table == "main":
                known = best.setdefault(route.destination, item)
                if int(route.metric or 0) < int(route_of(known).metric or 0):
                    best[route.destination] = item
        return best

    def find(self, item: Item) -> Item | None:
        """The same object; of a route the best one, of a neighbour also a learned one."""
        if isinstance(item.subject, RouteSubject):
            return self.route(item.subject.destination)
        return self.get(item.key) or self.get(f"learned {item.object}")

    def works(self, device: str) -> bool:
        """Whether a device exists, is up and has a carrier."""
        link = self.link(device)
        return link is not None and link.up and link.carrier

    def route(self, destination: str) -> Item | None:
        """The best route of the main table to a destination."""
        return self.routes().get(destination.removesuffix("/32"))


def route_of(item: Item) -> RouteSubject:
    """The subject of an item that is a route."""
    assert isinstance(item.subject, RouteSubject), item
    return item.subject


def _shows_device(name: str) -> str:
    return f"ip -details address show dev {name}"


def make_device(name: str) -> Item:
    """A network device."""
    return Item(
        "link", DeviceSubject(name), THERE, "", f"ip link delete {name}", _shows_device(name)
    )


def make_device_items(link: LinkFacts) -> Iterator[Item]:
    """A device with the attributes and addresses that are known of it."""
    yield make_device(link.name)
    attributes = {KIND: link.kind, "address": link.mac, "master": link.master}
    attributes |= {"mtu": str(link.mtu or ""), "up": SET if link.up else NOT_SET}
    attributes["carrier"] = CARRIER if link.carrier or not link.up else DARK
    yield from (
        make_attribute(link.name, name, value) for name, value in attributes.items() if value
    )
    yield from (make_address(text, link.name) for text in link.addresses)


def make_attribute(name: str, key: str, value: str, kind: str = "") -> Item:
    """An attribute or flag of a device; ``kind``: the device's."""
    flag = FLAGS.get(key.upper())
    if flag is not None:
        option = flag[0] if value == SET else flag[1]
        make = f"ip link set dev {name} {option}" if option else ""
    else:
        make = _set_link(name, kind, key, value)
    words = _WORDS.get((key, value)) or _WORDS.get((key, ""), "").format(value)
    return Item("link", DeviceSubject(name), value, make, "", _shows_device(name), key, words)


def make_address(text: str, name: str, peer: str = "", scope: str = "", old: str = "") -> Item:
    """An address of a device, with its prefix length, and what else is printed of it."""
    local = f"{text.partition('/')[0]}{peer}" if peer else text
    return Item(
        "address", AddressSubject(text, name), f"{THERE}{peer}{scope}{old}",
        f"ip address replace {local} dev {name}{scope}",
        f"ip address delete {local} dev {name}", _shows_device(name), short=text,
    )  # fmt: skip


def _set_link(name: str, kind: str, key: str, value: str) -> str:
    plain = {
        "mtu": "mtu", "address": "address", "txqlen": "txqueuelen", "master": "master",
        "group": "group", "ifalias": "alias",
        "gso_max_size": "gso_max_size", "gso_max_segs": "gso_max_segs",
        "gro_max_size": "gro_max_size",
    }  # fmt: skip
    if key in plain:
        return f"ip link set dev {name} {plain[key]} {value}"
    last = key.rpartition(".")[2]
    words = {"true": "on", "false": "off"}.get(value, value)
    if ".info_slave_data." in f".{key}":
        if last == "state":
            words = str(_STATES.get(value, value))
        return f"ip link set dev {name} type bridge_slave {_PORT_NAMES.get(last, last)} {words}"
    if ".info_data." in f".{key}" and kind == "bridge":
        return f"ip link set dev {name} type bridge {last} {value}"
    return ""


def make_route(line: str) -> Item:
    """A route in the words of ``ip route``."""
    line = _ROUTE_FLAGS.sub("", line).strip()
    words = _words(line)
    typed = not words[0][0].isdigit() and words[0] != "default"
    target = words[1 if typed else 0].removesuffix("/32")  # as it is printed
    table, metric = find_after(words, "table") or "main", find_after(words, "metric")
    maker, devices, ends = find_after(words, "proto"), _each(words, "dev"), _each(words, "via")
    subject = RouteSubject(
        *(target, table, metric, find_after(words, "tos")),
        device=next(iter(devices), ""),
        via=", ".join(ends),
        maker=maker,
        source=find_after(words, "src"),
    )
    spec = line
    if nexthop := find_after(words, "nhid"):  # ip refuses its device and type beside it
        spec = f"{target} nhid {nexthop} table {table}" + (f" metric {metric}" if metric else "")
    return Item(
        "route", subject, line, f"ip route replace {spec}", f"ip route delete {spec}",
        f"ip route show table {table}", short=_route_end(words, devices, ends, maker),
    )  # fmt: skip


def _route_end(
    words: Sequence[str], devices: Sequence[str], ends: Sequence[str], maker: str
) -> str:
    """Where a route leads, and the source address of the machine's own packets."""
    if not words[0][0].isdigit() and words[0] not in {"default", "unicast"}:
        return f"a {words[0]} route"
    source = "" if maker == "kernel" else find_after(words, "src")
    via = f"through {', '.join(ends)} " if ends else ""
    return f"{via}on {', '.join(dict.fromkeys(devices))}" + (f" from {source}" if source else "")


def _words(line: str) -> list[str]:
    """The words of a line; names of Windows' devices have spaces, and are quoted."""
    return shlex.split(line) if "'" in line else line.split()


def _each(words: Sequence[str], word: str) -> list[str]:
    return [after for before, after in pairwise(words) if before == word]


def find_after(words: Sequence[str], word: str) -> str:
    """The word after the first ``word``; empty if there is none."""
    return next(iter(_each(words, word)), "")


def make_neighbour(target: str, name: str, mac: str, state: str = "PERMANENT") -> Item:
    """A neighbour entry; ``state``: of ip-neighbour(8), in capitals."""
    # the kernel itself makes those of loopback and broadcast addresses
    lasting = state == "PERMANENT" or (state == "NOARP" and mac not in _OF_KERNEL_ARP)
    nud = state.lower() if lasting else "permanent"
    return Item(
        "neighbour" if lasting else "learned",
        NeighbourSubject(target, name, state=state),
        mac if state == "PERMANENT" else f"{mac or 'no MAC'} ({state.lower()})",
        f"ip neighbour replace {target} lladdr {mac} dev {name} nud {nud}",
        f"ip neighbour delete {target} dev {name}",
        "ip neighbour",
        short=mac,
    )


def make_proxy(target: str, name: str) -> Item:
    """An address for which ARP is answered on a device."""
    spec = f"proxy {target} dev {name}"
    return Item("neighbour", ProxySubject(target, name), THERE, f"ip neighbour add {spec}",
                f"ip neighbour delete {spec}", "ip neighbour show proxy")  # fmt: skip


def make_entry(  # noqa: PLR0913  an entry is all of these
    mac: str, name: str, remote: str, vid: str = "", *, how: str = "self", lasts: str = "permanent"
) -> Item:
    """A forwarding entry of a bridge or tunnel."""
    to, vlan = f" dst {remote}" if remote else "", f" vlan {vid}" if vid else ""
    spec = f"{mac} dev {name}{to}{vlan} {how}"
    # a flood address can have several ends; for others the end is the entry's value
    subject = EntrySubject(mac, name, remote if mac == _FLOOD else "", vid)
    verb = "append" if mac == _FLOOD else "replace"
    return Item("forwarding", subject, spec, f"bridge fdb {verb} {spec} {lasts}",
                f"bridge fdb delete {spec}", f"bridge fdb show dev {name}",
                short=to.replace(" dst", "to"))  # fmt: skip


def make_setting(path: str, value: str) -> Item:
    """A setting of the kernel, by its path below ``/proc/sys/net``."""
    parts = path.split("/")
    per_device = len(parts) > 3 and parts[1] in {"conf", "neigh"}  # noqa: PLR2004
    name = parts[2] if per_device and parts[2] not in {"all", "default"} else ""
    make = f"sysctl -w {shlex.quote(f'net/{path}={value}')}"
    return Item("setting", SettingSubject(path, name), value, make, "", f"sysctl net/{path}")
