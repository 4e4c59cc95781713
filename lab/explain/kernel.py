"""What the kernel says of a lost probe: the rule that dropped it, and what it counted. Pure.

``nft monitor trace`` prints every rule that each packet of the probe matches, with handles. The
kernel's counters of the network namespace say how many packets its other parts dropped meanwhile.
Windows' Packet Monitor counts the probe's packets that each component dropped, with a reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address
from itertools import chain, pairwise

from lab._log import quantity
from lab.explain.topics import ANYTHING, Topic, topics_of
from lab.facts.difference import Difference
from lab.providers.capture import KernelTrace, RouteQuestion
from lab.topology.path import Station
from lab.topology.subject import ChainSubject, device_of

TABLE = "hybridlab-trace"
_FIRST = -450
"""Priority: before every table that somebody would make."""
_TRACED = re.compile(r"trace id (\w+) (\S+ \S+) (\S+) (packet|rule|verdict|policy)(?::|\b) ?(.*)")
_RULE = re.compile(r"(?P<rule>.*?)(?: # handle (?P<handle>\d+))? \(verdict (?P<verdict>[^)]*)\)")
_QUEUE = re.compile(r"qdisc (\S+) \S+ dev (\S+)")
_QUEUE_DROPS = re.compile(r"dropped (\d+)")


_ROUTES = frozenset[Topic]({"routes"})
_COUNTED: Mapping[str, tuple[str, frozenset[Topic]]] = {
    "Ip InHdrErrors": ("header or TTL wrong", frozenset({"ttl"})),
    "Ip InAddrErrors": (
        "its destination is not local, and forwarding is off",
        frozenset({"forwarding", "routes"}),
    ),
    "Ip InDiscards": ("thrown away on arrival", ANYTHING),
    "Ip OutDiscards": ("thrown away before sending", ANYTHING),
    "Ip OutNoRoutes": ("no route to send by", _ROUTES),
    "IpExt InNoRoutes": ("no route for what came in", _ROUTES),
    "Ip ReasmFails": ("fragments not put together", frozenset({"fragments"})),
    "Ip FragFails": ("too big, and not to be cut", frozenset({"mtu"})),
    "TcpExt IPReversePathFilter": (
        "source would not be answered by that card",
        frozenset({"reverse path", "routes"}),
    ),
    "TcpExt ListenOverflows": (
        "too many connections wait for a listener",
        frozenset({"sockets"}),
    ),
    "Udp NoPorts": ("nothing listens on the UDP port", frozenset({"sockets"})),
    "Udp RcvbufErrors": ("receive buffer full", frozenset({"buffers"})),
    "XfrmInPolBlock": ("an xfrm policy blocks what comes in", frozenset({"xfrm"})),
    "XfrmOutPolBlock": ("an xfrm policy blocks what is sent", frozenset({"xfrm"})),
    "XfrmFwdHdrError": ("an xfrm policy blocks what is forwarded", frozenset({"xfrm"})),
    "XfrmOutNoStates": ("no xfrm state to send by", frozenset({"xfrm"})),
    "XfrmInNoPols": ("no xfrm policy lets it in", frozenset({"xfrm"})),
    "XfrmInTmplMismatch": ("not as the xfrm policy wants it", frozenset({"xfrm"})),
}
"""Counters that say why packets were thrown away: what each means, and what it speaks of."""


@dataclass(frozen=True, slots=True)
class KernelReport:
    """One drop or change of packets that the kernel reported, and where."""

    place: str
    sentence: str
    topics: frozenset[Topic] = frozenset()
    """What the reason has to do with."""
    chain: ChainSubject | None = None
    """The chain whose rule did it."""
    device: str = ""
    """The device that dropped it."""
    drops: bool = True
    """Whether packets are thrown away; else they are changed."""
    traced: bool = False
    """Whether a rule, or a component of Windows, was seen to do it to the probe's own packets."""
    values: tuple[str, ...] = ()
    """What the kernel printed."""

    def names(self, difference: Difference) -> bool:
        """Whether the difference can be the reason of what it reports."""
        if difference.place != self.place:
            return False
        subject = difference.subject
        return (
            self.topics == ANYTHING
            or not self.topics.isdisjoint(topics_of(difference))
            or bool(self.device and device_of(subject) == self.device)
            or bool(self.chain and subject in {self.chain, self.chain.whole})
        )


_REASONS: tuple[tuple[str, str, frozenset[Topic]], ...] = (
    (
        r"not found|port unreachable",
        "nothing listens on that port",
        frozenset({"listeners"}),
    ),
    (
        r"inspection|administratively",
        "the Windows firewall or another filter",
        frozenset({"firewall"}),
    ),
    (r"mtu|fragment", "larger than the next link takes", frozenset({"mtu"})),
    (r"no route|address unreachable|routing", "no route to send by", _ROUTES),
    (
        r"address resolution",
        "the next hop does not answer ARP",
        frozenset({"neighbours", "addresses"}),
    ),
    (r"checksum", "its checksum is wrong", frozenset()),
    (
        r"spoofing|(unauthorized|source) mac",
        "the switch does not accept its MAC",
        frozenset({"macs", "addresses"}),
    ),
    (r"virtual ?subnet", "of another virtual network", frozenset({"vni"})),
    (
        r"guard|port blocked|security policy",
        "a policy of the virtual switch",
        frozenset(),
    ),
    (
        r"no destination|destination mac",
        "the virtual switch has no port for it",
        frozenset({"routes", "addresses"}),
    ),
    (
        r"disconnected|disabled|not ready|suspended|paused?$",
        "card or port is off",
        frozenset({"links"}),
    ),
)
"""Drop reasons of Windows: what each means, and what it speaks of. ``pktmon counters --json`` has
them in words alone, without their numbers. From public copies of the enum PKTMON_DROP_REASON, the
page "Diagnose packet loss" of learn.microsoft.com, and public logs."""
_NO_CAUSE = re.compile(
    r"^inet\b(?!.*(end ?point|inspection|checksum|header))"  # late segments: lost elsewhere
    r"|packet filter|locally destined|^not accepted|no destinations",  # a flooded frame of others
    re.IGNORECASE,
)


_PROTOCOLS = {"tcp": 6, "udp": 17}
_VXLAN = "meta l4proto udp @th,64,32 0x08000000 @th,224,16 0x0800"
"""A VXLAN packet with a network's number (RFC 7348) and IPv4 inside; offsets in bits, from UDP's
header: VXLAN's is at 64, Ethernet's at 128, IP's at 240."""
_INNER_PROTOCOL, _INNER_ENDS = "@th,312,8", ("@th,336,32", "@th,368,32")


def trace_table(protocol: str, addresses: Iterable[str]) -> str:
    """The table that has the kernel trace a probe, also inside VXLAN; who loads it owns it."""
    every = sorted(addresses)
    addresses = f"{{ {', '.join(every)} }}"
    inner = f"{_VXLAN} {_INNER_PROTOCOL} {_PROTOCOLS[protocol]}"
    matches = (
        *(f"ip {end} {addresses} meta l4proto {protocol}" for end in ("saddr", "daddr")),
        *(
            f"{inner} {end} {int(IPv4Address(address)):#x}"
            for end in _INNER_ENDS
            for address in every
        ),
    )
    rules = "; ".join(f"{match} meta nftrace set 1" for match in matches)
    chains = " ".join(
        f"chain {hook} {{ type filter hook {hook} priority {_FIRST}; {rules}; }};"
        for hook in ("prerouting", "output")
    )
    return f"table ip {TABLE} {{ flags owner; {chains} }}"


def read_kernel_reports(reports: Iterable[KernelTrace]) -> tuple[KernelReport, ...]:
    """The distinct reports of all places; those of dropped packets first."""
    ways = (_traced, _routed, _counted, _dropped)
    every = [word for report in reports for way in ways for word in way(report)]
    return tuple(sorted(dict.fromkeys(every), key=lambda word: not word.drops))


_CHANGES = re.compile(
    r"\b(?:snat|dnat|masquerade|redirect|notrack|tproxy|(?:mark|zone|ttl|maxseg|dscp) set)\b"
)


def _traced(report: KernelTrace) -> Iterator[KernelReport]:
    for line in report.traced.splitlines():
        match = _TRACED.search(line)
        if not match or match[2].endswith(TABLE):
            continue
        table, chain, event, rest = match[2], match[3], match[4], match[5].strip()
        at = f"{report.place}: table {table} chain {chain}"
        family, _, name = table.partition(" ")
        about, printed = ChainSubject(family, name, chain), [table, chain]
        if event == "policy" and rest == "drop":
            sentence = f"{at} dropped it by its policy"
            yield KernelReport(
                report.place, sentence, chain=about, traced=True, values=tuple(printed)
            )
        ruled = _RULE.match(rest) if event == "rule" else None
        if ruled is None:
            continue
        rule = f"rule '{ruled['rule']}' (handle {ruled['handle']})"
        printed.append(ruled["rule"])
        if ruled["verdict"] == "drop":
            sentence = f"{at} dropped it: {rule}"
            yield KernelReport(
                report.place, sentence, chain=about, traced=True, values=tuple(printed)
            )
        elif _CHANGES.search(ruled["rule"]):
            sentence = f"{at} took it: {rule}"
            yield KernelReport(
                *(report.place, sentence),
                chain=about,
                drops=False,
                traced=True,
                values=tuple(printed),
            )


_BY = re.compile(r"\bdev (\S+)")


def _routed(report: KernelTrace) -> Iterator[KernelReport]:
    for question, answer in report.routes:
        device = _BY.search(answer)
        if device and device[1] in {question.leaves, "lo"}:
            continue
        line = " ".join(question.command(""))
        told = " ".join(answer.split()) or "nothing"
        wanted = "" if device is None else f", not by {question.leaves}"
        sentence = f"{report.place}: '{line}' answers '{told}'{wanted}"
        yield KernelReport(
            report.place, sentence, _ROUTES, drops=device is None, values=(line, told)
        )


def route_questions(
    ways: Iterable[tuple[Sequence[Station], Sequence[Station]]],
) -> Mapping[str, Sequence[RouteQuestion]]:
    """What to ask in each place: where a packet that arrives, or begins, is sent on by the Intent.

    Only of what is not translated there: the kernel looks the route up in between.
    """
    questions_at: dict[str, dict[RouteQuestion, None]] = {}
    for way in chain(*ways):
        for station in way:
            questions_at.setdefault(station.place, {})
        for previous, other in pairwise((None, *way)):
            if other is None or other.passing != "out" or other.kind == "port":
                continue
            arrives = previous is not None and previous.place == other.place
            packet = other.packet
            if arrives and previous and (previous.passing == "out" or previous.packet != packet):
                continue
            questions_at[other.place][
                RouteQuestion(
                    *(packet.source, packet.target, packet.protocol, packet.port, packet.answer),
                    previous.device if arrives and previous else "",
                    other.device,
                )
            ] = None
    return {place: tuple(questions) for place, questions in questions_at.items()}


def _counted(report: KernelTrace) -> Iterator[KernelReport]:
    before, after = _counters(report.before), _counters(report.after)
    for name, value in after.items():
        rise = value - before.get(name, value)
        if rise <= 0:
            continue
        kind, _, device = name.partition(" of ")
        if device:
            sentence = f"{report.place}: {kind} of {device} dropped {rise}"
            yield KernelReport(report.place, sentence, device=device, values=(device,))
        elif name in _COUNTED:
            why, topics = _COUNTED[name]
            yield KernelReport(
                report.place, f"{report.place}: {why} ({name} rose by {rise})", topics
            )


def _dropped(report: KernelTrace) -> Iterator[KernelReport]:
    for drop in report.drops:
        words = re.sub(r"(?<=[a-z])(?=[A-Z])|[_\W]+", " ", drop.reason).strip()
        if _NO_CAUSE.search(words):
            continue
        known = (reason for reason in _REASONS if re.search(reason[0], words, re.IGNORECASE))
        _, meaning, topics = next(known, ("", "", frozenset[Topic]()))
        lost = quantity(drop.count, f"{drop.direction} packet")
        sentence = f"{report.place}: {drop.component} dropped {lost} of it: '{drop.reason}'"
        sentence += f" ({meaning})" if meaning else ""
        yield KernelReport(report.place, sentence, topics, traced=True)


def _counters(text: str) -> Mapping[str, int]:
    counters: dict[str, int] = {}
    names: dict[str, list[str]] = {}
    queue = ""
    for line in text.splitlines():
        words = line.split()
        if not words:
            continue
        if words[0].endswith(":") and words[0][:-1] in {"Ip", "IpExt", "TcpExt", "Udp"}:
            group = words[0][:-1]
            if group in names:
                counters |= {
                    f"{group} {n}": int(v) for n, v in zip(names[group], words[1:], strict=True)
                }
            names[group] = words[1:]
        elif words[0].startswith("Xfrm") and len(words) > 1:
            counters[words[0]] = int(words[1])
        elif shown := _QUEUE.match(line):
            queue = f"queue {shown[1]} of {shown[2]}"
        elif queue and (drops := _QUEUE_DROPS.search(line)):
            counters[queue] = counters.get(queue, 0) + int(drops[1])
            queue = ""
    return counters
