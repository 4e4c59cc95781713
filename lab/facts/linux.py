"""Facts of a Linux node: queried with one command, and the answers parsed.

A node is a computer behind SSH or a network namespace: anything that runs a command. What it cannot
answer is listed in the facts with the reason; only a node that cannot be queried at all raises.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Literal, Protocol, TypeVar

from lab._deadline import Deadline
from lab._errors import BrokenError
from lab.facts import iptables, nftables, ovn
from lab.facts.items import Items
from lab.facts.node import (
    PACKETS,
    CalicoFacts,
    DeviceCounter,
    NodeFacts,
    PodFacts,
    SeenSession,
    Software,
    Unit,
    Unread,
)
from lab.facts.ovn import Databases, Switching
from lab.facts.questions import DISPENSABLE, OF_KERNEL, CommandAnswer, answers, command
from lab.facts.readers import read_items
from lab.facts.translations import RuleEffects, join_rule_effects
from lab.shells.shell import Completed
from lab.topology.intent import Resolver
from lab.topology.subject import SocketSubject

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
        processes=_processes(texts["programs"]) if "programs" in texts else None,
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

_ERRORS = ("errors", "dropped")
_DIRECTIONS: tuple[tuple[str, Literal["received", "sent"]], ...] = (
    ("rx", "received"),
    ("tx", "sent"),
)


def read_counters(entries: Iterable[Entry]) -> Iterator[DeviceCounter]:
    """Packets, errors and drops of every device."""
    for entry in entries:
        statistics = entry.get("stats64") or entry.get("stats") or {}
        for key, direction in _DIRECTIONS:
            for event, value in statistics.get(key, {}).items():
                if event == PACKETS or (event.endswith(_ERRORS) and value):
                    yield DeviceCounter(str(entry["ifname"]), direction, event, int(value))


_OFF = ("disabled", "masked")
_NDOTS = 1
"""The default in resolv.conf (resolv.conf(5))."""
_PROTOCOLS = {"tcp", "udp"}
_OF_POD = ("address", "route", "neighbour")
"""Without an answer to these, nothing is known of a pod."""


class CommandRunner(Protocol):
    """Runs commands on a node, or in a pod."""

    def run(self, command: tuple[str, ...], deadline: Deadline) -> Completed:
        """Run a command to its end."""


def observe(machine: CommandRunner, deadline: Deadline, *, namespace: bool = False) -> NodeFacts:
    """Observe a node with one command.

    Raises
    ------
    DeadlineError, BrokenError
        When it cannot be queried, or does not answer to the end.

    """
    done = machine.run(command("namespace" if namespace else "computer"), deadline)
    return read_facts(done.stdout, done.stderr)


def observe_pod(name: str, machine: CommandRunner, deadline: Deadline) -> PodFacts:
    """Observe a pod in a network namespace of the lab's own, with one command.

    Raises
    ------
    DeadlineError, BrokenError
        When it cannot be queried, or does not answer to the end.

    """
    done = machine.run(command("pod"), deadline)
    pod = _pod(name, answers(done.stdout, done.stderr), "")
    if isinstance(pod, Unread):
        raise BrokenError(f"reading the state of pod '{name}'", pod.reason)
    return pod


def read_facts(stdout: str, stderr: str) -> NodeFacts:
    """Parse the answers. Pure; parts that cannot be read are listed in ``absent``.

    Raises CutOffError if the queries did not run to their end.
    """
    by_query = answers(stdout, stderr)
    texts = {name: answer.text for name, answer in by_query.items() if not answer.trouble}
    read = _Reading(by_query)
    items = read.items()
    rules = _rules(read)
    pods = [*_pods(by_query)]
    return NodeFacts(
        os="linux",
        version=_version(read.text("release")),
        items=items,
        translations=rules.translations,
        barriers=rules.barriers,
        listening=_listening(items),
        pods=tuple(pod for pod in pods if isinstance(pod, PodFacts))
        if "sandboxes" in by_query
        else None,
        sandboxes=_sandboxes(read.document("sandboxes")),
        units=_units(read.text("units")),
        software=read_software(texts),
        calico=read.of("calico-pools", lambda: read_calico(texts)),
        sessions=read_sessions(read.text("sessions")),
        counters=tuple(read_counters(read.document("address") or ())),
        switching=_switching(read, by_query),
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
        """Those of the parts that have no answer, although their program should be there."""
        return tuple(
            self.without(name)
            for name in self.absent
            if name in parts and name not in self._lacking & DISPENSABLE
        )

    def without(self, name: str, pod: str = "") -> Unread:
        """A part that has no answer; ``pod``: the pod of which nothing is known without it."""
        return Unread(name, self.absent[name], pod, name not in self._lacking)

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

    def items(self, before: str = "") -> Items:
        """The items that the queries whose names begin with ``before`` have."""
        self.document(f"{before}address")
        texts = {
            name.removeprefix(before): answer.text
            for name, answer in self._replies.items()
            if name.startswith(before) and name not in self.absent
        }
        return read_items(texts)


def _rules(read: _Reading) -> RuleEffects:
    texts = [text for name in ("iptables", "iptables-legacy") if (text := read.text(name))]
    nft = read.document("nftables") or {}
    known = frozenset[tuple[str, str]]().union(*(iptables.tables(text) for text in texts))
    try:
        return join_rule_effects(
            (
                nftables.read(nft.get("nftables", ()), but=known, listing=read.text("ruleset")),
                *(iptables.read(text) for text in texts),
            )
        )
    except (KeyError, ValueError, TypeError, IndexError) as error:
        read.fail("nftables", f"a rule that cannot be read: {type(error).__name__} {error}")
        return join_rule_effects(())


def _version(text: str) -> str:
    for line in text.splitlines():
        if line.startswith("PRETTY_NAME="):
            return line.partition("=")[2].strip('"')
    return ""


def _listening(items: Items) -> tuple[tuple[str, int], ...]:
    sockets = (item.subject for item in items.values())
    return tuple(
        sorted(
            {
                (socket.protocol, int(socket.port))
                for socket in sockets
                if isinstance(socket, SocketSubject)
                if socket.protocol in _PROTOCOLS and socket.port.isdecimal()
                if not socket.address.startswith(("127.", "[::1]"))
            }
        )
    )


def _pods(by_query: Mapping[str, CommandAnswer]) -> Iterator[PodFacts | Unread]:
    for query in by_query:
        if query.startswith("pod ") and query.endswith(" address"):
            name = query.split()[1]
            if f"pod {name} gone" not in by_query:
                yield _pod(name, by_query, f"pod {name} ")


def _pod(name: str, by_query: Mapping[str, CommandAnswer], before: str) -> PodFacts | Unread:
    read = _Reading(by_query)
    items = read.items(before)
    missing = [f"{before}{part}" for part in _OF_POD if f"{before}{part}" in read.absent]
    if missing:
        return read.without(missing[0], name)
    return PodFacts(
        name,
        items,
        _listening(items) if f"{before}sockets" not in read.absent else None,
        _resolver(read.text(f"{before}file /etc/resolv.conf")),
    )


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
