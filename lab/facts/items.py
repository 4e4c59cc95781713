"""The facts of one network namespace: what its tools print, as one item for each object. Pure.

One parser a tool. What changes by itself (timers, counters, hash seeds) is left out by rule. The
Intent's wanted items are made by the same functions (:func:`make_route`, :func:`make_neighbour`,
:func:`make_device_items`, ...), so that both sides have the same notation and the same commands.
"""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain, pairwise
from typing import Any

from lab.facts.difference import name_in_state
from lab.facts.questions import WITH_CALICO
from lab.topology.subject import (
    AddressSubject,
    CachedMtuSubject,
    DeviceSubject,
    EntrySubject,
    FileSubject,
    IpSetSubject,
    IptablesSubject,
    NeighbourSubject,
    NexthopSubject,
    ProgramSubject,
    ProxySubject,
    QueueSubject,
    RouteSubject,
    RuleSubject,
    SettingSubject,
    SocketSubject,
    Subject,
    VlanSubject,
    XfrmSubject,
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
_MULTICAST = ("33:33:", "01:00:5e:", "01:80:c2:")
_CHURN = re.compile(
    r"ipv4/tcp_fastopen_key|stable_secret"  # random
    r"|netfilter/nf_conntrack_count|_hash_entries$|_ehash_entries$"  # numbers, of the computer
    r"|netfilter/nf_log"  # only logs
    r"|ipv4/neigh/.*/(?:retrans_time|base_reachable_time)$"  # the same in ms is compared
    r"|^unix/"  # not the network
)
"""Settings that say nothing of what happens to packets."""
_LINK_CHURN = re.compile(
    r"^(?:ifindex|link_index|link_netnsid|num_[rt]x_queues|min_mtu|max_mtu|permaddr|parentbus"
    r"|parentdev)$"  # chosen when the device is made, and without a way to change them
    r"|^(?:operstate|promiscuity|allmulti|qdisc)$"  # follow from flags, carrier and queues
    r"|^stats64\."  # counters
    r"|\.info_data\.(?:\w+_timer|root_port|root_path_cost|root_id|bridge_id|topology_change\w*)$"
    r"|\.info_slave_data\.(?:\w+_timer|id|no|root_id|bridge_id|designated\w+|topology_change\w*"
    r"|config_pending|root_port)$"  # what the spanning tree protocol has found
    r"|_str$"  # the same in words
    r"|\.fdb_n_learned$"
)
"""Attributes of links that are not compared."""
_XDP_MODES = {1: "xdpdrv", 2: "xdpgeneric", 3: "xdpoffload"}
"""Words of ip-link(8) by the numbers of linux/if_link.h (``XDP_ATTACHED_DRV`` and so on)."""
_FLAGS = {
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
_DEFAULT_QUEUES = frozenset({"noqueue", "pfifo_fast", "fq_codel", "mq", "fq"})
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
                if int(route.metric or 0) < int(_route(known).metric or 0):
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


def _route(item: Item) -> RouteSubject:
    assert isinstance(item.subject, RouteSubject), item
    return item.subject


def read_items(texts: Mapping[str, str]) -> Items:
    """Parse what the queries of :mod:`lab.facts.questions` printed, by query."""
    readers = (
        _links, _routes, _cache, _rules, _nexthops, _neighbours, _proxies, _forwarding, _vlans,
        _xfrm, _queues, _sockets, _processes, _settings, _files, _ipsets,
    )  # fmt: skip
    return Items.of(item for read in readers for item in read(texts))


def read_links(texts: Mapping[str, str]) -> Sequence[Mapping[str, Any]]:
    """The devices, as ``ip -json`` prints them."""
    return _parse_links(texts.get("address") or "[]")


@lru_cache(maxsize=4)
def _parse_links(text: str) -> Sequence[Mapping[str, Any]]:
    return [link for link in json.loads(text) if link]


def _links(texts: Mapping[str, str]) -> Iterator[Item]:
    for link in read_links(texts):
        name, flags = str(link["ifname"]), link.get("flags", ())
        kind = str(link.get("linkinfo", {}).get("info_kind", ""))
        yield make_device(name)
        if xdp := link.get("xdp"):
            yield _xdp(name, xdp)
        for key, value in _flat(link):
            if not key.startswith("xdp.") and not _LINK_CHURN.search(key):
                yield make_attribute(name, key, value, kind)
        for flag in _FLAGS:
            yield make_attribute(name, flag.lower(), SET if flag in flags else NOT_SET)
        dark = "UP" in flags and "LOWER_UP" not in flags
        yield make_attribute(name, "carrier", DARK if dark else CARRIER)
        for entry in link.get("addr_info", ()):
            if entry.get("family") == "inet" and "local" in entry:
                yield _address(name, entry)


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
    flag = _FLAGS.get(key.upper())
    if flag is not None:
        option = flag[0] if value == SET else flag[1]
        make = f"ip link set dev {name} {option}" if option else ""
    else:
        make = _set_link(name, kind, key, value)
    words = _WORDS.get((key, value)) or _WORDS.get((key, ""), "").format(value)
    return Item("link", DeviceSubject(name), value, make, "", _shows_device(name), key, words)


def _xdp(name: str, xdp: Mapping[str, Any]) -> Item:
    number = xdp.get("prog", {}).get("id")
    value = "an XDP program" + (f" (id {number})" if number else "") + " is attached"
    off = _XDP_MODES.get(int(xdp.get("mode", 0)), "xdp")
    shows, remove = f"ip -details link show dev {name}", f"ip link set dev {name} {off} off"
    return Item("link", DeviceSubject(name), value, "", remove, shows, "xdp")


def _address(name: str, entry: Mapping[str, Any]) -> Item:
    peer = f" peer {entry['address']}/{entry['prefixlen']}" if "address" in entry else ""
    scope = f" scope {entry['scope']}" if entry.get("scope") not in {"global", None} else ""
    old = ", deprecated" if entry.get("deprecated") else ""
    return make_address(f"{entry['local']}/{entry['prefixlen']}", name, peer, scope, old)


def make_address(text: str, name: str, peer: str = "", scope: str = "", old: str = "") -> Item:
    """An address of a device, with its prefix length, and what else is printed of it."""
    local = f"{text.partition('/')[0]}{peer}" if peer else text
    return Item(
        "address", AddressSubject(text, name), f"{THERE}{peer}{scope}{old}",
        f"ip address replace {local} dev {name}{scope}",
        f"ip address delete {local} dev {name}", _shows_device(name), short=text,
    )  # fmt: skip


def _flat(link: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    for key, value in link.items():
        path = f"{before}{key}"
        if isinstance(value, dict):
            yield from _flat(value, f"{path}.")
        elif not isinstance(value, list) and key != "ifname":
            yield path, str(value).lower() if isinstance(value, bool) else str(value)


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


def _routes(texts: Mapping[str, str]) -> Iterator[Item]:
    """A route per destination, table and metric; those that follow from an address are left out."""
    numbers: Counter[RouteSubject] = Counter()
    for line in re.sub(r"\s*\n[ \t]+", " ", texts.get("route", "")).splitlines():
        words = line.split()
        if not words or " dev lo table local proto kernel" in line:
            continue
        if ":" in " ".join(words[:2]) or words[0] in {"multicast", "anycast"}:
            continue
        if words[0] == "broadcast" and "proto kernel" in line:
            continue
        item = make_route(line)
        subject = replace(_route(item), device="", maker="")
        numbers[subject] += 1
        yield replace(item, subject=replace(_route(item), number=numbers[subject]))


def make_route(line: str) -> Item:
    """A route in the words of ``ip route``."""
    line = _ROUTE_FLAGS.sub("", line).strip()
    words = _words(line)
    typed = not words[0][0].isdigit() and words[0] != "default"
    target = words[1 if typed else 0].removesuffix("/32")  # as it is printed
    table, metric = _after(words, "table") or "main", _after(words, "metric")
    maker, devices, ends = _after(words, "proto"), _each(words, "dev"), _each(words, "via")
    subject = RouteSubject(
        *(target, table, metric, _after(words, "tos")),
        device=next(iter(devices), ""),
        via=", ".join(ends),
        maker=maker,
    )
    spec = line
    if nexthop := _after(words, "nhid"):  # ip refuses its device and type beside it
        spec = f"{target} nhid {nexthop} table {table}" + (f" metric {metric}" if metric else "")
    return Item(
        "route", subject, line, f"ip route replace {spec}", f"ip route delete {spec}",
        f"ip route show table {table}", short=_way(words, devices, ends, maker),
    )  # fmt: skip


def _way(words: Sequence[str], devices: Sequence[str], ends: Sequence[str], maker: str) -> str:
    """Where a route leads, and the source address of the machine's own packets."""
    if not words[0][0].isdigit() and words[0] not in {"default", "unicast"}:
        return f"a {words[0]} route"
    source = "" if maker == "kernel" else _after(words, "src")
    via = f"through {', '.join(ends)} " if ends else ""
    return f"{via}on {', '.join(dict.fromkeys(devices))}" + (f" from {source}" if source else "")


def _words(line: str) -> list[str]:
    """The words of a line; names of Windows' devices have spaces, and are quoted."""
    return shlex.split(line) if "'" in line else line.split()


def _each(words: Sequence[str], word: str) -> list[str]:
    return [after for before, after in pairwise(words) if before == word]


def _after(words: Sequence[str], word: str) -> str:
    return next(iter(_each(words, word)), "")


def _cache(texts: Mapping[str, str]) -> Iterator[Item]:
    """The path MTUs that ICMP errors taught: they outlast their cause by 10 minutes."""
    for mtu in {*re.findall(r"\bmtu (?:lock )?(\d+)", texts.get("cache", ""))}:
        subject, words = CachedMtuSubject(int(mtu)), "learned from ICMP errors, kept for 10 minutes"
        yield Item("cache", subject, words, "", "ip route flush cache", "ip route show cache")


def _rules(texts: Mapping[str, str]) -> Iterator[Item]:
    for line in texts.get("rules", "").splitlines():
        priority, _, rest = line.partition(":")
        rest = rest.strip().replace("[detached] ", "")
        spec = f"priority {priority} {rest}"
        yield Item("rule", RuleSubject(priority, rest), THERE, f"ip rule add {spec}",
                   f"ip rule delete {spec}", "ip rule")  # fmt: skip


def _nexthops(texts: Mapping[str, str]) -> Iterator[Item]:
    for raw in texts.get("nexthops", "").splitlines():
        line = raw.rstrip()
        number = line.split()[1] if line.startswith("id ") else ""
        if number:
            yield Item("nexthop", NexthopSubject(number), line, f"ip nexthop replace {line}",
                       f"ip nexthop delete id {number}", "ip nexthop")  # fmt: skip


def _neighbours(texts: Mapping[str, str]) -> Iterator[Item]:
    for line in texts.get("neighbour", "").splitlines():
        words = line.split()
        if words and ":" not in words[0] and not words[0].startswith(("224.", "239.", "255.")):
            yield make_neighbour(words[0], _after(words, "dev"), _after(words, "lladdr"), words[-1])


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


def _proxies(texts: Mapping[str, str]) -> Iterator[Item]:
    for line in texts.get("proxy", "").splitlines():
        if words := line.split():
            yield make_proxy(words[0], _after(words, "dev"))


def make_proxy(target: str, name: str) -> Item:
    """An address for which ARP is answered on a device."""
    spec = f"proxy {target} dev {name}"
    return Item("neighbour", ProxySubject(target, name), THERE, f"ip neighbour add {spec}",
                f"ip neighbour delete {spec}", "ip neighbour show proxy")  # fmt: skip


def _forwarding(texts: Mapping[str, str]) -> Iterator[Item]:
    own = {str(link.get("address")) for link in read_links(texts)}
    for line in texts.get("forwarding", "").splitlines():
        words = line.split()
        if not words or words[0].startswith(_MULTICAST):
            continue
        if not {"permanent", "static", "dst", "extern_learn"} & {*words}:
            continue
        if "master" in words and "permanent" in words and words[0] in own:
            continue  # a device's own address at its bridge
        yield make_entry(
            words[0], _after(words, "dev"), _after(words, "dst"), _after(words, "vlan"),
            how="master" if "master" in words else "self",
            lasts="static" if "static" in words else "permanent",
        )  # fmt: skip


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


def _vlans(texts: Mapping[str, str]) -> Iterator[Item]:
    device = ""
    for line in texts.get("vlans", "").splitlines()[1:]:
        words = line.split()
        if not words:
            continue
        if line[0] not in " \t":
            device, words = words[0], words[1:]
        if words:
            vid = words[0]
            rest = " ".join(words[1:]).lower()
            yield Item(
                "vlan", VlanSubject(vid, device), rest or "tagged",
                f"bridge vlan add dev {device} vid {vid} {rest}".replace("egress ", ""),
                f"bridge vlan delete dev {device} vid {vid}", f"bridge vlan show dev {device}",
            )  # fmt: skip


def _xfrm(texts: Mapping[str, str]) -> Iterator[Item]:
    if verdicts := re.findall(r"(in|fwd|out): +(\w+)", texts.get("xfrm-default", "")):
        defaults = " ".join(chain(*verdicts))
        make = f"ip xfrm policy setdefault {defaults}"
        subject = XfrmSubject("default")
        yield Item("xfrm", subject, defaults, make, "", "ip xfrm policy getdefault")
    for table in ("policies", "states"):
        for block in _blocks(texts.get(f"xfrm-{table}", "")):
            text = " ".join(block.split())
            ends = " ".join(text.split()[:4])
            if text.startswith("socket") or " socket " in text or "src ::" in text:
                continue
            if table == "policies":
                direction = re.search(r"dir (\w+)", text)
                which = f"{text.partition(' dir ')[0]} dir {direction[1] if direction else 'out'}"
                subject, remove = XfrmSubject("policy", which), f"ip xfrm policy delete {which}"
            else:
                proto, spi = re.search(r"proto (\w+)", text), re.search(r"spi (\w+)", text)
                subject = XfrmSubject("state", ends)
                remove = (
                    f"ip xfrm state delete {ends} proto {proto[1] if proto else 'esp'} "
                    f"spi {spi[1] if spi else 0}"
                )
            options = re.sub(r" (?:auth|enc|aead|auth-trunc)\S* .*", "", text)
            yield Item("xfrm", subject, options, "", remove, f"ip xfrm {table[:-3]}y"
                       if table == "policies" else "ip xfrm state")  # fmt: skip


def _blocks(text: str) -> Iterator[str]:
    lines: list[str] = []
    for line in text.splitlines():
        if line[:1] not in {" ", "\t"} and lines:
            yield "\n".join(lines)
            lines = []
        lines.append(line)
    if lines:
        yield "\n".join(lines)


def _queues(texts: Mapping[str, str]) -> Iterator[Item]:
    for line in texts.get("queues", "").splitlines():
        match = re.match(r"qdisc (\S+) \S+ dev (\S+) (root|ingress|clsact|parent \S+)(.*)", line)
        if not match:
            continue
        kind, device, parent, rest = match.groups()
        rest = re.sub(r"refcnt \d+", "", rest)
        options = " ".join(rest.split())
        place = "clsact" if kind == "clsact" else parent
        if parent.startswith("parent ffff:"):
            place = kind
        shows = f"tc -statistics qdisc show dev {device}"
        make = (
            f"tc qdisc delete dev {device} root"
            if kind in _DEFAULT_QUEUES
            else f"tc qdisc replace dev {device} {place} {kind} {options}"
        )
        if parent.startswith("parent ") and place == parent and kind in _DEFAULT_QUEUES:
            continue  # goes with the root
        yield Item("queue", QueueSubject("queue", place, device), f"{kind} {options}".strip(),
                   make, f"tc qdisc delete dev {device} {place}", shows)  # fmt: skip
    for name, text in texts.items():
        if name.startswith("filter ") and text.strip():
            device, hook = name.split()[1:]
            yield Item("filter", QueueSubject("filter", hook, device), " ".join(text.split()), "",
                       f"tc filter delete dev {device} {hook}",
                       f"tc -statistics filter show dev {device} {hook}")  # fmt: skip
        elif name.startswith("class "):
            device = name.split()[1]
            for kind, number, rest in re.findall(r"(?m)^class (\S+) (\S+) (.*)", text):
                subject = QueueSubject("class", number, device)
                yield Item("queue", subject, f"{kind} {rest}".strip(), "",
                           f"tc class delete dev {device} classid {number}",
                           f"tc -statistics class show dev {device}")  # fmt: skip


def _sockets(texts: Mapping[str, str]) -> Iterator[Item]:
    for line in texts.get("sockets", "").splitlines():
        words = line.split()
        if len(words) > 4:  # noqa: PLR2004  protocol, state, queues, own address
            address, _, port = words[4].rpartition(":")
            by = re.search(r'users:\(\("([^"]+)"', line)
            value = f"open by {by[1]}" if by else OPEN
            yield Item(
                "socket", SocketSubject(words[0], address, port), value, "", "", "ss -l -n -t -u -p"
            )


def _processes(texts: Mapping[str, str]) -> Iterator[Item]:
    """Whether one of a name is stopped; those that come and go are not compared."""
    processes = re.findall(r"^\d+ \((.+)\) (\S)", texts.get("processes", ""), re.MULTILINE)
    stopped = {name for name, state in processes if state in {"T", "t"}}
    for name in {name for name, _ in processes}:
        state = "stopped by a signal" if name in stopped else "runs"
        yield Item("process", ProgramSubject(name), state,
                   f"pkill -CONT -x {shlex.quote(re.escape(name))}", "",
                   f"ps -o pid,stat,args -C {shlex.quote(name)}")  # fmt: skip


def _settings(texts: Mapping[str, str]) -> Iterator[Item]:
    for line in texts.get("settings", "").splitlines():
        path, mark, value = line.partition(":")
        if mark and not _CHURN.search(path):
            yield make_setting(path, " ".join(value.split()))


def make_setting(path: str, value: str) -> Item:
    """A setting of the kernel, by its path below ``/proc/sys/net``."""
    parts = path.split("/")
    per_device = len(parts) > 3 and parts[1] in {"conf", "neigh"}  # noqa: PLR2004
    name = parts[2] if per_device and parts[2] not in {"all", "default"} else ""
    make = f"sysctl -w {shlex.quote(f'net/{path}={value}')}"
    return Item("setting", SettingSubject(path, name), value, make, "", f"sysctl net/{path}")


def _files(texts: Mapping[str, str]) -> Iterator[Item]:
    for name, content in texts.items():
        if name.startswith("file "):
            path = name.removeprefix("file ")
            make = f"printf %s {shlex.quote(content + chr(10))} > {path}"
            yield Item("file", FileSubject(path), content, make, f"rm {path}", f"cat {path}")


_COUNTERS = re.compile(r"^\[\d+:\d+\] ")


def _ipsets(texts: Mapping[str, str]) -> Iterator[Item]:
    lines = texts.get("ipsets", "").splitlines()
    tool = f"{WITH_CALICO} ipset" if lines[:1] > ["in "] else "ipset"
    for line in lines:
        words = line.split()
        if words[:1] == ["create"]:
            yield Item("ipset", IpSetSubject(words[1]), line, f"{tool} {line}",
                       f"{tool} destroy {words[1]}", f"{tool} list")  # fmt: skip
        elif words[:1] == ["add"]:
            yield Item("ipset", IpSetSubject(words[1], words[2]), THERE, f"{tool} {line}",
                       f"{tool} del {words[1]} {words[2]}", f"{tool} list")  # fmt: skip
    table = ""
    for raw in texts.get("iptables-legacy", "").splitlines():
        line = _COUNTERS.sub("", raw)
        if line.startswith("*"):
            table = line[1:]
        put, shows = f"iptables-legacy -t {table}", f"iptables-legacy -t {table} -S"
        if line.startswith("-A "):
            subject = IptablesSubject(table, line.split()[1], line[3:])
            yield Item("iptables", subject, THERE, f"{put} {line}", f"{put} -D {line[3:]}", shows)
        elif policy := re.match(r":(\S+) (?!ACCEPT|-)(\S+)", line):
            chain, verdict = policy.groups()
            yield Item("iptables", IptablesSubject(table, chain), verdict,
                       f"{put} -P {chain} {verdict}", f"{put} -P {chain} ACCEPT",
                       shows)  # fmt: skip
