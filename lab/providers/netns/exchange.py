"""The exchanges of a probe, as generators that the prober's loop drives.

A generator yields the epoll events it waits for on its current socket, and is resumed when
they occur; when an exchange times out, ``Expired`` is thrown into it. It records its results in
its ``InFlight``, and either returns or raises an exception that ``describe_failure`` turns into
a status.
"""

from __future__ import annotations

import errno
import os
import random
import socket
import struct
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import suppress
from select import EPOLLIN, EPOLLOUT
from time import perf_counter
from typing import Final, NoReturn

from lab.providers.netns import dns, protocol
from lab.providers.netns.dialects import (
    FILLING,
    Datagram,
    DatagramTalk,
    LabDatagrams,
    NetexecDatagrams,
    WebTalk,
    health_backends,
    health_web,
    lab_web,
    netexec_web,
)
from lab.providers.netns.protocol import CannotProbeError, WireError
from lab.providers.provider import Dialect, Outcome, Probe, ProbeStatus

Steps = Generator[int, None, None]
"""Yields the epoll events waited for; see :mod:`lab.providers.netns.exchange`."""

_STATUS: Mapping[int, ProbeStatus] = {
    errno.ECONNREFUSED: "refused",
    errno.EHOSTUNREACH: "no-route",
    errno.ENETUNREACH: "no-route",
    errno.ENETDOWN: "no-route",
    errno.EACCES: "no-route",  # a 'prohibit' route
    errno.EINVAL: "no-route",  # a 'blackhole' route
    errno.ETIMEDOUT: "timeout",
    errno.ENOBUFS: "timeout",  # a queue at the source is full, and stays full
    errno.EPERM: "timeout",  # a packet filter at the source dropped it
    errno.ECONNRESET: "wrong",
    errno.EPIPE: "wrong",
    errno.EMSGSIZE: "wrong",
}
"""Status by errno of connect, send and receive; any other errno is an "error"."""


class Expired(Exception):  # noqa: N818  a signal to the generator
    """The exchange timed out."""


class InFlight:
    """One probe in progress, and its results so far."""

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
        "rounds",
        "sock",
        "sources",
        "status",
        "steps",
        "throughput",
    )

    def __init__(self, probe: Probe) -> None:
        self.probe = probe
        self.address = probe.address
        self.steps: Steps
        self.sock: socket.socket | None = None
        self.mask = 0
        """The events that epoll watches; 0 before the socket is registered."""
        self.deadline = 0.0
        self.rounds = 1
        """Rounds of datagrams started; each has the whole timeout."""
        self.began = 0.0
        """``perf_counter`` when the first packet was sent; 0 before."""
        self.phase = "start"
        """The current phase; a failure's detail starts with it."""
        self.status: ProbeStatus = "ok"
        self.detail = ""
        self.sources: dict[str, None] = {}
        self.backends: dict[str, None] = {}
        self.answer: str | None = None
        self.latency = -1.0
        self.throughput: float | None = None

    def answered(self) -> None:
        """Record the latency of the first answer."""
        if self.latency < 0:
            self.latency = perf_counter() - self.began

    def record_answer(self, endpoint: str, client: str | None) -> None:
        """Record the endpoint that answered and, unless None, the client that it saw."""
        self.answered()
        if client is not None:
            self.sources[client.rpartition(":")[0]] = None
        self.backends[endpoint] = None

    def outcome(self) -> Outcome:
        """The outcome so far."""
        latency = self.latency
        if latency < 0:
            latency = perf_counter() - self.began if self.began else 0.0
        first, *others = self.sources or (None,)
        return Outcome(
            self.probe.key,
            self.status,
            self.detail,
            first,
            tuple(self.backends),
            self.answer,
            latency * 1000,
            tuple(source for source in others if source is not None),
            self.throughput,
        )


def describe_failure(error: Exception, phase: str, timeout: float) -> tuple[ProbeStatus, str]:
    """The status and detail for an exception."""
    match error:
        case Expired():
            return "timeout", f"{phase}: no reply in {timeout:g} s"
        case CannotProbeError():
            return "error", str(error)
        case WireError():
            return "wrong", f"{phase}: {error}"
        case OSError(errno=int(number)):
            happened = os.strerror(number).lower()
            if number == errno.EPERM:
                happened = "dropped by a packet filter on the way out"
            return _STATUS.get(number, "error"), f"{phase}: {happened}"
    return "error", f"{phase}: {type(error).__name__}: {error}"


Asking = Generator[int, None, bytes]
Fetching = Generator[int, None, protocol.Reply]
Open = Callable[[InFlight, int], socket.socket]
"""Starts an exchange: opens a new socket of the given type in the source's namespace."""

_IP_MTU_DISCOVER, _IP_RECVERR = 10, 11
_PMTUDISC_PROBE, _PMTUDISC_OMIT = 3, 5
"""ip(7). PROBE sets DF like DO, but ignores the path MTU that the kernel caches for ten minutes, so
a repaired path passes at once. OMIT fragments without DF like DONT, but still receives the ICMP
error for the previous datagram."""
_EXTENDED_ERROR = struct.Struct("=IBBBBII")
"""sock_extended_err; for EMSGSIZE the sixth field is the MTU."""
_ERROR_SPACE = 512
_CHUNK: Final = 65_536
_SENDS = 8
"""Sends on a stream before checking for an answer."""
RESET_ON_CLOSE = struct.pack("ii", 1, 0)
"""SO_LINGER with timeout 0: closing the socket drops queued data and resets the connection."""


def exchange_steps(flight: InFlight, open_: Open, resolver: dns.ResolverFile | None) -> Steps:
    """The generator for a probe; ``resolver`` is the source's and needed only for a name."""
    probe = flight.probe
    if probe.name is not None:
        assert resolver is not None
        return _resolve(flight, open_, probe.name, resolver)
    if probe.dialect == "health":
        return _exchange_health(flight, open_)
    if probe.dialect == "throughput":
        return _try_again(flight, open_, _stream)
    if probe.dialect == "tls":
        return _try_again(flight, open_, _do_handshake)
    return _try_again(flight, open_, _exchange_http if probe.protocol == "tcp" else _echo)


def _try_again(flight: InFlight, open_: Open, exchange: Callable[[InFlight, Open], Steps]) -> Steps:
    probe = flight.probe
    for number in range(probe.tries):
        try:
            yield from exchange(flight, open_)
        except (OSError, protocol.WireError, Expired):
            if number:
                flight.phase = f"try {number + 1} of {probe.tries}, {flight.phase}"
            raise
        if flight.status != "ok":
            return


def _exchange_http(flight: InFlight, open_: Open) -> Steps:
    talk = _WEB[flight.probe.dialect](flight.probe)
    reply = yield from _fetch(flight, open_, talk)
    if reply.status != 200:  # noqa: PLR2004  HTTP's OK
        raise protocol.WireError(f"status {reply.status} from '{reply.endpoint}'")
    if talk.body:
        protocol.check_body(talk.body, reply.body)
    flight.record_answer(reply.endpoint, reply.client)


def _exchange_health(flight: InFlight, open_: Open) -> Steps:
    """A health check's answer is a number of backends and names no endpoint."""
    reply = yield from _fetch(flight, open_, health_web(flight.address, flight.probe.port))
    flight.answered()
    flight.answer = health_backends(reply)


def _do_handshake(flight: InFlight, open_: Open) -> Steps:
    """A TLS handshake: the certificate identifies the endpoint; the client seen is unknown."""
    from lab.providers.netns.dialects import Handshake  # noqa: PLC0415  few probes need it

    handshake = Handshake()
    sock = open_(flight, socket.SOCK_STREAM)
    yield from _connect_and_send(flight, sock, handshake.hello)
    received = 0
    certificate = None
    while certificate is None:
        data = yield from _receive(sock, received)
        received += len(data)
        certificate, answer = handshake.read(data)
        if answer:
            sock.send(answer)  # short, and everything sent before it has been answered
    flight.record_answer(certificate, None)


def _stream(flight: InFlight, open_: Open) -> Steps:
    """Send as fast as possible until the receiver answers with the throughput."""
    sock = open_(flight, socket.SOCK_STREAM)
    yield from _connect_and_send(
        flight, sock, protocol.stream_request(flight.address, flight.probe.port)
    )
    flight.phase = "stream"
    received = bytearray()
    while (reply := protocol.read_reply(received)) is None:
        yield EPOLLIN | EPOLLOUT
        flight.answered()
        with suppress(BlockingIOError):
            received += sock.recv(_CHUNK) or _raise_ended(len(received))
        with suppress(BlockingIOError):
            for _ in range(_SENDS):
                sock.send(FILLING)
    flight.throughput = protocol.read_throughput(reply)
    flight.record_answer(reply.endpoint, reply.client)
    # drop the data that is still queued
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)


def _raise_ended(before: int) -> NoReturn:
    raise protocol.WireError(f"the connection ended after {before} bytes")


def _fetch(flight: InFlight, open_: Open, talk: WebTalk) -> Fetching:
    sock = open_(flight, socket.SOCK_STREAM)
    yield from _connect_and_send(flight, sock, talk.request)
    received = bytearray()
    reply = None
    while reply is None:
        if received:
            flight.phase = f"answer, after {len(received)} bytes"
        received += yield from _receive(sock, len(received))
        reply = talk.read(received)
    return reply


def _receive(sock: socket.socket, before: int) -> Asking:
    """Receive the next part of a stream, after ``before`` bytes."""
    data = yield from _receive_any(sock)
    return data or _raise_ended(before)


def _receive_any(sock: socket.socket) -> Asking:
    """Receive a datagram or a part of a stream; empty at the end of the stream."""
    data = None
    while data is None:
        yield EPOLLIN
        with suppress(BlockingIOError):
            data = sock.recv(_CHUNK)
    return data


def _connect_and_send(flight: InFlight, sock: socket.socket, request: bytes) -> Steps:
    """Connect and send at once: between namespaces the handshake has often finished by then."""
    _connect(flight, sock)
    try:
        sent = sock.send(request)
    except BlockingIOError:
        # An ICMP error for the first packet can arrive before connect returns; SO_ERROR has it.
        refused = _socket_error(sock)
        if refused:
            raise refused from None
        yield EPOLLOUT
        sent = sock.send(request)
    while sent < len(request):
        flight.phase = f"send, after {sent} of {len(request)} bytes"
        yield EPOLLOUT
        sent += sock.send(request[sent:])
    flight.phase = "answer"


def _socket_error(sock: socket.socket) -> OSError | None:
    code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    return OSError(code, os.strerror(code)) if code else None


def _connect(flight: InFlight, sock: socket.socket) -> None:
    flight.phase = "connect"
    flight.began = flight.began or perf_counter()
    code = sock.connect_ex((flight.address, flight.probe.port))
    if code not in (0, errno.EINPROGRESS):
        raise OSError(code, os.strerror(code))


def _open_datagrams(flight: InFlight, open_: Open) -> socket.socket:
    """A UDP socket that receives every ICMP error, "no route" included."""
    sock = open_(flight, socket.SOCK_DGRAM)
    sock.setsockopt(socket.IPPROTO_IP, _IP_RECVERR, 1)
    _connect(flight, sock)
    flight.phase = "send"
    return sock


def _echo(flight: InFlight, open_: Open) -> Steps:
    """Send one small datagram, or the large two together, and wait for all of them."""
    talk = _DATAGRAMS[flight.probe.dialect](flight.probe)
    sock = _open_datagrams(flight, open_)
    small = flight.probe.size == "small"
    for place, sent in enumerate(talk.rounds):
        flight.rounds = place + 1
        _send_all(sock, sent)
        flight.phase = "answer"
        try:
            while any(datagram.status is None for datagram in sent):
                yield EPOLLIN
                _hear(flight, sock, talk, sent)
        except Expired:
            if small or place + 1 < len(talk.rounds):
                raise
    if not small:
        _conclude(flight, talk.rounds[-1])


def _send_all(sock: socket.socket, sent: Sequence[Datagram]) -> None:
    for datagram in sent:
        mode = _PMTUDISC_OMIT if datagram.fragments else _PMTUDISC_PROBE
        sock.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, mode)
        try:
            sock.send(datagram.data)
        except PermissionError as error:
            # A filter at the source dropped it; if it rejected it, SO_ERROR has the reason.
            raise _socket_error(sock) or error from None
        except OSError as error:
            if error.errno != errno.EMSGSIZE:
                raise
            longest = _longest_of(
                sent
            )  # the error is for the one with DF, whichever was being sent
            _too_big(sock, longest)
            if datagram is not longest:
                sock.send(datagram.data)


def _longest_of(sent: Sequence[Datagram]) -> Datagram:
    """The longest datagram with DF: the only one that can exceed a path's MTU."""
    return max(
        (datagram for datagram in sent if not datagram.fragments),
        key=lambda datagram: len(datagram.data),
    )


def _too_big(sock: socket.socket, datagram: Datagram) -> None:
    # Drain the socket's error queue; otherwise it would keep waking epoll.
    ancillary = sock.recvmsg(1, _ERROR_SPACE, socket.MSG_ERRQUEUE)[1]
    mtu = _EXTENDED_ERROR.unpack_from(ancillary[0][2])[5]
    datagram.status, datagram.detail = "wrong", f"too long, the path's MTU is {mtu}"


def _hear(
    flight: InFlight, sock: socket.socket, talk: DatagramTalk, sent: Sequence[Datagram]
) -> None:
    try:
        reply = sock.recv(_CHUNK)
    except BlockingIOError:
        return
    except OSError as error:
        if error.errno != errno.EMSGSIZE or flight.probe.size == "small":
            raise
        _too_big(sock, _longest_of(sent))
        return
    answer = talk.hear(reply)
    flight.answered()
    if answer is not None:
        flight.record_answer(*answer)


def _conclude(flight: InFlight, datagrams: Sequence[Datagram]) -> None:
    """Set the status of the first failed datagram, and a detail that covers all of them."""
    for datagram in datagrams:
        if datagram.status is None:
            datagram.status, datagram.detail = "timeout", "no reply in time"
    failed = [datagram for datagram in datagrams if datagram.status != "ok"]
    if failed and failed[0].status is not None:
        flight.status = failed[0].status
        flight.detail = "; ".join(
            f"{datagram.title}: {datagram.detail or 'echoed'}"
            if datagram.title
            else datagram.detail
            for datagram in datagrams
            if datagram.title or datagram.detail
        )


def _resolve(flight: InFlight, open_: Open, name: str, resolver: dns.ResolverFile) -> Steps:
    """Ask for each candidate in turn; the first address wins."""
    ask = _ask_stream if flight.probe.protocol == "tcp" else _ask_datagram
    flight.address = resolver.server or flight.probe.address
    candidates = dns.candidates(name, resolver)
    for candidate in candidates:
        number = random.getrandbits(16)
        try:
            reply = yield from ask(flight, open_, dns.make_question(candidate, number))
            flight.answer = dns.read_answer(reply, candidate, number)
        except (OSError, protocol.WireError, Expired):
            flight.phase = f"asking {flight.address} for '{candidate}', {flight.phase}"
            raise
        if flight.answer is not None:
            break
    else:
        flight.status = "no-such-name"
        flight.detail = "no address for " + ", ".join(f"'{candidate}'" for candidate in candidates)
    flight.latency = perf_counter() - flight.began


def _ask_datagram(flight: InFlight, open_: Open, wire: bytes) -> Asking:
    sock = _open_datagrams(flight, open_)
    sock.send(wire)
    flight.phase = "answer"
    return (yield from _receive_any(sock))


def _ask_stream(flight: InFlight, open_: Open, wire: bytes) -> Asking:
    sock = open_(flight, socket.SOCK_STREAM)
    yield from _connect_and_send(flight, sock, protocol.frame(wire))
    received = bytearray()
    message = None
    while message is None:
        received += yield from _receive(sock, len(received))
        message = protocol.unframe(received)
    return message


_WEB: Mapping[Dialect, Callable[[Probe], WebTalk]] = {"lab": lab_web, "netexec": netexec_web}
_DATAGRAMS: Mapping[Dialect, Callable[[Probe], DatagramTalk]] = {
    "lab": LabDatagrams,
    "netexec": NetexecDatagrams,
}
