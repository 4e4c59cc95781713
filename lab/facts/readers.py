"""What the tools of one network namespace print, read as items. Pure.

One parser a tool. What changes by itself (timers, counters, hash seeds) is left out by rule.
"""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import chain
from typing import Any

from lab.facts.items import (
    CARRIER,
    DARK,
    FLAGS,
    NOT_SET,
    OPEN,
    SET,
    THERE,
    Item,
    Items,
    find_after,
    make_address,
    make_attribute,
    make_device,
    make_entry,
    make_neighbour,
    make_proxy,
    make_route,
    make_setting,
    route_of,
)
from lab.facts.questions import WITH_CALICO
from lab.topology.subject import (
    CachedMtuSubject,
    DeviceSubject,
    FileSubject,
    IpSetSubject,
    IptablesSubject,
    NexthopSubject,
    ProgramSubject,
    QueueSubject,
    RouteSubject,
    RuleSubject,
    SocketSubject,
    VlanSubject,
    XfrmSubject,
)

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
_DEFAULT_QUEUES = frozenset({"noqueue", "pfifo_fast", "fq_codel", "mq", "fq"})


def read_items(texts: Mapping[str, str]) -> Items:
    """Parse what the queries of :mod:`lab.facts.questions` printed, by query."""
    readers = (
        _links, _routes, _cached_mtus, _rules, _nexthops, _neighbours, _proxies, _forwarding,
        _vlans, _xfrm, _queues, _sockets, _processes, _settings, _files, _ipsets,
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
        for flag in FLAGS:
            yield make_attribute(name, flag.lower(), SET if flag in flags else NOT_SET)
        dark = "UP" in flags and "LOWER_UP" not in flags
        yield make_attribute(name, "carrier", DARK if dark else CARRIER)
        for entry in link.get("addr_info", ()):
            if entry.get("family") == "inet" and "local" in entry:
                yield _address(name, entry)


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


def _flat(link: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    for key, value in link.items():
        path = f"{before}{key}"
        if isinstance(value, dict):
            yield from _flat(value, f"{path}.")
        elif not isinstance(value, list) and key != "ifname":
            yield path, str(value).lower() if isinstance(value, bool) else str(value)


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
        subject = replace(route_of(item), device="", maker="", source="")
        numbers[subject] += 1
        yield replace(item, subject=replace(route_of(item), number=numbers[subject]))


def _cached_mtus(texts: Mapping[str, str]) -> Iterator[Item]:
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
            yield make_neighbour(
                words[0], find_after(words, "dev"), find_after(words, "lladdr"), words[-1]
            )


def _proxies(texts: Mapping[str, str]) -> Iterator[Item]:
    for line in texts.get("proxy", "").splitlines():
        if words := line.split():
            yield make_proxy(words[0], find_after(words, "dev"))


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
            words[0], find_after(words, "dev"), find_after(words, "dst"), find_after(words, "vlan"),
            how="master" if "master" in words else "self",
            lasts="static" if "static" in words else "permanent",
        )  # fmt: skip


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
        match = re.match(r"qdisc (\S+) (\S+) dev (\S+) (root|ingress|clsact|parent \S+)(.*)", line)
        if not match:
            continue
        kind, handle, device, parent, rest = match.groups()
        rest = re.sub(r"refcnt \d+", "", rest)
        options = " ".join(rest.split())
        place = "clsact" if kind == "clsact" else parent
        if parent.startswith("parent ffff:"):
            place = kind
        shows = f"tc -statistics qdisc show dev {device}"
        number = "" if kind in {"clsact", "ingress"} else f"handle {handle} "
        make = (
            f"tc qdisc delete dev {device} root"
            if kind in _DEFAULT_QUEUES
            else f"tc qdisc replace dev {device} {place} {number}{kind} {options}"
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
