"""The complete state of one network namespace: queried as text, parsed, and compared. Pure.

The same script runs now and where the namespace is as the lab makes it: in a second copy of the
lab, or in the lab itself once it is up. So both sides have the same form. What changes by itself
(timers, counters, learned neighbours, hash seeds) is left out by rule, and so is what others create
and remove there (:class:`Churn`).
"""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

from lab._errors import BrokenError
from lab.facts.churn import STILL, Churn
from lab.facts.difference import DEVIATION, Difference, name_in_state
from lab.facts.effect import NO_EFFECT, Effect, read_effect
from lab.facts.questions import HEAD, RAN, SUBNET, TAIL, WITH_CALICO, answers
from lab.facts.ruleset import Ruleset, changed_lines, compare_rulesets, read_ruleset
from lab.shells.shell import Script
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
    values_of,
)

_SCRIPT = (
    r"""
ask space sh -c 'cat /proc/sys/kernel/random/boot_id && readlink /proc/self/ns/net'
ask links ip -json -details address
ask routes ip route show table all
ask cache ip route show cache
ask rules ip rule
ask nexthops ip nexthop
ask neighbours ip neighbour show nud all
ask proxies ip neighbour show proxy
ask forwarding bridge fdb show
ask vlans bridge vlan show
ask nftables nft -a -s list ruleset
ask xfrm-policies ip xfrm policy
ask xfrm-states ip xfrm state
ask xfrm-default ip xfrm policy getdefault
ask queues tc qdisc show
devices=$(tc qdisc show 2> /dev/null | awk '!/^qdisc noqueue/ {print $5}' | sort -u) || exit
for device in $devices; do
    for hook in root ingress egress; do
        ask "filter $device $hook" tc filter show dev "$device" $hook
    done
    ask "class $device" tc class show dev "$device"
done
ask sockets ss -H -l -n -t -u -p
ask processes sh -c 'own=$(readlink /proc/self/ns/net | tr "[]" "??")
    find /proc/[0-9]*/ns/net -maxdepth 0 -lname "$own" 2> /dev/null | sed "s,ns/net$,stat," |
        xargs -r cat 2> /dev/null; RAN'
ask settings sh -c 'cd /proc/sys/net && grep -rs . ipv4 core bridge netfilter unix; RAN'
for file in /etc/resolv.conf /etc/cni/net.d/*.conf /etc/cni/net.d/*.conflist FLANNEL_SUBNET \
    /var/lib/kubelet/config.yaml; do
    if [ -f "$file" ]; then ask "file $file" cat "$file"; fi
done
ask ipsets sh -c 'in=
    command -v ipset > /dev/null || in="WITH_CALICO"
    echo "in $in"; $in ipset save 2> /dev/null; true'  # where there is none, there are no sets
if grep -qs . /proc/net/ip_tables_names; then ask iptables-legacy iptables-legacy-save; fi
""".replace("WITH_CALICO", WITH_CALICO)
    .replace("FLANNEL_SUBNET", SUBNET)
    .replace("RAN", RAN)
)

STATE_COMMAND = ("sh", "-c", Script(HEAD + _SCRIPT + TAIL, "lab/facts/state.py"))
"""The command that queries everything in the namespace it runs in."""

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
    r"|\.info_data\.(?:\w+_timer|root_port|root_path_cost|root_id|bridge_id|topology_change\w*)$"
    r"|\.info_slave_data\.(?:\w+_timer|id|no|root_id|bridge_id|designated\w+|topology_change\w*"
    r"|config_pending|root_port)$"  # what the spanning tree protocol has found
    r"|_str$"  # the same in words
    r"|\.fdb_n_learned$"
)
"""Attributes of links that are not compared."""
_XDP_MODES = {1: "xdpdrv", 2: "xdpgeneric", 3: "xdpoffload"}
"""Words of ip-link(8) by the numbers of linux/if_link.h (``XDP_ATTACHED_DRV`` and so on)."""
_FLAGS = ("UP", "NOARP", "PROMISC", "ALLMULTI", "MULTICAST", "BROADCAST")
_STATES = {"disabled": 0, "listening": 1, "learning": 2, "forwarding": 3, "blocking": 4}
_PORT_NAMES = {"multicast_router": "mcast_router"}
_DEFAULT_QUEUES = frozenset({"noqueue", "pfifo_fast", "fq_codel", "mq", "fq"})
_ROUTE_FLAGS = re.compile(r" (?:linkdown|dead|rt_offload|rt_trap|offload|trap|pervasive)\b")


@dataclass(frozen=True, slots=True)
class Item:
    """One object of a state."""

    section: str
    subject: Subject
    value: str
    make: str = ""
    """The command that creates it."""
    remove: str = ""
    """The command that removes it."""
    shows: str = ""
    attribute: str = ""

    @property
    def object(self) -> str:
        """Its name."""
        return name_in_state(self.subject, self.attribute)

    @property
    def device(self) -> str:
        """The only device that it is of; empty if it is of none or of all."""
        return device_of(self.subject)

    @property
    def exists(self) -> bool:
        """Whether it is a device itself, not an attribute of one."""
        return isinstance(self.subject, DeviceSubject) and not self.attribute


@dataclass(frozen=True, slots=True)
class State:
    """The parsed state of one namespace."""

    items: Mapping[str, Item]
    ruleset: Ruleset
    space: tuple[str, ...] = ()
    """The computer's boot, the namespace, and the other end of ``eth0`` if it has one."""
    silent: Mapping[str, str] = field(default_factory=dict)
    """Queries without an answer, and why."""


def read_state(stdout: str, stderr: str = "") -> State:
    """Parse the script's output.

    Raises CutOffError if the script did not run to its end.
    """
    every = answers(stdout, stderr)
    texts = {name: answer.text for name, answer in every.items()}
    items: dict[str, Item] = {}
    for reader in (
        _links, _routes, _cache, _rules, _nexthops, _neighbours, _proxies, _forwarding, _vlans,
        _xfrm, _queues, _sockets, _processes, _settings, _files, _ipsets,
    ):  # fmt: skip
        for item in reader(texts):
            items[f"{item.section} {item.object}"] = item
    # a new namespace can have the number of one that is gone; a new link cannot
    ends = (
        str(link["link_index"])
        for link in _json(texts.get("links", ""))
        if link["ifname"] == "eth0" and "link_index" in link
    )
    return State(
        items,
        read_ruleset(texts.get("nftables", "")),
        (*texts.get("space", "").split(), *ends),
        {
            name: answer.trouble
            for name, answer in every.items()
            if answer.trouble and not name.startswith("filter ")
        },
    )


def _json(text: str) -> list[dict[str, Any]]:
    return [entry for entry in json.loads(text or "[]") if entry]


def _links(texts: Mapping[str, str]) -> Iterator[Item]:
    for link in _json(texts.get("links", "")):
        name = str(link["ifname"])
        kind = str(link.get("linkinfo", {}).get("info_kind", ""))
        shows = f"ip -details address show dev {name}"
        device = DeviceSubject(name)
        yield Item("link", device, "there", "", f"ip link delete {name}", shows)
        if xdp := link.pop("xdp", None):
            yield _xdp(name, xdp)
        for key, value in _flat(link):
            if not _LINK_CHURN.search(key):
                make = _set_link(name, kind, key, value)
                yield Item("link", device, value, make, "", shows, key)
        for flag in _FLAGS:
            yield _flag(name, flag, flag in link["flags"], shows)
        dark = "UP" in link["flags"] and "LOWER_UP" not in link["flags"]
        carrier = "no carrier: its other end is down or missing" if dark else _CARRIER
        yield Item("link", device, carrier, "", "", shows, "carrier")
        for address in link.get("addr_info", ()):
            if address.get("family") == "inet":
                yield _address(name, address, shows)


def _xdp(name: str, xdp: Mapping[str, Any]) -> Item:
    number = xdp.get("prog", {}).get("id")
    value = "an XDP program" + (f" (id {number})" if number else "") + " is attached"
    off = _XDP_MODES.get(int(xdp.get("mode", 0)), "xdp")
    shows, remove = f"ip -details link show dev {name}", f"ip link set dev {name} {off} off"
    return Item("link", DeviceSubject(name), value, "", remove, shows, "xdp")


def _flag(name: str, flag: str, is_set: bool, shows: str) -> Item:
    sets = {
        "UP": ("up", "down"),
        "NOARP": ("arp off", "arp on"),
        "PROMISC": ("promisc on", "promisc off"),
        "ALLMULTI": ("allmulticast on", "allmulticast off"),
        "MULTICAST": ("multicast on", "multicast off"),
    }.get(flag)
    make = f"ip link set dev {name} {sets[0] if is_set else sets[1]}" if sets else ""
    value = "set" if is_set else "not set"
    return Item("link", DeviceSubject(name), value, make, "", shows, flag.lower())


def _address(name: str, address: Mapping[str, Any], shows: str) -> Item:
    text = f"{address['local']}/{address['prefixlen']}"
    peer = f" peer {address['address']}/{address['prefixlen']}" if "address" in address else ""
    local = f"{address['local']}{peer}" if peer else text
    scope = f" scope {address['scope']}" if address.get("scope") not in {"global", None} else ""
    old = ", deprecated" if address.get("deprecated") else ""
    add = f"ip address replace {local} dev {name}{scope}"
    return Item(
        "address", AddressSubject(text, name), f"there{peer}{scope}{old}", add,
        f"ip address delete {local} dev {name}", shows,
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
        "group": "group", "broadcast": "broadcast", "ifalias": "alias",
        "gso_max_size": "gso_max_size", "gso_max_segs": "gso_max_segs",
        "gro_max_size": "gro_max_size",
    }  # fmt: skip
    if key in plain:
        return f"ip link set dev {name} {plain[key]} {value}"
    last = key.rpartition(".")[2]
    worded = {"true": "on", "false": "off"}.get(value, value)
    if ".info_slave_data." in f".{key}":
        if last == "state":
            worded = str(_STATES.get(value, value))
        return f"ip link set dev {name} type bridge_slave {_PORT_NAMES.get(last, last)} {worded}"
    if ".info_data." in f".{key}" and kind == "bridge":
        return f"ip link set dev {name} type bridge {last} {value}"
    return ""


def _routes(texts: Mapping[str, str]) -> Iterator[Item]:
    """A route per destination, table and metric; those that follow from an address are left out."""
    numbers: Counter[RouteSubject] = Counter()
    for raw in re.sub(r"\s*\n[ \t]+", " ", texts.get("routes", "")).splitlines():
        line = _ROUTE_FLAGS.sub("", raw).strip()
        words = line.split()
        if not words or " dev lo table local proto kernel" in line:
            continue
        if ":" in " ".join(words[:2]) or words[0] in {"multicast", "anycast"}:
            continue
        if words[0] == "broadcast" and "proto kernel" in line:
            continue
        typed = not words[0][0].isdigit() and words[0] != "default"
        dst = words[1] if typed else words[0]
        table = _after(words, "table") or "main"
        metric = _after(words, "metric")
        maker, device = _after(words, "proto"), _after(words, "dev")
        route = RouteSubject(dst, table, metric, _after(words, "tos"))
        numbers[route] += 1
        route = replace(route, number=numbers[route], device=device, maker=maker)
        spec = line
        if nexthop := _after(words, "nhid"):  # ip refuses its device and type beside it
            spec = f"{dst} nhid {nexthop} table {table}" + (f" metric {metric}" if metric else "")
        yield Item(
            "route", route, line, f"ip route replace {spec}", f"ip route delete {spec}",
            f"ip route show table {table}",
        )  # fmt: skip


def _after(words: list[str], word: str) -> str:
    return words[words.index(word) + 1] if word in words[:-1] else ""


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
        yield Item("rule", RuleSubject(priority, rest), "there", f"ip rule add {spec}",
                   f"ip rule delete {spec}", "ip rule")  # fmt: skip


def _nexthops(texts: Mapping[str, str]) -> Iterator[Item]:
    for line in texts.get("nexthops", "").splitlines():
        number = line.split()[1] if line.startswith("id ") else ""
        if number:
            yield Item("nexthop", NexthopSubject(number), line, f"ip nexthop replace {line}",
                       f"ip nexthop delete id {number}", "ip nexthop")  # fmt: skip


def _neighbours(texts: Mapping[str, str]) -> Iterator[Item]:
    for line in texts.get("neighbours", "").splitlines():
        words = line.split()
        if not words or ":" in words[0] or words[0].startswith(("224.", "239.", "255.")):
            continue
        address, device, mac = words[0], _after(words, "dev"), _after(words, "lladdr")
        # the kernel itself makes those of loopback and broadcast addresses
        lasting = words[-1] == "PERMANENT" or (words[-1] == "NOARP" and mac not in _OF_KERNEL_ARP)
        subject = NeighbourSubject(address, device)
        nud = words[-1].lower() if lasting else "permanent"
        make = f"ip neighbour replace {address} lladdr {mac} dev {device} nud {nud}"
        yield Item(
            "neighbour" if lasting else "learned", subject,
            mac if words[-1] == "PERMANENT" else f"{mac or 'no MAC'} ({words[-1].lower()})", make,
            f"ip neighbour delete {address} dev {device}", "ip neighbour",
        )  # fmt: skip


def _proxies(texts: Mapping[str, str]) -> Iterator[Item]:
    for line in texts.get("proxies", "").splitlines():
        words = line.split()
        if words:
            subject = ProxySubject(words[0], _after(words, "dev"))
            spec = f"proxy {subject.address} dev {subject.device}"
            yield Item("neighbour", subject, "there", f"ip neighbour add {spec}",
                       f"ip neighbour delete {spec}", "ip neighbour show proxy")  # fmt: skip


_OF_KERNEL_ARP = frozenset({"", "00:00:00:00:00:00", "ff:ff:ff:ff:ff:ff"})


def _forwarding(texts: Mapping[str, str]) -> Iterator[Item]:
    own = {str(link.get("address")) for link in _json(texts.get("links", ""))}
    for line in texts.get("forwarding", "").splitlines():
        words = line.split()
        if not words or words[0].startswith(_MULTICAST):
            continue
        if not {"permanent", "static", "dst", "extern_learn"} & {*words}:
            continue
        device = _after(words, "dev")
        if "master" in words and "permanent" in words and words[0] in own:
            continue  # a device's own address at its bridge
        remote, vid = _after(words, "dst"), _after(words, "vlan")
        to, vlan = f" dst {remote}" if remote else "", f" vlan {vid}" if vid else ""
        how = "master" if "master" in words else "self"
        lasts = "static" if "static" in words else "permanent"
        spec = f"{words[0]} dev {device}{to}{vlan} {how}"
        # a flood address can have several ends; for others the end is the entry's value
        flood = words[0] == "00:00:00:00:00:00"
        subject = EntrySubject(words[0], device, remote if flood else "", vid)
        verb = "append" if flood else "replace"
        yield Item("forwarding", subject, spec, f"bridge fdb {verb} {spec} {lasts}",
                   f"bridge fdb delete {spec}", f"bridge fdb show dev {device}")  # fmt: skip


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
        directions = " ".join(chain(*verdicts))
        make = f"ip xfrm policy setdefault {directions}"
        subject = XfrmSubject("default")
        yield Item("xfrm", subject, directions, make, "", "ip xfrm policy getdefault")
    for kind in ("policies", "states"):
        for block in _blocks(texts.get(f"xfrm-{kind}", "")):
            text = " ".join(block.split())
            ends = " ".join(text.split()[:4])
            if text.startswith("socket") or " socket " in text or "src ::" in text:
                continue
            if kind == "policies":
                way = re.search(r"dir (\w+)", text)
                which = f"{text.partition(' dir ')[0]} dir {way[1] if way else 'out'}"
                subject, remove = XfrmSubject("policy", which), f"ip xfrm policy delete {which}"
            else:
                proto, spi = re.search(r"proto (\w+)", text), re.search(r"spi (\w+)", text)
                subject = XfrmSubject("state", ends)
                remove = (
                    f"ip xfrm state delete {ends} proto {proto[1] if proto else 'esp'} "
                    f"spi {spi[1] if spi else 0}"
                )
            said_of_it = re.sub(r" (?:auth|enc|aead|auth-trunc)\S* .*", "", text)
            yield Item("xfrm", subject, said_of_it, "", remove, f"ip xfrm {kind[:-3]}y"
                       if kind == "policies" else "ip xfrm state")  # fmt: skip


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
            value = f"open by {by[1]}" if by else _OPEN
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
        if not mark or _CHURN.search(path):
            continue
        value = " ".join(value.split())
        parts = path.split("/")
        per_device = len(parts) > 3 and parts[1] in {"conf", "neigh"}  # noqa: PLR2004
        device = parts[2] if per_device and parts[2] not in {"all", "default"} else ""
        make = f"sysctl -w {shlex.quote(f'net/{path}={value}')}"
        yield Item("setting", SettingSubject(path, device), value, make, "", f"sysctl net/{path}")


def _files(texts: Mapping[str, str]) -> Iterator[Item]:
    for name, content in texts.items():
        if name.startswith("file "):
            path = name.removeprefix("file ")
            make = f"printf %s {shlex.quote(content + chr(10))} > {path}"
            yield Item("file", FileSubject(path), content, make, f"rm {path}", f"cat {path}")


def _ipsets(texts: Mapping[str, str]) -> Iterator[Item]:
    lines = texts.get("ipsets", "").splitlines()
    tool = f"{WITH_CALICO} ipset" if lines[:1] > ["in "] else "ipset"
    for line in lines:
        words = line.split()
        if words[:1] == ["create"]:
            yield Item("ipset", IpSetSubject(words[1]), line, f"{tool} {line}",
                       f"{tool} destroy {words[1]}", f"{tool} list")  # fmt: skip
        elif words[:1] == ["add"]:
            yield Item("ipset", IpSetSubject(words[1], words[2]), "there", f"{tool} {line}",
                       f"{tool} del {words[1]} {words[2]}", f"{tool} list")  # fmt: skip
    table = ""
    for line in texts.get("iptables-legacy", "").splitlines():
        if line.startswith("*"):
            table = line[1:]
        put, shows = f"iptables-legacy -t {table}", f"iptables-legacy -t {table} -S"
        if line.startswith("-A "):
            subject = IptablesSubject(table, line.split()[1], line[3:])
            yield Item("iptables", subject, "there", f"{put} {line}", f"{put} -D {line[3:]}", shows)
        elif policy := re.match(r":(\S+) (?!ACCEPT|-)(\S+)", line):
            chain, verdict = policy.groups()
            yield Item("iptables", IptablesSubject(table, chain), verdict,
                       f"{put} -P {chain} {verdict}", f"{put} -P {chain} ACCEPT",
                       shows)  # fmt: skip


_ONE_SIDED = frozenset({"setting", "learned", "process"})
"""Sections that are only compared if both sides have the object: a device's settings go with it."""


def is_same_space(made: State, now: State) -> bool:
    """Whether both are of one namespace; what is created anew with the same name is another one."""
    return bool(now.space) and made.space[: len(now.space)] == now.space


def compare_states(made: State, now: State, churn: Churn = STILL) -> tuple[Difference, ...]:
    """Every difference, causes before consequences: a link before its routes.

    Raises BrokenError if a side has no answer to a query, even if the other has none either: two
    states of which nothing is known are not equal.
    """
    for state, when in ((now, "now"), (made, "as the lab made it")):
        for name, trouble in state.silent.items():
            raise BrokenError(f"comparing the whole state: reading '{name}' {when}", trouble)
    every = [*_same_addresses(_compare_items(made.items, now.items, churn))]
    every = [*_with_renamed(every, _renamed(made.items, now.items))]
    every = [*_with_neighbours(_without_connected(every, (made.items, now.items)))]
    every += compare_rulesets(made.ruleset, now.ruleset, churn.rules)
    return tuple(
        difference
        for difference in sorted(every, key=lambda difference: _ORDER.index(difference.section))
        if not any(passing.covers(difference) for passing in churn.objects)
    )


def _renamed(made: Mapping[str, Item], now: Mapping[str, Item]) -> Mapping[str, str]:
    """New names of devices of the same kind and MAC, by the old ones."""
    gone, new = _devices(made) - _devices(now), _devices(now) - _devices(made)
    by_identity = {_identity(now, name): name for name in new}
    return {
        name: by_identity[kind] for name in gone if (kind := _identity(made, name)) in by_identity
    }


def _identity(items: Mapping[str, Item], device: str) -> tuple[str, ...]:
    keys = (f"link {device} linkinfo.info_kind", f"link {device} address")
    return tuple(items[key].value if key in items else "" for key in keys)


def _with_renamed(every: Iterable[Difference], renamed: Mapping[str, str]) -> Iterator[Difference]:
    """A device with another name is the only difference of it: it must not be deleted."""
    names = {*renamed, *renamed.values()}
    for difference in every:
        device = device_of(difference.subject)
        if _is_device(difference) and device in renamed:
            mends = f"ip link set dev {renamed[device]} name {device} up"
            observed = f"it is called {renamed[device]}"
            yield replace(difference, observed=observed, shows="ip link", mends=mends)
        elif device not in names:
            yield difference


def _is_device(difference: Difference) -> bool:
    return isinstance(difference.subject, DeviceSubject) and not difference.attribute


def _same_addresses(differences: Iterable[Difference]) -> Iterator[Difference]:
    """An address with another netmask is one difference, and what is wrong has to go."""
    every = list(differences)
    new = [
        (difference, subject)
        for difference in every
        if isinstance(subject := difference.subject, AddressSubject) and difference.change == "new"
    ]
    for difference in every:
        subject = difference.subject
        if not isinstance(subject, AddressSubject):
            yield difference
        elif difference.change != "new":
            same = [pair for pair in new if _without_length(pair[1]) == _without_length(subject)]
            if same:
                new = [pair for pair in new if pair not in same]
                yield replace(
                    difference,
                    object=name_in_state(subject, NETMASK),
                    attribute=NETMASK,
                    intended=subject.address,
                    observed=", ".join(other.address for _, other in same),
                    mends="; ".join((difference.mends, *(other.mends for other, _ in same))),
                )
            else:
                yield difference
    yield from (difference for difference, _ in new)


NETMASK = "netmask"
"""The attribute of an address that has another prefix length."""


def _without_length(subject: AddressSubject) -> tuple[str, str]:
    return subject.address.partition("/")[0], subject.device


def _without_connected(
    every: Sequence[Difference], sides: Sequence[Mapping[str, Item]]
) -> Sequence[Difference]:
    """Without the kernel's own routes of devices whose addresses differ: they follow from these."""
    readdressed = {
        difference.subject.device
        for difference in every
        if isinstance(difference.subject, AddressSubject)
    }

    def follows(difference: Difference) -> bool:
        if device_of(difference.subject) not in readdressed:
            return False
        both = (side.get(f"route {difference.object}") for side in sides)
        routes = (item.subject for item in both if item)
        return any(
            isinstance(subject, RouteSubject) and subject.maker == "kernel" for subject in routes
        )

    return [difference for difference in every if not follows(difference)]


def _with_neighbours(every: Sequence[Difference]) -> Iterator[Difference]:
    """A device forgets its neighbours with its MAC or ARP: what mends that adds them again."""
    for difference in every:
        device = device_of(difference.subject)
        forgets = difference.section == "link" and difference.attribute in {"address", "noarp"}
        lost = [
            other.mends
            for other in every
            if forgets and other.section == "neighbour" and other.change != "new"
            if device_of(other.subject) == device
        ]
        yield replace(difference, mends="; ".join((difference.mends, *lost)))


_ORDER = (
    *("link", "address", "rule", "nexthop", "route", "neighbour", "forwarding", "vlan"),
    *("nftables", "iptables", "ipset", "xfrm", "queue", "filter", "setting", "file"),
    *("process", "socket", "cache"),
)
_CARRIER, _OPEN = "carrier", "open"
"""The value of a device that has a carrier, and of a socket whose program is not known."""


def _devices(items: Mapping[str, Item]) -> set[str]:
    return {item.device for item in items.values() if item.exists}


def _compare_items(
    made: Mapping[str, Item], now: Mapping[str, Item], churn: Churn
) -> Iterator[Difference]:
    gone, new = _devices(made) - _devices(now), _devices(now) - _devices(made)
    passing = {name for name in gone | new if churn.devices.fullmatch(name)}
    for key, item in made.items():
        actual = now.get(key) or now.get(f"learned {item.object}")
        if actual is not None and actual.attribute == "carrier" and actual.value == _CARRIER:
            continue  # a copy has no daemon that makes its link work
        if actual is not None and (actual.section, actual.value) == (item.section, item.value):
            continue
        if item.section in _ONE_SIDED | {"cache"} and actual is None:
            continue
        if actual is not None and item.section == "socket" and _OPEN in {item.value, actual.value}:
            continue  # whose it is is not known on one side
        if item.device in gone and not _outlasts(item):
            continue  # went with its device
        if item.section != "learned" and item.device not in passing:
            yield _differs(item, actual)
    for key, actual in now.items():
        alone = key not in made and actual.section not in _ONE_SIDED | {"socket"}
        of_new = actual.device in new and actual.section in {"link", "queue", "address"}
        if alone and actual.device not in passing and not (of_new and not _is_plain(actual)):
            observed = "there is one" if actual.section == "file" else actual.value
            yield Difference(
                DEVIATION, "", "", actual.object, _nothing(actual), observed, actual.shows,
                actual.remove, "", subject=actual.subject, attribute=actual.attribute, change="new",
                effect=_effect(None, actual), values=_values(actual), section=actual.section,
            )  # fmt: skip


def _outlasts(item: Item) -> bool:
    """Whether it is told although its device is gone: the device, and what must be made anew."""
    return item.section == "route" or _is_plain(item)


def _is_plain(item: Item) -> bool:
    """Whether nothing is known of it but that it exists."""
    return item.value == "there"


def _nothing(item: Item) -> str:
    if item.section in {"process", "cache"}:
        return "running" if item.section == "process" else "none"
    return f"no such {'attribute' if item.section == 'link' and item.attribute else item.section}"


def _effect(made: Item | None, actual: Item | None) -> Effect:
    """The effect of an object whose value is what its tool prints of it."""
    item = actual or made
    if item is None or item.section in {"link", "setting", "process", "cache"}:
        return NO_EFFECT
    line = " ".join((*values_of(item.subject), actual.value if actual else ""))
    return read_effect(line, made.value if made else "")


def _values(actual: Item | None) -> tuple[str, ...]:
    return (*values_of(actual.subject), actual.value) if actual else ()


def _differs(item: Item, actual: Item | None) -> Difference:
    observed = actual.value if actual else f"there is no such {item.section}"
    mends = actual.remove if actual and item.section == "socket" else item.make
    intended, effect = item.value, _effect(item, actual)
    if actual is None and item.section == "link" and item.attribute == "master":
        observed = "it is in no bridge"
    if item.section == "file":
        intended, observed = (
            changed_lines(item.value, actual.value) if actual else ("there", observed)
        )
        effect = read_effect(observed, intended)
    return Difference(
        DEVIATION, "", "", item.object, intended, observed, item.shows, mends, "",
        subject=item.subject, attribute=item.attribute, change="changed" if actual else "gone",
        effect=effect, values=_values(actual) or values_of(item.subject), section=item.section,
    )  # fmt: skip
