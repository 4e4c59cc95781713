"""Facts of a Linux node: queried with one command, and the answers parsed.

A node is a computer behind SSH or a network namespace: anything that runs a command. What it cannot
answer is listed in the facts with the reason; only a node that cannot be queried at all raises.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from ipaddress import ip_address
from typing import Any, Protocol, TypeVar

from lab._deadline import Deadline
from lab._errors import BrokenError
from lab.facts import iptables, nftables, ovn
from lab.facts.node import (
    CalicoFacts,
    Counter,
    LinkFacts,
    NodeFacts,
    PodFacts,
    SeenNeighbour,
    SeenSession,
    Software,
    Unit,
    Unread,
)
from lab.facts.ovn import Databases, Switching
from lab.facts.questions import OF_KERNEL, CommandAnswer, answers, command
from lab.facts.translations import Barrier, Ruleset, joined
from lab.shells.shell import Completed
from lab.topology.intent import (
    Bridge,
    ForwardingEntry,
    Neighbour,
    ProxyNeighbour,
    Resolver,
    Route,
    Tunnel,
)
from lab.topology.subject import DeviceSubject

_WATCHED = ("kube-proxy", "flanneld")
_CNI = (".conf", ".conflist", ".json")
"""Extensions that containerd reads (``libcni.ConfFiles``)."""
_WILL_EXPIRE = "Certificate will expire"
"""Output of openssl-x509(1) ``-checkend 0`` for an expired certificate."""
_DF_WORDS = 6
_NONE = "<none>"
_SESSION_WORDS = 4
"""Name, protocol, table, state; then since when, and further information."""


def read_software(texts: Mapping[str, str]) -> Software | None:
    """Parse the answers, by query; None without Kubernetes."""
    if "cni" not in texts:
        return None
    return Software(
        processes=_processes(texts["processes"]) if "processes" in texts else None,
        cni=tuple(name for name in texts["cni"].split() if name.endswith(_CNI)),
        subnet=_line(texts["subnet"], "FLANNEL_SUBNET=") if "subnet" in texts else None,
        expired=_expired(texts["expiry"]) if "expiry" in texts else None,
        full=tuple(_full(texts.get("disks", ""))),
        dns_replicas=int(texts["dns"]) if texts.get("dns", "").isdecimal() else None,
    )


def _processes(text: str) -> tuple[tuple[str, str], ...]:
    pairs = [line.split() for line in text.splitlines()]
    return tuple((pair[0], pair[1]) for pair in pairs if len(pair) > 1 and pair[0] in _WATCHED)


def _line(text: str, begins: str) -> str:
    return next((line for line in text.splitlines() if line.startswith(begins)), "")


def _expired(text: str) -> str:
    expires = _WILL_EXPIRE in text.splitlines()
    return _line(text, "notAfter=").removeprefix("notAfter=") if expires else ""


def _full(text: str) -> Iterator[str]:
    """Columns of df -P: device, blocks, used, available, capacity, mount point."""
    for line in text.splitlines()[1:]:
        words = line.split(maxsplit=_DF_WORDS - 1)
        if len(words) == _DF_WORDS and words[4] == "100%":
            yield words[5]


def read_calico(texts: Mapping[str, str]) -> CalicoFacts | None:
    """Parse the answers, by query; None without Calico."""
    if "felix" not in texts:
        return None
    pools, systems = texts.get("calico-pools"), texts.get("calico-systems")
    return CalicoFacts(
        felix=tuple(line.split()[0] for line in texts["felix"].splitlines() if line.strip()),
        pools={item["metadata"]["name"]: item["spec"] for item in json.loads(pools)["items"]}
        if pools
        else None,
        systems=dict(_system(line) for line in systems.splitlines() if line.strip())
        if systems
        else None,
    )


def _system(line: str) -> tuple[str, str]:
    name, _, number = line.strip().partition(" ")
    return name, number.strip().replace(_NONE, "")


def read_sessions(text: str) -> tuple[SeenSession, ...]:
    """BGP sessions in the output of ``birdc show protocols``."""
    sessions = []
    for line in text.splitlines():
        words = line.split()
        if len(words) >= _SESSION_WORDS and words[1] == "BGP":
            sessions.append(SeenSession(words[0], words[3], " ".join(words[5:])))
    return tuple(sessions)


Entry = Mapping[str, Any]

_CAST = "unicast"
_ORDINARY_QUEUES = {"noqueue", "pfifo_fast", "fq_codel", "fq", "mq", "pfifo", "clsact", "ingress"}
"""Queueing disciplines that a system sets itself, and hooks that do nothing by themselves."""
_SLOWING = {"tbf", "htb", "netem", "police", "hfsc", "cbs", "sfb", "red"}
_ERRORS = ("errors", "dropped")


def links(entries: Iterable[Entry], ports: Iterable[Entry] = ()) -> tuple[LinkFacts, ...]:
    """Every device, from ``ip -details address`` and ``bridge -details link``."""
    hairpin = {str(port.get("ifname")): port.get("hairpin") for port in ports}
    return tuple(_link(entry, hairpin) for entry in entries)


def _link(entry: Entry, hairpin: Mapping[str, object]) -> LinkFacts:
    flags = entry.get("flags", ())
    name = str(entry.get("ifname", ""))
    flag = hairpin.get(name)
    master = entry.get("master")
    return LinkFacts(
        name=name,
        kind=_kind(entry),
        mac=str(entry.get("address", "")).lower(),
        addresses=_addresses(entry),
        mtu=int(entry.get("mtu", 0)),
        up="UP" in flags,
        carrier="LOWER_UP" in flags and entry.get("operstate") not in {"DOWN", "LOWERLAYERDOWN"},
        master=str(master) if master else None,
        hairpin=flag if isinstance(flag, bool) else None,
    )


def _kind(entry: Entry) -> str:
    if entry.get("link_type") == "loopback":
        return "loopback"
    return str(entry.get("linkinfo", {}).get("info_kind", ""))


def _addresses(entry: Entry) -> tuple[str, ...]:
    return tuple(
        f"{address['local']}/{address['prefixlen']}"
        for address in entry.get("addr_info", ())
        if address.get("family") == "inet" and "local" in address
    )


def bridges(devices: Iterable[LinkFacts]) -> tuple[Bridge, ...]:
    """The devices that are bridges."""
    return tuple(
        Bridge(link.name, link.mac, link.addresses, link.mtu)
        for link in devices
        if link.kind == "bridge"
    )


def tunnels(entries: Iterable[Entry]) -> tuple[Tunnel, ...]:
    """The devices that are VXLAN tunnels."""
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
    """Names of the VXLAN devices with learning."""
    return tuple(
        str(entry["ifname"])
        for entry in entries
        if _kind(entry) == "vxlan" and _data(entry).get("learning") is True
    )


def _data(entry: Entry) -> Entry:
    data = entry.get("linkinfo", {}).get("info_data", {})
    return data if isinstance(data, Mapping) else {}


def routes(entries: Iterable[Entry]) -> tuple[Route, ...]:
    """The best route of each destination: the lowest metric, the first if there are several."""
    best: dict[str, tuple[int, Route]] = {}
    for entry in entries:
        destination = str(entry.get("dst", ""))
        metric = int(entry.get("metric", 0))
        if destination not in best or metric < best[destination][0]:
            best[destination] = (metric, _route(destination, entry))
    return tuple(route for _, route in best.values())


def _route(destination: str, entry: Entry) -> Route:
    kind = str(entry.get("type", _CAST))
    hops = entry.get("nexthops") or [entry]  # several: all of them, as one route has one text
    via = ", ".join(str(hop["gateway"]) for hop in hops if hop.get("gateway"))
    flags = [*entry.get("flags", ()), *(flag for hop in hops for flag in hop.get("flags", ()))]
    devices = dict.fromkeys(str(hop.get("dev", "")) for hop in hops)
    device = ", ".join(devices) if kind == _CAST else kind
    if kind == _CAST and ("dead" in flags or "linkdown" in flags):
        device = f"{device} (down)"
    source = None if entry.get("protocol") == "kernel" else entry.get("prefsrc")
    return Route(destination, device, via or None, "onlink" in flags, source=source)


def neighbours(entries: Iterable[Entry]) -> tuple[SeenNeighbour, ...]:
    """Every IPv4 neighbour entry of a unicast address, in the order of addresses."""
    parsed = [_neighbour(entry) for entry in entries if _is_machine(str(entry.get("dst", "")))]
    return tuple(
        sorted(
            parsed,
            key=lambda actual: (actual.neighbour.device, ip_address(actual.neighbour.address)),
        )
    )


def _neighbour(entry: Entry) -> SeenNeighbour:
    state = entry.get("state", ())
    return SeenNeighbour(
        Neighbour(
            str(entry["dst"]), str(entry.get("lladdr", "")).lower(), str(entry.get("dev", ""))
        ),
        "|".join(str(word) for word in state) if isinstance(state, list) else str(state),
    )


def _is_machine(text: str) -> bool:
    try:
        address = ip_address(text)
    except ValueError:
        return False
    return address.version == 4 and not address.is_multicast  # noqa: PLR2004  IPv4


def forwarding(entries: Iterable[Entry]) -> tuple[ForwardingEntry, ...]:
    """The FDB entries with a remote tunnel end."""
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
    """Queueing disciplines that delay or drop packets, from ``tc qdisc``."""
    return tuple(_shaper(entry) for entry in entries if entry.get("kind") in _SLOWING)


def _shaper(entry: Entry) -> Barrier:
    device, kind = str(entry.get("dev", "")), str(entry["kind"])
    options = entry.get("options", {})
    details = " ".join(f"{key} {_plain(value)}" for key, value in options.items() if value)
    return Barrier(
        subject=DeviceSubject(device),
        rule=f"{kind} {details}".strip(),
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
        statistics = entry.get("stats64") or entry.get("stats") or {}
        for way, words in (("rx", "received"), ("tx", "sent")):
            for key, value in statistics.get(way, {}).items():
                if key == "packets" or (key.endswith(_ERRORS) and value):
                    yield Counter(f"{entry.get('ifname')} {words} {key}", int(value))


_OFF = ("disabled", "masked")
_FORWARD = "ipv4/ip_forward"
_NDOTS = 1
"""The default in resolv.conf (resolv.conf(5))."""
_PROTOCOLS = {"tcp", "udp"}
_OF_POD = ("address", "route", "neighbour")
"""Without an answer to these, nothing is known of a pod."""


class Runs(Protocol):
    """Runs commands on a node, or in a pod."""

    def run(self, command: tuple[str, ...], deadline: Deadline) -> Completed:
        """Run a command to its end."""


def observe(machine: Runs, deadline: Deadline, *, namespace: bool = False) -> NodeFacts:
    """Observe a node with one command.

    Raises
    ------
    DeadlineError, BrokenError
        When it cannot be queried, or does not answer to the end.

    """
    done = machine.run(command("namespace" if namespace else "computer"), deadline)
    return facts(done.stdout, done.stderr)


def observe_pod(name: str, machine: Runs, deadline: Deadline) -> PodFacts:
    """Observe a pod in a network namespace of the lab's own, with one command.

    Raises
    ------
    DeadlineError, BrokenError
        When it cannot be queried, or does not answer to the end.

    """
    done = machine.run(command("pod"), deadline)
    replies = answers(done.stdout, done.stderr)
    pod = _pod(
        name, replies, "", _resolver(replies["resolver"].text) if "resolver" in replies else None
    )
    if isinstance(pod, Unread):
        raise BrokenError(f"reading the state of pod '{name}'", pod.reason)
    return pod


def facts(stdout: str, stderr: str) -> NodeFacts:
    """Parse the answers. Pure; parts that cannot be read are listed in ``absent``.

    Raises CutOffError if the queries did not run to their end.
    """
    replies = answers(stdout, stderr)
    texts = {name: reply.text for name, reply in replies.items() if not reply.trouble}
    read = _Reading(replies)
    entries, ports = read.json("address"), read.json("ports")
    devices = links(entries, ports)
    rules = _rules(read)
    settings = _settings(read.text("settings"))
    forward = dict(settings).get(_FORWARD)
    pods = [*_pods(replies)]
    return NodeFacts(
        os="linux",
        version=_version(read.text("release")),
        links=devices,
        bridges=bridges(devices),
        tunnels=tunnels(entries),
        learning=learning(entries),
        routes=routes(read.json("route")),
        neighbours=neighbours(read.json("neighbour")),
        forwarding=forwarding(read.json("forwarding")),
        proxies=proxies(read.json("proxy")),
        forwards=None if forward is None else forward == "1",
        settings=settings,
        translations=rules.translations,
        barriers=rules.barriers,
        shapers=shapers(read.json("queues")),
        listening=_listening(read.text("sockets")),
        pods=tuple(pod for pod in pods if isinstance(pod, PodFacts))
        if "sandboxes" in replies
        else None,
        sandboxes=_sandboxes(read.document("sandboxes")),
        units=_units(read.text("units")),
        software=read_software(texts),
        calico=read.of("calico-pools", lambda: read_calico(texts)),
        sessions=read_sessions(read.text("sessions")),
        counters=tuple(_counters(read, entries)),
        switching=_switching(read, replies),
        databases=_databases(read),
        absent=tuple(read.absent.items()),
        unread=(*read.unread(OF_KERNEL), *(pod for pod in pods if isinstance(pod, Unread))),
    )


def _switching(read: _Reading, replies: Mapping[str, CommandAnswer]) -> Switching | None:
    flows = {
        name.removeprefix("flows "): answer.text
        for name, answer in replies.items()
        if name.startswith("flows ")
    }
    dump = read.text("switch")
    return read.of(
        "switch",
        lambda: ovn.switching(dump, flows, read.text("tunnel-neighbours")) if dump else None,
    )


def _databases(read: _Reading) -> Databases | None:
    texts = [read.text(name) for name in ("northbound", "chassis", "encaps", "bindings")]
    return read.of("northbound", lambda: ovn.databases(*texts) if all(texts) else None)


_Read = TypeVar("_Read")


class _Reading:
    """Answers, and the parts that cannot be read."""

    def __init__(self, replies: Mapping[str, CommandAnswer]) -> None:
        self._replies = replies
        self.absent = {name: reply.trouble for name, reply in replies.items() if reply.trouble}
        self._lacking = {name for name, reply in replies.items() if not reply.installed}

    def unread(self, parts: Collection[str]) -> tuple[Unread, ...]:
        """Those of the parts that have no answer, although the program is there."""
        return tuple(
            Unread(name, why)
            for name, why in self.absent.items()
            if name in parts and name not in self._lacking
        )

    def fail(self, name: str, reason: str) -> None:
        """Note that an answer cannot be read."""
        self.absent[name] = reason
        self._lacking.discard(name)

    def text(self, name: str) -> str:
        answer = self._replies.get(name)
        return answer.text if answer else ""

    def document(self, name: str) -> Any:
        """The content of one JSON document; None if there is none."""
        text = self.text(name)
        if not text.strip():
            return None
        try:
            return json.loads(text)
        except ValueError as error:
            self.fail(name, f"its answer cannot be read: {error}")
            return None

    def of(self, name: str, made: Callable[[], _Read | None]) -> _Read | None:
        """The parsed answer; None if it cannot be parsed."""
        try:
            return made()
        except (ValueError, KeyError, TypeError) as error:
            self.fail(name, f"its answer cannot be read: {type(error).__name__} {error}")
            return None

    def json(self, name: str) -> list[Any]:
        """The entries of a list; iproute2 prints nothing for an empty one."""
        document = self.document(name)
        return [entry for entry in document if entry] if isinstance(document, list) else []


def _rules(read: _Reading) -> Ruleset:
    texts = [text for name in ("iptables", "iptables-legacy") if (text := read.text(name))]
    nft = read.document("nftables") or {}
    known = frozenset[tuple[str, str]]().union(*(iptables.tables(text) for text in texts))
    try:
        return joined(
            (
                nftables.read(
                    nft.get("nftables", ()), but=known, listing=read.text("nftables-listing")
                ),
                *(iptables.read(text) for text in texts),
            )
        )
    except (KeyError, ValueError, TypeError, IndexError) as error:
        read.fail("nftables", f"a rule that cannot be read: {type(error).__name__} {error}")
        return joined(())


def _settings(text: str) -> tuple[tuple[str, str], ...]:
    pairs = (line.partition(":") for line in text.splitlines())
    return tuple((path, value.strip()) for path, mark, value in pairs if mark)


def _version(text: str) -> str:
    for line in text.splitlines():
        if line.startswith("PRETTY_NAME="):
            return line.partition("=")[2].strip('"')
    return ""


def _listening(text: str) -> tuple[tuple[str, int], ...]:
    sockets = set()
    for line in text.splitlines():
        words = line.split()
        if len(words) > 4 and words[0] in _PROTOCOLS:  # noqa: PLR2004  netid, state, queues, own
            port = words[4].rpartition(":")[2]
            if port.isdecimal() and not words[4].startswith(("127.", "[::1]")):
                sockets.add((words[0], int(port)))
    return tuple(sorted(sockets))


def _pods(replies: Mapping[str, CommandAnswer]) -> Iterator[PodFacts | Unread]:
    names = [
        key.split()[1] for key in replies if key.startswith("pod ") and key.endswith(" address")
    ]
    present = (name for name in names if f"pod {name} gone" not in replies)
    return (_pod(name, replies, f"pod {name} ", None) for name in present)


def _pod(
    name: str, replies: Mapping[str, CommandAnswer], before: str, resolver: Resolver | None
) -> PodFacts | Unread:
    read, queries = _Reading(replies), [f"{before}{part}" for part in _OF_POD]
    devices = links(read.json(f"{before}address"))
    pod = PodFacts(
        name=name,
        links=tuple(link for link in devices if link.kind != "loopback"),
        routes=routes(read.json(f"{before}route")),
        neighbours=neighbours(read.json(f"{before}neighbour")),
        listening=_listening(read.text(f"{before}sockets"))
        if f"{before}sockets" not in read.absent
        else None,
        resolver=resolver,
    )
    missing = [query for query in queries if query in read.absent]
    return Unread(missing[0], read.absent[missing[0]], name) if missing else pod


def _resolver(text: str) -> Resolver | None:
    server, search, ndots = "", tuple[str, ...](), _NDOTS
    for line in text.splitlines():
        words = line.split()
        if words[:1] == ["nameserver"] and not server:
            server = words[1]
        elif words[:1] == ["search"]:
            search = tuple(words[1:])
        elif words[:1] == ["options"]:
            values = [word.partition(":")[2] for word in words if word.startswith("ndots:")]
            ndots = int(values[0]) if values and values[0].isdecimal() else ndots
    return Resolver(server, search, ndots) if server else None


def _sandboxes(answer: Any) -> tuple[tuple[str, str], ...]:
    items = answer.get("items", ()) if isinstance(answer, dict) else ()
    return tuple(
        sorted(
            (
                f"{item['metadata']['namespace']}/{item['metadata']['name']}",
                str(item.get("state", "")).removeprefix("SANDBOX_").lower(),
            )
            for item in items
        )
    )


def _units(text: str) -> tuple[Unit, ...]:
    """Installed units that are enabled or active: images have more than a node needs."""
    units = []
    for block in text.split("\n\n"):
        properties = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        unused = (
            properties.get("UnitFileState") in _OFF and properties.get("ActiveState") == "inactive"
        )
        if properties.get("LoadState") == "loaded" and not unused:
            name = properties.get("Id", "").removesuffix(".service")
            restarts = properties.get("NRestarts", "0")
            more = f", restarted {restarts} times" if restarts not in {"", "0"} else ""
            units.append(Unit(name, f"{properties.get('ActiveState', '')}{more}"))
    return tuple(units)


def _counters(read: _Reading, entries: Iterable[Mapping[str, Any]]) -> Iterator[Counter]:
    yield from counters(entries)
    yield from _pairs(read.text("counters"))
    for line in read.text("conntrack").splitlines():
        words = line.split()
        for word in words[1:]:
            name, _, value = word.partition("=")
            if value.isdecimal():
                yield Counter(f"conntrack {words[0]} {name}", int(value))
    for name in [key for key in read.absent if key.startswith("card ")]:
        del read.absent[name]  # virtual interfaces have none, and ethtool is rarely installed


def _pairs(text: str) -> Iterator[Counter]:
    """Counters of /proc/net/snmp and netstat: a line of names, then a line of values."""
    lines = [line.split() for line in text.splitlines() if ": " in line]
    for names, values in zip(lines[::2], lines[1::2], strict=False):
        if names[0] == values[0] and names[0] in {"Ip:", "Udp:", "Tcp:", "IpExt:", "TcpExt:"}:
            for name, value in zip(names[1:], values[1:], strict=False):
                if value.isdecimal() and value != "0":
                    yield Counter(f"{names[0].rstrip(':')} {name}", int(value))
