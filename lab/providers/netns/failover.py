"""Failover on namespaces: unplug cables, find the holders of virtual gateways, measure outages.

Outages are measured with datagrams sent from pod to pod at a fixed interval, by one process with a
socket in each source pod's namespace. Every datagram carries a number and is echoed; a datagram
counts as answered when its number comes back, however late.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise

from lab._deadline import Deadline
from lab._errors import BrokenError
from lab.providers.failover import Beat, BeatPace, Silence
from lab.providers.netns import dialects, namespaces, netlink
from lab.providers.netns.child_calls import Tell
from lab.providers.netns.compile import compile_intent
from lab.providers.netns.holders import HolderEntry
from lab.providers.netns.netlink import Socket, list_addresses, list_links
from lab.providers.netns.operations import LinkDown, LinkUp, NamespaceOperations, VethAdd
from lab.providers.netns.protocol import datagram, nonce_of
from lab.providers.provider import PROBE_PORT
from lab.topology.intent import Intent

_ANSWER_BYTES = 512
_ANSWER_SECONDS = 0.3
"""A datagram younger than this may still be answered and is not counted yet."""


@dataclass(slots=True)
class _Pair:
    beat: Beat
    sock: socket.socket
    sent: list[float] = field(default_factory=list)
    """When each datagram was sent, in seconds of the monotonic clock."""
    answered: set[int] = field(default_factory=set)

    def send(self, now: float) -> None:
        self.sent.append(now)
        with suppress(OSError):  # an ICMP error for an earlier one, or no route: unanswered
            self.sock.send(self.question(len(self.sent) - 1))

    def question(self, number: int) -> bytes:
        if self.beat.dialect == "netexec":
            return dialects.netexec_echo(number)
        return datagram(number, b"", fragments=False)

    def hear(self) -> None:
        with suppress(BlockingIOError):
            for answer in iter(self._receive, None):
                ours = self.beat.dialect == "lab"
                number = nonce_of(answer) if ours else dialects.netexec_number(answer)
                if number is not None:
                    self.answered.add(number)

    def _receive(self) -> bytes:
        try:
            return self.sock.recv(_ANSWER_BYTES)
        except BlockingIOError:
            raise
        except OSError:  # an ICMP error for an earlier datagram
            return b""

    def calm(self, now: float, seconds: float) -> bool:
        """True if every datagram of the last ``seconds`` was answered."""
        number = len(self.sent) - 1
        while number >= 0 and now - self.sent[number] < _ANSWER_SECONDS:
            number -= 1
        while number >= 0 and now - self.sent[number] < seconds:
            if number not in self.answered:
                return False
            number -= 1
        return number >= 0

    def silence(self, first: int, every: float) -> Silence:
        """The longest silence from datagram number ``first`` on."""
        before = max((number for number in self.answered if number < first), default=first)
        times = [self.sent[number] for number in sorted(self.answered) if number >= before]
        times.append(self.sent[-1])
        longest = max((later - earlier for earlier, later in pairwise(times)), default=0.0)
        return Silence(
            source=self.beat.source,
            target=self.beat.target,
            seconds=max(0.0, longest - every),
            sent=len(self.sent) - first,
            answered=sum(1 for number in self.answered if number >= first),
        )


def measure_silences(
    enter: Callable[[str], None], beats: Sequence[Beat], pace: BeatPace, tell: Tell
) -> tuple[Silence, ...]:
    """Send until every pair is answered steadily, ``tell("steady")``, continue until it is again.

    Leaves the calling thread in the last source's namespace.

    Raises BrokenError if some pair is not answered before the failover.
    """
    pairs = [_open(enter, beat) for beat in beats]
    try:
        _send_until_calm(pairs, pace, 0.0)
        now = time.monotonic()
        unsteady = [pair.beat for pair in pairs if not pair.calm(now, pace.calm)]
        if unsteady:
            raise BrokenError(
                "measuring before the failover",
                f"'{unsteady[0].source}' gets no steady answer from '{unsteady[0].target}'",
                "'lab test' shows what does not work",
            )
        begun = len(pairs[0].sent)
        tell("steady")
        _send_until_calm(pairs, pace, pace.least)
        return tuple(pair.silence(begun, pace.every) for pair in pairs)
    finally:
        for pair in pairs:
            pair.sock.close()


def _open(enter: Callable[[str], None], beat: Beat) -> _Pair:
    enter(beat.source)
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.setblocking(False)
    sock.connect((beat.address, PROBE_PORT))
    return _Pair(beat, sock)


def _send_until_calm(pairs: Sequence[_Pair], pace: BeatPace, least: float) -> None:
    """Send for at least ``least`` s, then until every pair is calm or ``patience`` runs out."""
    known = {pair.sock.fileno(): pair for pair in pairs}
    begun = due = now = time.monotonic()
    with select.epoll() as poll:
        for number in known:
            poll.register(number, select.EPOLLIN)
        while now - begun < pace.patience:
            if now >= due:
                for pair in pairs:
                    pair.send(now)
                due = max(due + pace.every, now)
                if now - begun >= least and all(pair.calm(now, pace.calm) for pair in pairs):
                    return
            for number, _ in poll.poll(max(0.0, due - time.monotonic())):
                known[number].hear()
            now = time.monotonic()


_SECONDS = 10.0


def plug(entry: HolderEntry, intent: Intent, machine: str, *, plugged: bool) -> None:
    """Plug in or unplug every cable of the machine.

    Raises BrokenError when the lab is not running.
    """
    wanted = cable_operations(intent, machine, plugged=plugged)
    verb = "plugging in" if plugged else "unplugging"
    entry.call(
        f"{verb} the cables of '{machine}'",
        lambda _: netlink.apply_operations(wanted),
        Deadline(_SECONDS),
    )


def cable_operations(
    intent: Intent, machine: str, *, plugged: bool
) -> tuple[NamespaceOperations, ...]:
    """Operations on its ports at the switches, the lab's or a hypervisor's. Pure."""
    operations_of = []
    for operations in compile_intent(intent):
        ends = [
            step.name
            for step in operations.operations
            if isinstance(step, VethAdd) and step.peer_namespace == machine
        ]
        if ends:
            made = tuple(LinkUp(port) if plugged else LinkDown(port) for port in ends)
            operations_of.append(
                NamespaceOperations(operations.namespace, operations.indexes, made)
            )
    return tuple(operations_of)


def gateway_holders(entry: HolderEntry, intent: Intent) -> Mapping[str, tuple[str, ...]]:
    """For each node with a virtual gateway: the machines that have the gateway's address."""
    machines = dict.fromkeys(name for gateway in intent.gateways for name in gateway.candidates)

    def look(_: object) -> dict[str, frozenset[tuple[str, str]]]:
        return {name: _list_held(name) for name in machines}

    holders = entry.call(
        "looking for the holders of gateways",
        look,
        Deadline(_SECONDS),
        answer=dict[str, frozenset[tuple[str, str]]],
    )
    return {
        gateway.node: tuple(
            name
            for name in gateway.candidates
            if (gateway.device, gateway.address) in holders[name]
        )
        for gateway in intent.gateways
    }


def _list_held(machine: str) -> frozenset[tuple[str, str]]:
    """Every device and address of a machine; call inside the holder."""
    with namespaces.inside(machine), Socket(machine) as channel:
        names = {link.index: link.name for link in list_links(channel)}
        return frozenset((names[index], address) for index, address in list_addresses(channel))
