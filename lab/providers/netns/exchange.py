"""What one probe does, step by step, as generators that the prober's loop drives.

A generator yields the epoll events it waits for on its current socket, and is resumed when
they are there; when an exchange's time is up, :class:`Expired` is thrown into it. It ends by
returning, with what it learnt in its :class:`Flight`, or by an exception that
:func:`failure` turns into a status.
"""

from __future__ import annotations

import errno
import os
import random
import socket
from collections.abc import Callable, Generator, Mapping
from contextlib import suppress
from select import EPOLLIN, EPOLLOUT
from time import perf_counter
from typing import Final

from lab.providers.netns import names, protocol
from lab.providers.provider import LARGE_TCP_BYTES, Outcome, Probe, ProbeStatus

Steps = Generator[int, None, None]
Asking = Generator[int, None, bytes]
Open = Callable[["Flight", int], socket.socket]
"""Begins an exchange: a fresh socket of the kind, in the source's namespace."""

_IP_MTU_DISCOVER, _IP_MTU = 10, 14
_PMTUDISC_DONT, _PMTUDISC_PROBE = 0, 3
"""ip(7). PROBE sets DF as DO does, but does not heed what the kernel remembers of the path for
ten minutes: a path that has been mended passes at once."""
_SMALL_DATAGRAM = 64
_CHUNK: Final = 65_536
_FILLING = random.Random(4_096).randbytes(protocol.DATAGRAM_LIMIT + LARGE_TCP_BYTES)  # noqa: S311  a fixed pattern without repetition

_STATUS: Mapping[int, ProbeStatus] = {
    errno.ECONNREFUSED: "refused",
    errno.EHOSTUNREACH: "no-route",
    errno.ENETUNREACH: "no-route",
    errno.ENETDOWN: "no-route",
    errno.EACCES: "no-route",  # a 'prohibit' route
    errno.EINVAL: "no-route",  # a 'blackhole' route
    errno.ETIMEDOUT: "timeout",
    errno.EPERM: "timeout",  # a packet filter of the source's own dropped it
    errno.ECONNRESET: "wrong",
    errno.EPIPE: "wrong",
    errno.EMSGSIZE: "wrong",
}
"""What an errno of connect, send or receive says of the network; any other says nothing."""


class Expired(Exception):  # noqa: N818  it is told, not raised by mistake
    """The exchange's time is up."""


class CannotProbeError(Exception):
    """The probe cannot be made at all; the text says why, a clause without a full stop."""


class Flight:
    """One probe under way, and what has been learnt so far."""

    __slots__ = (
        "address",
        "answer",
        "backends",
        "began",
        "deadline",
        "detail",
        "latency",
        "mask",
        "phase",
        "probe",
        "sock",
        "source_seen",
        "status",
        "steps",
    )

    def __init__(self, probe: Probe) -> None:
        self.probe = probe
        self.address = probe.address
        self.steps: Steps
        self.sock: socket.socket | None = None
        self.mask = 0
        """What epoll watches the socket for; 0 before it is registered."""
        self.deadline = 0.0
        self.began = 0.0
        """When the first packet was sent, by ``perf_counter``; 0 before."""
        self.phase = "start"
        """What is under way, the first word of a failure's detail."""
        self.status: ProbeStatus = "ok"
        self.detail = ""
        self.source_seen: str | None = None
        self.backends: dict[str, None] = {}
        self.answer: str | None = None
        self.latency = -1.0

    def seen(self, endpoint: str, client: str) -> None:
        """Note an answer, and of the first one its latency and the source it saw."""
        if self.latency < 0:
            self.latency = perf_counter() - self.began
            self.source_seen = client.rpartition(":")[0]
        self.backends[endpoint] = None

    def complete(self) -> bool:
        """Whether no further try is needed: every expected backend has answered."""
        expected = self.probe.expected
        return bool(expected) and all(name in self.backends for name in expected)

    def outcome(self) -> Outcome:
        """What came of it."""
        latency = self.latency
        if latency < 0:
            latency = perf_counter() - self.began if self.began else 0.0
        return Outcome(
            self.probe.key,
            self.status,
            self.detail,
            self.source_seen,
            tuple(self.backends),
            self.answer,
            latency * 1000,
        )


def failure(error: Exception, phase: str, timeout: float) -> tuple[ProbeStatus, str]:
    """The status and the detail that an exception stands for."""
    match error:
        case Expired():
            return "timeout", f"{phase}: no reply in {timeout:g} s"
        case CannotProbeError():
            return "error", str(error)
        case protocol.WireError() | names.NameWireError():
            return "wrong", f"{phase}: {error}"
        case OSError(errno=int(number)):
            what = os.strerror(number).lower()
            if number == errno.EPERM:
                what = "dropped by a packet filter on the way out"
            return _STATUS.get(number, "error"), f"{phase}: {what}"
    return "error", f"{phase}: {type(error).__name__}: {error}"


def steps(flight: Flight, open_: Open, resolver: names.ResolverFile | None) -> Steps:
    """The generator that a probe asks for; ``resolver`` is the source's, for names only."""
    probe = flight.probe
    if probe.name is not None:
        assert resolver is not None
        return _resolve(flight, open_, probe.name, resolver)
    return _tries(flight, open_, _http if probe.protocol == "tcp" else _echo)


def _tries(flight: Flight, open_: Open, exchange: Callable[[Flight, Open], Steps]) -> Steps:
    probe = flight.probe
    for number in range(probe.tries):
        try:
            yield from exchange(flight, open_)
        except (OSError, protocol.WireError, Expired):
            if number:
                flight.phase = f"try {number + 1} of {probe.tries}, {flight.phase}"
            raise
        if flight.status != "ok" or flight.complete():
            return
    missing = [f"'{name}'" for name in probe.expected if name not in flight.backends]
    if missing:
        flight.detail = f"{' and '.join(missing)} did not answer in {probe.tries} tries"


def _http(flight: Flight, open_: Open) -> Steps:
    probe = flight.probe
    body = b""
    if probe.size == "large":
        body = b"%016x" % (probe.key & 0xFFFF_FFFF_FFFF_FFFF) + _FILLING[: LARGE_TCP_BYTES - 16]
        request = protocol.echo_request(probe.address, probe.port, body)
    else:
        request = protocol.get_request(probe.address, probe.port)
    sock = open_(flight, socket.SOCK_STREAM)
    yield from _connect_and_send(flight, sock, request)
    received = bytearray()
    while True:
        yield EPOLLIN
        try:
            data = sock.recv(_CHUNK)
        except BlockingIOError:
            continue
        if not data:
            raise protocol.WireError(f"the connection ended after {len(received)} bytes")
        received += data
        reply = protocol.read_reply(received)
        if reply is not None:
            break
        flight.phase = f"answer, after {len(received)} bytes"
    if reply.status != 200:  # noqa: PLR2004  HTTP's OK
        raise protocol.WireError(f"status {reply.status} from '{reply.endpoint}'")
    if body:
        protocol.check_body(body, reply.body)
    flight.seen(reply.endpoint, reply.client)


def _connect_and_send(flight: Flight, sock: socket.socket, request: bytes) -> Steps:
    """Connect and send at once: between namespaces the handshake is often over by then."""
    _connect(flight, sock)
    try:
        sent = sock.send(request)
    except BlockingIOError:
        # An ICMP answer to the very first packet comes before connect returns, and is only noted.
        code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, os.strerror(code)) from None
        yield EPOLLOUT
        sent = sock.send(request)
    while sent < len(request):
        flight.phase = f"send, after {sent} of {len(request)} bytes"
        yield EPOLLOUT
        sent += sock.send(request[sent:])
    flight.phase = "answer"


def _connect(flight: Flight, sock: socket.socket) -> None:
    flight.phase = "connect"
    flight.began = flight.began or perf_counter()
    code = sock.connect_ex((flight.address, flight.probe.port))
    if code not in (0, errno.EINPROGRESS):
        raise OSError(code, os.strerror(code))


class _Datagram:
    """One datagram of an exchange, and what became of it."""

    __slots__ = ("data", "detail", "status", "title")

    def __init__(self, title: str, data: bytes) -> None:
        self.title = title
        self.data = data
        self.status: ProbeStatus | None = None
        """None while neither an answer nor a failure has come."""
        self.detail = ""


def _datagrams(probe: Probe) -> dict[int, _Datagram]:
    """The datagrams of one exchange by nonce, in the order of sending."""
    nonce = random.getrandbits(63)
    if probe.size == "small":
        filling = _FILLING[: _SMALL_DATAGRAM - protocol.QUESTION_BYTES]
        return {nonce: _Datagram("", protocol.datagram(nonce, filling, fragments=False))}
    whole = probe.mtu - protocol.IP_UDP_BYTES
    twice = min(2 * probe.mtu - protocol.IP_UDP_BYTES, protocol.DATAGRAM_LIMIT)
    if not protocol.QUESTION_BYTES <= whole <= protocol.DATAGRAM_LIMIT:
        raise CannotProbeError(f"no datagram fits an MTU of {probe.mtu} bytes")
    sizes = (f"{probe.mtu} bytes with DF", whole), (f"{2 * probe.mtu} bytes in fragments", twice)
    return {
        nonce + place: _Datagram(
            title,
            protocol.datagram(
                nonce + place, _FILLING[: size - protocol.QUESTION_BYTES], fragments=bool(place)
            ),
        )
        for place, (title, size) in enumerate(sizes)
    }


def _echo(flight: Flight, open_: Open) -> Steps:
    """Send one small datagram, or the large two together, and wait for all of them."""
    sent = _datagrams(flight.probe)
    sock = open_(flight, socket.SOCK_DGRAM)
    _connect(flight, sock)
    flight.phase = "send"
    for place, datagram in enumerate(sent.values()):
        mode = _PMTUDISC_DONT if place else _PMTUDISC_PROBE
        sock.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, mode)
        try:
            sock.send(datagram.data)
        except OSError as error:
            if error.errno != errno.EMSGSIZE:
                raise
            _too_big(sock, datagram)
    flight.phase = "answer"
    try:
        while any(datagram.status is None for datagram in sent.values()):
            yield EPOLLIN
            _hear(flight, sock, sent)
    except Expired:
        if flight.probe.size == "small":
            raise
    if flight.probe.size == "large":
        _conclude(flight, tuple(sent.values()))


def _too_big(sock: socket.socket, datagram: _Datagram) -> None:
    mtu = sock.getsockopt(socket.IPPROTO_IP, _IP_MTU)
    datagram.status, datagram.detail = "wrong", f"too long, the path's MTU is {mtu}"


def _hear(flight: Flight, sock: socket.socket, sent: Mapping[int, _Datagram]) -> None:
    try:
        reply = sock.recv(_CHUNK)
    except BlockingIOError:
        return
    except OSError as error:
        if error.errno != errno.EMSGSIZE or flight.probe.size == "small":
            raise
        _too_big(sock, next(iter(sent.values())))  # only the one with DF can be too long
        return
    nonce = protocol.nonce_of(reply)
    datagram = sent.get(-1 if nonce is None else nonce)
    if datagram is None:
        raise protocol.WireError(f"{len(reply)} bytes that answer no datagram of this probe")
    try:
        endpoint, client = protocol.read_echo(datagram.data, reply)
    except protocol.WireError as error:
        if flight.probe.size == "small":
            raise
        datagram.status, datagram.detail = "wrong", str(error)
        return
    datagram.status = "ok"
    flight.seen(endpoint, client)


def _conclude(flight: Flight, datagrams: tuple[_Datagram, ...]) -> None:
    """The status of the first that failed, and a detail that speaks of all."""
    for datagram in datagrams:
        if datagram.status is None:
            datagram.status, datagram.detail = "timeout", "no reply in time"
    failed = [datagram for datagram in datagrams if datagram.status != "ok"]
    if failed and failed[0].status is not None:
        flight.status = failed[0].status
        flight.detail = "; ".join(f"{one.title}: {one.detail or 'echoed'}" for one in datagrams)


def _resolve(flight: Flight, open_: Open, name: str, resolver: names.ResolverFile) -> Steps:
    """Ask for each candidate in turn; the first address wins."""
    ask = _ask_stream if flight.probe.protocol == "tcp" else _ask_datagram
    flight.address = resolver.server or flight.probe.address
    asked = names.candidates(name, resolver)
    for candidate in asked:
        number = random.getrandbits(16)
        try:
            reply = yield from ask(flight, open_, names.question(candidate, number))
            flight.answer = names.read_answer(reply, candidate, number)
        except (OSError, protocol.WireError, names.NameWireError, Expired):
            flight.phase = f"asking {flight.address} for '{candidate}', {flight.phase}"
            raise
        if flight.answer is not None:
            break
    else:
        flight.status = "no-such-name"
        flight.detail = "no address for " + ", ".join(f"'{one}'" for one in asked)
    flight.latency = perf_counter() - flight.began


def _ask_datagram(flight: Flight, open_: Open, wire: bytes) -> Asking:
    sock = open_(flight, socket.SOCK_DGRAM)
    _connect(flight, sock)
    flight.phase = "send"
    sock.send(wire)
    flight.phase = "answer"
    while True:
        yield EPOLLIN
        with suppress(BlockingIOError):
            return sock.recv(_CHUNK)


def _ask_stream(flight: Flight, open_: Open, wire: bytes) -> Asking:
    sock = open_(flight, socket.SOCK_STREAM)
    yield from _connect_and_send(flight, sock, names.frame(wire))
    received = bytearray()
    while True:
        yield EPOLLIN
        with suppress(BlockingIOError):
            data = sock.recv(_CHUNK)
            received += data
            message = names.unframe(received)
            if message is not None:
                return message
            if not data:
                raise protocol.WireError(f"the connection ended after {len(received)} bytes")
