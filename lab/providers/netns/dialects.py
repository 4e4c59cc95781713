"""Build probe requests and parse their answers. No sockets.

Four dialects: the lab's own responder, ``netexec`` of Kubernetes' agnhost image, kube-proxy's
health check of a Service, and a TLS handshake that obtains the server's certificate.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections.abc import Callable
from functools import cache, partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from lab.providers.netns import protocol
from lab.providers.netns.protocol import (
    IP_UDP_BYTES,
    CannotProbeError,
    Reply,
    WireError,
    read_answers,
)
from lab.providers.provider import LARGE_TCP_BYTES, Probe, ProbeStatus

if TYPE_CHECKING:
    import ssl

_SMALL_DATAGRAM = 64
"""Payload bytes: longer than the header, short enough for any path."""
FILLING: Final = random.Random(4_096).randbytes(protocol.DATAGRAM_LIMIT + LARGE_TCP_BYTES)  # noqa: S311  a fixed, non-repeating pattern

Answer = tuple[str, str]
"""The endpoint's name, and the client address and port that it saw."""


class WebTalk(NamedTuple):
    """One exchange over one TCP connection."""

    request: bytes
    read: Callable[[bytes | bytearray], Reply | None]
    """The whole answer; None while incomplete. WireError if it cannot become an answer."""
    body: bytes = b""
    """The bytes that must come back; empty if nothing is echoed."""


class Datagram:
    """One datagram of an exchange, with its result."""

    __slots__ = ("data", "detail", "fragments", "status", "title")

    def __init__(self, title: str, data: bytes, *, fragments: bool = False) -> None:
        self.title = title
        self.data = data
        self.fragments = fragments
        """True to send it without DF."""
        self.status: ProbeStatus | None = None
        """None until there is an answer or a failure."""
        self.detail = ""


class DatagramTalk(Protocol):
    """One exchange over one UDP socket."""

    rounds: tuple[tuple[Datagram, ...], ...]
    """Each round is sent once the previous one is fully answered."""

    def hear(self, reply: bytes) -> Answer | None:
        """Match a reply to its datagram; return the answer once the endpoint is known.

        WireError if the reply matches no datagram, or answers a small one and is damaged.
        """


def lab_web(probe: Probe) -> WebTalk:
    """HTTP as defined in :mod:`lab.providers.netns.protocol`."""
    if probe.size == "small":
        return WebTalk(protocol.get_request(probe.address, probe.port), protocol.read_reply)
    body = b"%016x" % (probe.key & 0xFFFF_FFFF_FFFF_FFFF) + FILLING[: LARGE_TCP_BYTES - 16]
    return WebTalk(
        protocol.echo_request(probe.address, probe.port, body), protocol.read_reply, body
    )


class LabDatagrams:
    """Echo as defined in :mod:`lab.providers.netns.protocol`: one small, perhaps two large ones.

    The small datagram must be answered before the others are sent: a Service may send two
    simultaneous first packets to different backends, and a load balancer that does not reassemble
    fragments (OVN's in user space) may send only the first packet of a connection to a backend.
    """

    def __init__(self, probe: Probe) -> None:
        self._small = probe.size == "small"
        nonce = random.getrandbits(63)
        large = () if self._small else tuple(_make_large(nonce + 1, probe.mtu))
        made = (_make_small(nonce), *large)
        self.rounds: tuple[tuple[Datagram, ...], ...] = (made[:1], large) if large else (made,)
        self._by_nonce = {nonce + number: datagram for number, datagram in enumerate(made)}

    def hear(self, reply: bytes) -> Answer | None:
        """Match a reply to its datagram; every reply names its endpoint."""
        nonce = protocol.nonce_of(reply)
        datagram = self._by_nonce.get(-1 if nonce is None else nonce)
        if datagram is None:
            raise protocol.WireError(f"{len(reply)} bytes that match no datagram of this probe")
        try:
            answer = protocol.read_echo(datagram.data, reply)
        except protocol.WireError as error:
            if self._small:
                raise
            datagram.status, datagram.detail = "wrong", str(error)
            return None
        datagram.status = "ok"
        return answer


def whole_and_fragmented(mtu: int) -> tuple[int, int]:
    """Payload bytes of a datagram that fills the path MTU, and of one twice as long.

    Raises CannotProbeError if a datagram with the lab's header cannot have that length.
    """
    whole = mtu - protocol.IP_UDP_BYTES
    if not protocol.QUESTION_BYTES <= whole <= protocol.DATAGRAM_LIMIT:
        raise CannotProbeError(f"no datagram fits an MTU of {mtu} bytes")
    return whole, min(2 * mtu - protocol.IP_UDP_BYTES, protocol.DATAGRAM_LIMIT)


def titles(whole: int, fragmented: int) -> tuple[str, str]:
    """Titles of the two datagrams, with the length of their packets."""
    return (
        f"{whole + protocol.IP_UDP_BYTES} bytes with DF",
        f"{fragmented + protocol.IP_UDP_BYTES} bytes in fragments",
    )


def _make_small(nonce: int) -> Datagram:
    filling = FILLING[: _SMALL_DATAGRAM - protocol.QUESTION_BYTES]
    return Datagram("", protocol.datagram(nonce, filling, fragments=False))


def _make_large(nonce: int, mtu: int) -> list[Datagram]:
    sizes = whole_and_fragmented(mtu)
    return [
        Datagram(
            title,
            protocol.datagram(
                nonce + number,
                FILLING[: size - protocol.QUESTION_BYTES],
                fragments=bool(number),
            ),
            fragments=bool(number),
        )
        for number, (title, size) in enumerate(zip(titles(*sizes), sizes, strict=True))
    ]


BUFFER_BYTES = 2_048
"""The longest datagram that netexec reads, in bytes."""

_TEXT = FILLING.hex().encode()
"""Unchanged by form encoding, lower-casing and stripping."""
_CLIENT = re.compile(rb"\d+\.\d+\.\d+\.\d+:\d+")
_ECHO = b"echo "
_OK = 200


def netexec_echo(number: int) -> bytes:
    """A datagram that netexec answers with ``number``."""
    return _ECHO + b"%d" % number


def netexec_number(answer: bytes) -> int | None:
    """The number in an answer; None if it answers another datagram."""
    return int(answer) if answer.isdigit() else None


def netexec_web(probe: Probe) -> WebTalk:
    """One connection: the echo of a large probe, the endpoint's name, the client it sees."""
    host = b"Host: %s:%d\r\n" % (probe.address.encode(), probe.port)
    request = b"GET /hostname HTTP/1.1\r\n" + host + b"\r\n"
    request += b"GET /clientip HTTP/1.1\r\n" + host + b"Connection: close\r\n\r\n"
    if probe.size == "small":
        return WebTalk(request, partial(_netexec_reply, 2))
    body = _TEXT[:LARGE_TCP_BYTES]
    form = b"msg=" + body
    head = b"POST /echo HTTP/1.1\r\n" + host
    head += b"Content-Type: application/x-www-form-urlencoded\r\n"
    request = head + b"Content-Length: %d\r\n\r\n" % len(form) + form + request
    return WebTalk(request, partial(_netexec_reply, 3), body)


def _netexec_reply(wanted: int, received: bytes | bytearray) -> Reply | None:
    """Combine the two or three answers into one reply."""
    answers = read_answers(bytes(received), wanted)
    if answers is None:
        return None
    *echo, (_, _, endpoint), (_, _, client) = answers
    status = next((answer[0] for answer in answers if answer[0] != _OK), _OK)
    return Reply(status, _word(endpoint), _word(client), echo[0][2] if echo else b"")


class NetexecDatagrams:
    """One socket: the endpoint's name, then the client it sees and the echoes of a large probe.

    The first datagram must be answered before the others are sent: a Service may send two
    simultaneous first packets to different backends, and the kernel then loses one.
    """

    def __init__(self, probe: Probe) -> None:
        self._asked = Datagram("", b"hostname")
        self._seen = Datagram("", b"clientip")
        self._echoes = _make_echoes(probe.mtu) if probe.size == "large" else {}
        self.rounds: tuple[tuple[Datagram, ...], ...] = (
            (self._asked,),
            (self._seen, *self._echoes.values()),
        )
        self._endpoint = ""

    def hear(self, reply: bytes) -> Answer | None:
        """Match a reply: an echo, a client address with port, or else the endpoint's name."""
        for expected, datagram in self._echoes.items():
            if reply[:_NONCE] == expected[:_NONCE]:
                _check(datagram, expected, reply)
                return None
        if _CLIENT.fullmatch(reply):
            self._seen.status = "ok"
            return self._endpoint, _word(reply)
        if self._asked.status is not None:
            raise WireError(f"{len(reply)} bytes that match no datagram of this probe")
        self._endpoint = _word(reply)
        self._asked.status = "ok"
        return None


_NONCE = 16


def _make_echoes(mtu: int) -> dict[bytes, Datagram]:
    """The echo datagrams by expected reply; only one if both would have the same length."""
    whole, fragmented = (min(size, BUFFER_BYTES) for size in whole_and_fragmented(mtu))
    nonce = random.getrandbits(62)
    echoes: dict[bytes, Datagram] = {}
    sizes = (whole, fragmented) if fragmented + IP_UDP_BYTES > mtu else (whole,)
    for number, size in enumerate(sizes):
        text = (b"%016x" % (nonce + number) + _TEXT)[: size - len(_ECHO)]
        title = titles(whole, fragmented)[number]
        echoes[text] = Datagram(title, _ECHO + text, fragments=bool(number))
    return echoes


def _check(datagram: Datagram, expected: bytes, reply: bytes) -> None:
    if reply == expected:
        datagram.status = "ok"
        return
    datagram.status = "wrong"
    if len(reply) != len(expected):
        datagram.detail = f"{len(reply)} bytes came back instead of {len(expected)}"
    else:
        at = next(number for number, byte in enumerate(expected) if reply[number] != byte)
        datagram.detail = f"damaged from byte {at}"


def _word(text: bytes) -> str:
    """A name or an address, stripped, in lower case, at most 253 characters."""
    return text.decode("latin-1").strip().lower()[:253]


_UNAVAILABLE = 503


def health_web(address: str, port: int) -> WebTalk:
    """One health check, as a load balancer sends it."""
    request = f"GET /healthz HTTP/1.1\r\nHost: {address}:{port}\r\nConnection: close\r\n\r\n"
    return WebTalk(request.encode(), _health_reply)


def _health_reply(received: bytes | bytearray) -> Reply | None:
    answers = read_answers(bytes(received), 1)
    return Reply(answers[0][0], "", "", answers[0][2]) if answers else None


def health_backends(reply: Reply) -> str:
    """Read the number of local backends.

    Raises WireError if the reply has no number, or its status contradicts it.
    """
    try:
        number = int(json.loads(reply.body)["localEndpoints"])
    except (ValueError, KeyError, TypeError):
        raise WireError(f"not a health check: {reply.body[:40]!r}") from None
    if reply.status != (_OK if number else _UNAVAILABLE):
        raise WireError(f"status {reply.status} with {number} local backends")
    return str(number)


FINGERPRINT = "sha256:"


def fingerprint(certificate: bytes) -> str:
    """The fingerprint of a DER certificate: ``sha256:`` and 64 hexadecimal digits."""
    return f"{FINGERPRINT}{hashlib.sha256(certificate).hexdigest()}"


class Handshake:
    """One TLS handshake. It does not verify the certificate; the caller identifies its owner."""

    def __init__(self) -> None:
        import ssl  # noqa: PLC0415  few probes need it

        self._from, self._to = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = _context().wrap_bio(self._from, self._to)
        self.hello = self.read(b"")[1]
        """The client's first message."""

    def read(self, received: bytes) -> tuple[str | None, bytes]:
        """Process received bytes: the certificate's fingerprint once done, and the bytes to send.

        Raises WireError if the handshake fails.
        """
        import ssl  # noqa: PLC0415  few probes need it

        self._from.write(received)
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return None, self._to.read()
        except ssl.SSLError as error:
            raise WireError(f"TLS handshake failed: {error.reason or error}") from None
        # only anonymous cipher suites lack a certificate, and Python's contexts offer none
        certificate = self._tls.getpeercert(binary_form=True)
        assert certificate is not None
        return fingerprint(certificate), self._to.read()


@cache
def _context() -> ssl.SSLContext:
    import ssl  # noqa: PLC0415  few probes need it

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
