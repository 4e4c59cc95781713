"""Random states of machines: what a healthy lab answered, changed in a few places.

A change is made in every form in which a machine is asked for the object (``ip -json address`` and
``ip address``, ``nft -j`` and ``nft -a``), so that it does not matter how a revision asks. Nothing
of the program is imported here: both revisions get the same states from this file.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

Entry = dict[str, Any]

LINKS = (
    "ip -json -details -statistics address",
    "ip -json -details address",
)
ROUTES = "ip -json -details route show table main"
ROUTE_LINES = "ip route show table all"
NEIGHBOURS, NEIGHBOUR_LINES = "ip -json neighbour show nud all", "ip neighbour show nud all"
PROXIES, PROXY_LINES = "ip -json neighbour show proxy", "ip neighbour show proxy"
FORWARDING, FORWARDING_LINES = "bridge -json fdb show", "bridge fdb show"
PORTS = "bridge -json -details link show"
RULES, RULE_LINES = "nft -j list ruleset", "nft -a -s list ruleset"
QUEUES, QUEUE_LINES = "tc -json -statistics qdisc show", "tc qdisc show"
SOCKETS = ("ss -H -l -n -t -u", "ss -H -l -n -t -u -p")
SETTINGS = "proc/sys/net"
"""Part of every command that reads settings."""
SESSIONS = "birdc"
DATABASES = "ovsdb-client"
RESOLVER = "cat /etc/resolv.conf"


class RandomState:
    """The answers of one place, by command, and what was changed in them.

    Parameters
    ----------
    healthy
        The answers of the healthy place: exit code and text.
    parsed
        Answers in JSON that were parsed before, by command; filled here.

    """

    def __init__(
        self,
        healthy: Mapping[str, tuple[str, str]],
        parsed: dict[str, Any],
        rng: random.Random,
        addresses: Sequence[str],
    ) -> None:
        self.answers = dict(healthy)
        self.rng = rng
        self.addresses = addresses
        self._parsed = parsed
        self._changed: dict[str, Any] = {}
        self.changes: list[str] = []

    # Answers

    def entries(self, command: str) -> list[Entry]:
        """The entries of a JSON answer; empty if there is none."""
        if command in self._changed:
            return list(self._changed[command])
        if command not in self._parsed:
            text = self.answers.get(command, ("0", ""))[1].strip()
            self._parsed[command] = json.loads(text) if text else []
        return [one for one in self._parsed[command] if one]

    def write(self, command: str, entries: Sequence[Any]) -> None:
        self._changed[command] = list(entries)
        self.answers[command] = ("0", json.dumps(entries) + "\n\n")

    def lines(self, command: str) -> list[str]:
        return self.answers.get(command, ("0", ""))[1].rstrip("\n").splitlines()

    def write_lines(self, command: str, lines: Iterable[str]) -> None:
        if command in self.answers:
            self.answers[command] = ("0", "".join(f"{line}\n" for line in lines) + "\n")

    def find(self, part: str) -> list[str]:
        """The commands that contain ``part``."""
        return [command for command in self.answers if part in command]

    # Objects

    def devices(self) -> list[str]:
        return [entry["ifname"] for entry in self.entries(LINKS[0]) if entry["ifname"] != "lo"]

    def change_link(self, name: str, change: Callable[[Entry], Entry]) -> None:
        for command in (*LINKS, PORTS):
            entries = self.entries(command)
            changed = [change(entry) if entry.get("ifname") == name else entry for entry in entries]
            if changed != entries:
                self.write(command, changed)

    def address(self) -> str:
        return self.rng.choice(self.addresses)


def _with_flags(entry: Entry, gone: Iterable[str], added: Iterable[str] = ()) -> Entry:
    flags = [flag for flag in entry.get("flags", ()) if flag not in gone]
    return {**entry, "flags": [*flags, *(one for one in added if one not in flags)]}


def link_down(state: RandomState) -> str | None:
    name = state.rng.choice(state.devices())
    how = state.rng.choice(("DOWN", "LOWERLAYERDOWN"))
    gone = ("UP", "LOWER_UP") if how == "DOWN" else ("LOWER_UP",)
    added = () if how == "DOWN" else ("NO-CARRIER",)
    state.change_link(name, lambda one: {**_with_flags(one, gone, added), "operstate": how})
    return f"{name} {'down' if how == 'DOWN' else 'without carrier'}"


def link_gone(state: RandomState) -> str | None:
    name = state.rng.choice(state.devices())
    for command in (*LINKS, PORTS, FORWARDING):
        state.write(
            command, [entry for entry in state.entries(command) if entry.get("ifname") != name]
        )
    for command in (ROUTES, NEIGHBOURS, PROXIES, QUEUES):
        state.write(
            command, [entry for entry in state.entries(command) if entry.get("dev") != name]
        )
    for command in (ROUTE_LINES, NEIGHBOUR_LINES, PROXY_LINES, FORWARDING_LINES, QUEUE_LINES):
        there = re.compile(rf"\bdev {re.escape(name)}\b")
        state.write_lines(
            command, [line for line in state.lines(command) if not there.search(line)]
        )
    return f"{name} gone"


def link_renamed(state: RandomState) -> str | None:
    name = state.rng.choice(state.devices())
    state.change_link(name, lambda one: {**one, "ifname": "other0"})
    return f"{name} called other0"


def link_attribute(state: RandomState) -> str | None:
    name = state.rng.choice(state.devices())
    key, value = state.rng.choice(
        (
            ("mtu", state.rng.choice((1280, 1400, 1449, 1501, 9000))),
            ("address", f"0e:00:00:00:0f:{state.rng.randrange(256):02x}"),
            ("group", "7"),
            ("gso_max_size", 1000),
        )
    )
    state.change_link(name, lambda one: {**one, key: value} if key in one else one)
    return f"{key} of {name} {value}"


def link_flag(state: RandomState) -> str | None:
    name = state.rng.choice(state.devices())
    flag = state.rng.choice(("NOARP", "PROMISC", "ALLMULTI"))
    state.change_link(name, lambda one: _with_flags(one, (), (flag,)))
    return f"{flag} of {name}"


def link_like_another(state: RandomState) -> str | None:
    """The MAC of another machine's neighbour."""
    macs = [entry["lladdr"] for entry in state.entries(NEIGHBOURS) if entry.get("lladdr")]
    if not macs:
        return None
    name, mac = state.rng.choice(state.devices()), state.rng.choice(macs)
    state.change_link(name, lambda one: {**one, "address": mac} if "address" in one else one)
    return f"address of {name} {mac}"


def port_changed(state: RandomState) -> str | None:
    ports = [entry for entry in state.entries(LINKS[0]) if entry.get("master")]
    if not ports:
        return None
    name = state.rng.choice(ports)["ifname"]
    if state.rng.random() < 0.3:
        state.change_link(
            name, lambda one: {key: value for key, value in one.items() if key != "master"}
        )
        state.write(PORTS, [entry for entry in state.entries(PORTS) if entry.get("ifname") != name])
        return f"{name} in no bridge"
    key = state.rng.choice(("hairpin", "isolated", "learning", "flood", "neigh_suppress"))

    def change(one: Entry) -> Entry:
        if isinstance(one.get(key), bool):
            return {**one, key: not one[key]}
        info = one.get("linkinfo", {})
        slave = info.get("info_slave_data", {})
        if isinstance(slave.get(key), bool):
            slave = {**slave, key: not slave[key]}
            return {**one, "linkinfo": {**info, "info_slave_data": slave}}
        return one

    state.change_link(name, change)
    return f"{key} of port {name}"


def device_setting(state: RandomState) -> str | None:
    """What a tunnel or a bridge is made with: VNI, port, local address, learning, ageing."""
    kinds = {entry["ifname"]: entry.get("linkinfo", {}) for entry in state.entries(LINKS[0])}
    made = {name: info["info_data"] for name, info in kinds.items() if info.get("info_data")}
    if not made:
        return None
    name = state.rng.choice(sorted(made))
    chosen = [one for one in ("id", "port", "local", "learning", "ttl") if one in made[name]]
    key = state.rng.choice(chosen or sorted(made[name]))
    value = made[name][key]
    other: Any = f"{value}1"
    if isinstance(value, bool):
        other = not value
    elif isinstance(value, int):
        other = value + 1
    elif key == "local":
        other = state.address()

    def change(one: Entry) -> Entry:
        info = one.get("linkinfo", {})
        if key not in info.get("info_data", {}):
            return one
        return {**one, "linkinfo": {**info, "info_data": {**info["info_data"], key: other}}}

    state.change_link(name, change)
    return f"{key} of {name} {other}"


def link_address(state: RandomState) -> str | None:
    name = state.rng.choice(state.devices())
    new = {
        "family": "inet",
        "local": state.address(),
        "prefixlen": state.rng.choice((16, 24, 28, 32)),
        "scope": "global",
        "label": name,
        "valid_life_time": 4294967295,
        "preferred_life_time": 4294967295,
    }
    how = state.rng.choice(("gone", "added", "prefix"))

    def change(one: Entry) -> Entry:
        if "addr_info" not in one:
            return one
        addr_info = one["addr_info"]
        if how == "gone":
            return {**one, "addr_info": addr_info[1:]}
        if how == "prefix" and addr_info:
            return {
                **one,
                "addr_info": [{**addr_info[0], "prefixlen": new["prefixlen"]}, *addr_info[1:]],
            }
        return {**one, "addr_info": [*addr_info, new]}

    state.change_link(name, change)
    return f"address of {name} {how} {new['local']}/{new['prefixlen']}"


def _route_words(entry: Entry) -> str:
    """The line that ip prints for a route of table main."""
    kind = entry.get("type", "unicast")
    words = [entry["dst"]] if kind == "unicast" else [kind, entry["dst"]]
    words += ["via", entry["gateway"]] if "gateway" in entry else []
    words += ["dev", entry["dev"]] if "dev" in entry else []
    words += ["proto", entry["protocol"]] if entry.get("protocol") not in {None, "boot"} else []
    words += ["scope", "link"] if entry.get("scope") == "link" else []
    words += ["src", entry["prefsrc"]] if "prefsrc" in entry else []
    words += ["metric", str(entry["metric"])] if "metric" in entry else []
    words += [flag for flag in entry.get("flags", ()) if flag in {"onlink", "linkdown"}]
    return " ".join(words)


def route(state: RandomState) -> str | None:
    entries, devices = state.entries(ROUTES), state.devices()
    how = state.rng.choice(("gone", "gateway", "device", "added", "blackhole", "metric", "onlink"))
    if not entries or not devices:
        return None
    place = state.rng.randrange(len(entries))
    old: Entry | None = entries[place]
    new: Entry | None = None
    device = state.rng.choice(devices)
    if how in {"added", "blackhole"}:
        length = state.rng.choice((8, 16, 24, 32))
        wide = "10.0.0.0/8" if length == 8 else f"10.{state.rng.randrange(256)}.0.0/{length}"
        target = state.address() if length == 32 else wide
        old, new = None, {"dst": target, "scope": "global", "flags": [], "protocol": "boot"}
        more = {"type": "blackhole"} if how == "blackhole" else {"type": "unicast", "dev": device}
        new = {**more, **new}
    elif how == "gateway":
        new = {**entries[place], "gateway": state.address()}
    elif how == "device":
        new = {**entries[place], "dev": device}
    elif how == "metric":
        new = {**entries[place], "metric": 50}
    elif how == "onlink":
        flags = [flag for flag in entries[place].get("flags", ()) if flag != "onlink"]
        without = "onlink" in entries[place].get("flags", ())
        new = {**entries[place], "flags": flags if without else [*flags, "onlink"]}
    lines = state.lines(ROUTE_LINES)
    before = _route_words(old) if old else ""
    at = next((n for n, line in enumerate(lines) if line.strip() == before), None)
    if old and at is None:
        return None  # printed in a form that is not ours
    if old:
        entries[place : place + 1] = [new] if new else []
        lines[at : at + 1] = [_route_words(new)] if new else []  # type: ignore[operator, misc]
    elif new:
        entries.append(new)
        lines.insert(0, _route_words(new))
    state.write(ROUTES, entries)
    state.write_lines(ROUTE_LINES, lines)
    return f"route {how}: {before or '-'} to {_route_words(new) if new else '-'}"


def neighbour(state: RandomState) -> str | None:
    entries = [entry for entry in state.entries(NEIGHBOURS) if entry.get("state")]
    lasting = [entry for entry in entries if "PERMANENT" in entry["state"]]
    how = state.rng.choice(("gone", "mac", "failed", "added"))
    mac = f"0e:00:00:00:0f:{state.rng.randrange(256):02x}"
    if how == "added" or not lasting:
        new = {
            "dst": state.address(),
            "dev": state.rng.choice(state.devices()),
            "lladdr": mac,
            "state": ["PERMANENT"],
        }
        old = None
    else:
        old = state.rng.choice(lasting)
        new = {**old, "lladdr": mac}
        if how == "failed":
            new = {"dst": old["dst"], "dev": old["dev"], "state": ["FAILED"]}
    kept = [entry for entry in entries if entry is not old]
    state.write(NEIGHBOURS, kept if how == "gone" and old else [*kept, new])
    lines = state.lines(NEIGHBOUR_LINES)
    if old:
        begin = f"{old['dst']} dev {old['dev']} "
        lines = [line for line in lines if not line.startswith(begin)]
    if not (how == "gone" and old):
        link = f"lladdr {new['lladdr']} " if "lladdr" in new else ""
        lines.append(f"{new['dst']} dev {new['dev']} {link}{new['state'][0]} ")
    state.write_lines(NEIGHBOUR_LINES, lines)
    return f"neighbour {how}: {old or '-'} to {new}"


def proxy(state: RandomState) -> str | None:
    entries, lines = state.entries(PROXIES), state.lines(PROXY_LINES)
    if entries and state.rng.random() < 0.5:
        gone = entries.pop(state.rng.randrange(len(entries)))
        begin = f"{gone['dst']} dev {gone['dev']}"
        lines = [line for line in lines if not line.startswith(begin)]
        text = f"no proxy {begin}"
    else:
        new = {"dst": state.address(), "dev": state.rng.choice(state.devices())}
        entries.append(new)
        lines.append(f"{new['dst']} dev {new['dev']} proxy")
        text = f"proxy {lines[-1]}"
    state.write(PROXIES, entries)
    state.write_lines(PROXY_LINES, lines)
    return text


def forwarding(state: RandomState) -> str | None:
    entries, lines = state.entries(FORWARDING), state.lines(FORWARDING_LINES)
    remote = [entry for entry in entries if "dst" in entry]
    how = state.rng.choice(("gone", "end", "added"))
    if not remote:
        return None
    old = state.rng.choice(remote)
    new = {**old, "dst": state.address()}
    if how == "added":
        new = {**new, "mac": f"0e:00:00:00:0f:{state.rng.randrange(256):02x}"}
    elif how == "gone":
        new = {}
    words = f"{old['mac']} dev {old['ifname']} dst {old['dst']} "
    if how != "added":
        entries = [entry for entry in entries if entry is not old]
        lines = [line for line in lines if not line.startswith(words)]
    if new:
        entries.append(new)
        lines.append(f"{new['mac']} dev {new['ifname']} dst {new['dst']} self permanent")
    state.write(FORWARDING, entries)
    state.write_lines(FORWARDING_LINES, lines)
    return f"forwarding {how}: {words}to {new.get('dst', '-')}"


_DECISIVE = re.compile(
    r"ip_forward:|forwarding:|rp_filter:|bridge-nf|arp_|icmp_|proxy_arp|send_red"
)


def setting(state: RandomState) -> str | None:
    """A setting, in every command that reads it."""
    commands = state.find(SETTINGS)
    lines = [line for command in commands for line in state.lines(command)]
    some = [line for line in lines if _DECISIVE.search(line)] if state.rng.random() < 0.7 else lines
    if not some:
        return None
    line = state.rng.choice(some)
    path, _, value = line.partition(":")
    other = str(int(value) + 1) if value.isdecimal() and value != "1" else "0"
    for command in commands:
        changed = (f"{path}:{other}" if one == line else one for one in state.lines(command))
        state.write_lines(command, changed)
    return f"setting {path} {other}"


def socket(state: RandomState) -> str | None:
    if SOCKETS[0] not in state.answers:
        return None
    if state.rng.random() < 0.5:
        port = state.rng.choice((53, 80, 4789, 8080, 10256, 30000))
        for command in SOCKETS:
            state.write_lines(
                command, [*state.lines(command), f"tcp LISTEN 0 128 0.0.0.0:{port} 0.0.0.0:*"]
            )
        return f"socket tcp {port}"
    lines = [line.split() for line in state.lines(SOCKETS[0]) if line.strip()]
    if not lines:
        return None
    gone = state.rng.choice(lines)
    for command in SOCKETS:
        kept = [
            line
            for line in state.lines(command)
            if (line.split()[:1], line.split()[4:5]) != (gone[:1], gone[4:5])
        ]
        state.write_lines(command, kept)
    return f"no socket {gone[0]} {gone[4]}"


def queue(state: RandomState) -> str | None:
    name = state.rng.choice(state.devices())
    kind, options, text = state.rng.choice(
        (
            ("netem", {"limit": 1000, "delay": {"delay": 0.1}}, "limit 1000 delay 100ms"),
            ("netem", {"limit": 1000, "loss-random": {"loss": 0.3}}, "limit 1000 loss 30%"),
            ("tbf", {"rate": 125000, "burst": 4096}, "rate 1Mbit burst 4Kb lat 400ms"),
            ("fq_codel", {}, "limit 10240p flows 1024"),
        )
    )
    entries = [entry for entry in state.entries(QUEUES) if entry.get("dev") != name]
    head = {"kind": kind, "handle": "8001:", "dev": name, "root": True, "refcnt": 2}
    state.write(QUEUES, [*entries, {**head, "options": options, "drops": 0}])
    lines = [line for line in state.lines(QUEUE_LINES) if f" dev {name} " not in line]
    state.write_lines(QUEUE_LINES, [*lines, f"qdisc {kind} 8001: dev {name} root refcnt 2 {text}"])
    return f"queue {kind} {text} of {name}"


# Rules of nftables, in JSON and in text; rules are found by the table and their handle.


def _rule_choices(state: RandomState) -> list[tuple[list[Any], str]]:
    address, device = state.address(), state.rng.choice(state.devices())
    prefix = f"10.{state.rng.randrange(256)}.0.0"
    port = state.rng.choice((53, 80, 4789, 8080, 6443, 30000))

    def match(left: Any, right: Any, op: str = "==") -> Entry:
        return {"match": {"op": op, "left": left, "right": right}}

    def payload(protocol: str, name: str) -> Entry:
        return {"payload": {"protocol": protocol, "field": name}}

    drop, reject = {"drop": None}, {"reject": None}
    counter = {"counter": {"packets": 0, "bytes": 0}}
    chance = {"numgen": {"mode": "random", "mod": 10, "offset": 0}}
    return [
        ([drop], "drop"),
        ([match(payload("ip", "daddr"), address), drop], f"ip daddr {address} drop"),
        (
            [match(payload("ip", "saddr"), address), counter, drop],
            f"ip saddr {address} counter drop",
        ),
        (
            [match(payload("ip", "daddr"), {"prefix": {"addr": prefix, "len": 16}}), reject],
            f"ip daddr {prefix}/16 reject",
        ),
        (
            [match(payload("ip", "daddr"), {"prefix": {"addr": prefix, "len": 16}}, "!="), drop],
            f"ip daddr != {prefix}/16 drop",
        ),
        ([match(payload("tcp", "dport"), port), reject], f"tcp dport {port} reject"),
        ([match(payload("udp", "dport"), port), drop], f"udp dport {port} drop"),
        ([match({"meta": {"key": "iifname"}}, device), drop], f'iifname "{device}" drop'),
        ([match(chance, 3, "<"), drop], "numgen random mod 10 < 3 drop"),
        ([{"masquerade": None}], "masquerade"),
        ([counter, {"accept": None}], "counter accept"),
        ([{"mangle": {"key": {"meta": {"key": "mark"}}, "value": 7}}], "meta mark set 0x00000007"),
    ]


def _rules(state: RandomState) -> list[Any]:
    text = state.answers.get(RULES, ("0", ""))[1].strip()
    if not text:
        return []
    whole = state._changed.get(RULES) or json.loads(text)["nftables"]
    return list(whole)


def _write_rules(state: RandomState, entries: Sequence[Any], lines: Sequence[str]) -> None:
    state._changed[RULES] = list(entries)
    state.answers[RULES] = ("0", json.dumps({"nftables": entries}) + "\n\n")
    state.write_lines(RULE_LINES, lines)


def _line_of(lines: Sequence[str], table: str, handle: int, begin: str = "") -> int | None:
    """The number of the line of an object, by its table and handle."""
    here = ""
    for number, line in enumerate(lines):
        if line.startswith("table "):
            here = " ".join(line.split()[1:3])
        own = here == table and line.endswith(f"# handle {handle}")
        if own and line.strip().startswith(begin):
            return number
    return None


def new_table(state: RandomState) -> str | None:
    entries, lines = _rules(state), state.lines(RULE_LINES)
    hook = state.rng.choice(("prerouting", "input", "forward", "output", "postrouting"))
    policy = state.rng.choice(("accept", "accept", "accept", "drop"))
    priority = state.rng.choice((-310, -10, 10))
    expression, text = state.rng.choice(_rule_choices(state))
    family = state.rng.choice(("ip", "ip", "inet"))
    chain = {"family": family, "table": "random", "name": "c", "handle": 1, "type": "filter"}
    rule = {"family": family, "table": "random", "chain": "c", "handle": 2, "expr": expression}
    entries += [
        {"table": {"family": family, "name": "random", "handle": 99}},
        {"chain": {**chain, "hook": hook, "prio": priority, "policy": policy}},
        {"rule": rule},
    ]
    lines += [
        f"table {family} random {{ # handle 99",
        "\tchain c { # handle 1",
        f"\t\ttype filter hook {hook} priority {priority}; policy {policy};",
        f"\t\t{text} # handle 2",
        "\t}",
        "}",
    ]
    _write_rules(state, entries, lines)
    return f"table {family} random, hook {hook}, policy {policy}: {text}"


def new_rule(state: RandomState) -> str | None:
    entries, lines = _rules(state), state.lines(RULE_LINES)
    chains = [entry["chain"] for entry in entries if "chain" in entry]
    if not chains:
        return None
    chain = state.rng.choice(chains)
    table = f"{chain['family']} {chain['table']}"
    at = _line_of(lines, table, chain["handle"], "chain ")
    if at is None:
        return None
    expression, text = state.rng.choice(_rule_choices(state))
    at += 2 if "hook" in chain else 1
    lines.insert(at, f"\t\t{text} # handle 990")
    rule = {"family": chain["family"], "table": chain["table"], "chain": chain["name"]}
    first = next(
        (
            number
            for number, one in enumerate(entries)
            if "rule" in one and {**one["rule"], **rule} == one["rule"]
        ),
        len(entries),
    )
    entries.insert(first, {"rule": {**rule, "handle": 990, "expr": expression}})
    _write_rules(state, entries, lines)
    return f"rule in chain {table} {chain['name']}: {text}"


def rule_gone(state: RandomState) -> str | None:
    entries, lines = _rules(state), state.lines(RULE_LINES)
    places = [number for number, one in enumerate(entries) if "rule" in one]
    if not places:
        return None
    place = state.rng.choice(places)
    rule = entries[place]["rule"]
    table = f"{rule['family']} {rule['table']}"
    at = _line_of(lines, table, rule["handle"])
    if at is None:
        return None
    said = lines.pop(at).strip()
    del entries[place]
    _write_rules(state, entries, lines)
    return f"no rule in chain {table} {rule['chain']}: {said}"


def rule_address(state: RandomState) -> str | None:
    """Another address or port in a rule or in the elements of a set."""
    entries, lines = _rules(state), state.lines(RULE_LINES)
    joined = json.dumps(entries)
    addresses = sorted({*re.findall(r'"(\d+\.\d+\.\d+\.\d+)"', joined)})
    if not addresses:
        return None
    old, new = state.rng.choice(addresses), f"10.99.0.{state.rng.randrange(1, 255)}"
    entries = json.loads(joined.replace(f'"{old}"', f'"{new}"'))
    pattern = re.compile(rf"(?<![\d.]){re.escape(old)}(?![\d./])")
    _write_rules(state, entries, [pattern.sub(new, line) for line in lines])
    return f"rules: {old} is {new}"


def table_gone(state: RandomState) -> str | None:
    entries, lines = _rules(state), state.lines(RULE_LINES)
    tables = [entry["table"] for entry in entries if "table" in entry]
    if not tables:
        return None
    table = state.rng.choice(tables)
    family, name = table["family"], table["name"]

    def is_of_it(entry: Entry) -> bool:
        body = next(iter(entry.values()))
        return bool(body.get("family") == family and name in {body.get("table"), body.get("name")})

    kept, inside = list[str](), False
    for line in lines:
        inside |= line.startswith(f"table {family} {name} {{")
        kept += [] if inside else [line]
        inside &= line != "}"
    _write_rules(state, [entry for entry in entries if not is_of_it(entry)], kept)
    return f"no table {family} {name}"


# What only one kind of machine answers, or only the whole state


def more_lines(state: RandomState) -> str | None:
    command, line = state.rng.choice(
        (
            ("ip rule", "100:\tfrom 10.244.0.0/16 lookup 7"),
            ("ip rule", f"101:\tfrom all to {state.address()} unreachable"),
            ("ip nexthop", "id 7 via 10.9.176.1 dev eth0 scope link "),
            (
                "ip xfrm policy",
                "src 0.0.0.0/0 dst 10.244.0.0/16 \n\tdir out action block priority 0",
            ),
            ("ip route show cache", "10.9.176.12 dev eth0 \n    cache expires 590sec mtu 1280 "),
            (ROUTE_LINES, f"unreachable {state.address()} table 7"),
        )
    )
    if command not in state.answers:
        return None
    state.write_lines(command, [line, *state.lines(command)])
    return f"{command}: {line}"


def resolver(state: RandomState) -> str | None:
    commands = state.find(RESOLVER)
    if not commands:
        return None
    line = state.rng.choice(("nameserver 10.99.0.53", "search example.org", "options ndots:9"))
    for command in commands:
        state.write_lines(command, [line, *state.lines(command)])
    return f"resolver: {line}"


def session(state: RandomState) -> str | None:
    commands = state.find(SESSIONS)
    if not commands:
        return None
    command = commands[0]
    lines = state.lines(command)
    places = [number for number, line in enumerate(lines) if line.split()[1:2] == ["BGP"]]
    if not places:
        return None
    place = state.rng.choice(places)
    if state.rng.random() < 0.3:
        text = f"no session {lines.pop(place)}"
    else:
        words = lines[place].split()
        state_word, more = state.rng.choice(
            (("start", "Active        Socket: Connection refused"), ("down", ""), ("start", "Idle"))
        )
        lines[place] = f"{words[0]} BGP --- {state_word} {words[4]} {more}"
        text = f"session {lines[place]}"
    state.write_lines(command, lines)
    return text


def database(state: RandomState) -> str | None:
    """A row of a table of Open vSwitch or OVN is gone."""
    commands = state.find(DATABASES)
    if not commands:
        return None
    command = state.rng.choice(commands)
    lines = state.lines(command)
    tables = []
    for number, line in enumerate(lines):
        try:
            table = json.loads(line)
        except ValueError:
            continue
        if isinstance(table, dict) and table.get("data"):
            tables.append((number, table))
    if not tables:
        return None
    number, table = state.rng.choice(tables)
    gone = state.rng.randrange(len(table["data"]))
    kept = [row for place, row in enumerate(table["data"]) if place != gone]
    lines[number] = json.dumps({**table, "data": kept})
    state.write_lines(command, lines)
    return f"{command}: row {gone} of {table.get('caption')} gone"


def silence(state: RandomState) -> str | None:
    """A command that fails, is missing, or prints what is no JSON."""
    command = state.rng.choice(sorted(state.answers))
    text = state.answers[command][1]
    answer = state.rng.choice((("1", ""), ("absent tool", ""), ("0", "[{,")))
    for other in [command, *state.answers]:
        # the same command in the words of another revision
        if other == command or (len(text) > _ALIKE and state.answers[other][1] == text):
            state.answers[other] = answer
    return f"{command} answers {answer}"


_ALIKE = 40
"""Characters of an answer that no other command gives by chance."""

CHANGES: tuple[Callable[[RandomState], str | None], ...] = (
    link_down, link_gone, link_renamed, link_attribute, link_attribute, link_flag,
    link_like_another, port_changed, port_changed, device_setting, device_setting, link_address,
    link_address, route, route, route, neighbour, neighbour, proxy, forwarding, forwarding, setting,
    setting, socket, queue, new_table, new_table, new_rule, new_rule, rule_gone, rule_gone,
    rule_address, table_gone, more_lines, resolver, session, database, silence,
)  # fmt: skip
"""Frequent ones several times."""
_MOST = 3


def change_at_random(state: RandomState) -> None:
    """Make one to three changes."""
    number = state.rng.choice((1, 1, 1, 2, 2, _MOST))
    while len(state.changes) < number:
        try:
            said = state.rng.choice(CHANGES)(state)
        except (ValueError, IndexError):  # an earlier change has left nothing to read
            continue
        if said:
            state.changes.append(said)


def random_states(
    healthy: Mapping[str, Mapping[str, tuple[str, str]]],
    pods: Mapping[str, Sequence[str]],
    count: int,
    seed: str,
) -> Iterator[tuple[str, str, RandomState]]:
    """So many states: machine, place on it that is changed, and the state.

    Parameters
    ----------
    healthy
        The answers of every place of a healthy lab.
    pods
        The pods of each machine; a state is of the machine, or of one of them.

    """
    rng = random.Random(seed)
    parsed: dict[str, dict[str, Any]] = {}
    addresses = sorted(
        {
            one
            for answers in healthy.values()
            for one in re.findall(r"inet (?:\S*)?|\b10\.\d+\.\d+\.\d+", answers[ROUTE_LINES][1])
            if one.startswith("10.")
        }
    )
    machines = sorted(pods)
    for _ in range(count):
        machine = rng.choice(machines)
        own = pods[machine]
        place = rng.choice(own) if own and rng.random() < 0.25 else machine
        state = RandomState(healthy[place], parsed.setdefault(place, {}), rng, addresses)
        change_at_random(state)
        yield machine, place, state
