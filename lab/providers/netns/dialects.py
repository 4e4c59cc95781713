"""The requests of probes and how their answers are read. No sockets.

Four dialects: the lab's own responder, ``netexec`` of Kubernetes' agnhost image, kube-proxy's
health check of a Service, and a TLS handshake that asks for the server's certificate.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
from functools import cache
from typing import TYPE_CHECKING, Final, Protocol

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
"""Bytes of payload: more than the header, and small enough for any path."""
FILLING: Final = random.Random(4_096).randbytes(protocol.DATAGRAM_LIMIT + LARGE_TCP_BYTES)  # noqa: S311  a fixed pattern without repetition

Answer = tuple[str, str]
"""The name of the endpoint, and the client (address and port) that it saw."""


class WebTalk(Protocol):
    """One exchange over one TCP connection."""

    request: bytes
    body: bytes
    """The bytes that must come back; empty if nothing is echoed."""

    def read(self, received: bytes | bytearray) -> protocol.Reply | None:
        """The whole answer; None while it is incomplete. WireError if it never can be one."""


class Datagram:
    """One datagram of an exchange, and what became of it."""

    __slots__ = ("data", "detail", "fragments", "status", "title")

    def __init__(self, title: str, data: bytes, *, fragments: bool = False) -> None:
        self.title = title
        self.data = data
        self.fragments = fragments
        """True if it is sent without DF."""
        self.status: ProbeStatus | None = None
        """None while neither an answer nor a failure has come."""
        self.detail = ""


class DatagramTalk(Protocol):
    """One exchange over one UDP socket."""

    rounds: tuple[tuple[Datagram, ...], ...]
    """A round is sent when all of the one before is answered."""

    def hear(self, reply: bytes) -> Answer | None:
        """Take a reply and note what it answers; who answered, once that is known.

        WireError if it answers nothing, or where a small one is damaged.
        """


class LabWeb:
    """HTTP as :mod:`lab.providers.netns.protocol` has it."""

    def __init__(self, probe: Probe) -> None:
        self.body = b""
        if probe.size == "large":
            self.body = b"%016x" % _low(probe.key) + FILLING[: LARGE_TCP_BYTES - 16]
            self.request = protocol.echo_request(probe.address, probe.port, self.body)
        else:
            self.request = protocol.get_request(probe.address, probe.port)

    def read(self, received: bytes | bytearray) -> protocol.Reply | None:
        """Read the one answer."""
        return protocol.read_reply(received)


class LabDatagrams:
    """Echo as :mod:`lab.providers.netns.protocol` has it: one datagram, or one and the large two.

    The first is waited for before the others are sent: of two first packets at once, a Service
    may give each to another backend, and a load balancer that takes fragments as they come
    (OVN's in user space) can give the first packet of a connection alone to a backend.
    """

    def __init__(self, probe: Probe) -> None:
        self._small = probe.size == "small"
        nonce = random.getrandbits(63)
        large = () if self._small else tuple(_large(nonce + 1, probe.mtu))
        made = (_small(nonce), *large)
        self.rounds: tuple[tuple[Datagram, ...], ...] = (made[:1], large) if large else (made,)
        self._by_nonce = {nonce + place: one for place, one in enumerate(made)}

    def hear(self, reply: bytes) -> Answer | None:
        """Take a reply; every one says who answered."""
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
    """Payload bytes of a datagram as long as the path's MTU, and of one twice as long.

    Raises
    ------
    CannotProbeError
        If no datagram with its header is that long.

    """
    whole = mtu - protocol.IP_UDP_BYTES
    if not protocol.QUESTION_BYTES <= whole <= protocol.DATAGRAM_LIMIT:
        raise CannotProbeError(f"no datagram fits an MTU of {mtu} bytes")
    return whole, min(2 * mtu - protocol.IP_UDP_BYTES, protocol.DATAGRAM_LIMIT)


def titles(whole: int, fragmented: int) -> tuple[str, str]:
    """Names for the two, by the length of their packets."""
    return (
        f"{whole + protocol.IP_UDP_BYTES} bytes with DF",
        f"{fragmented + protocol.IP_UDP_BYTES} bytes in fragments",
    )


def _small(nonce: int) -> Datagram:
    filling = FILLING[: _SMALL_DATAGRAM - protocol.QUESTION_BYTES]
    return Datagram("", protocol.datagram(nonce, filling, fragments=False))


def _large(nonce: int, mtu: int) -> list[Datagram]:
    sizes = whole_and_fragmented(mtu)
    return [
        Datagram(
            title,
            protocol.datagram(
                nonce + place, FILLING[: size - protocol.QUESTION_BYTES], fragments=bool(place)
            ),
            fragments=bool(place),
        )
        for place, (title, size) in enumerate(zip(titles(*sizes), sizes, strict=True))
    ]


def _low(key: int) -> int:
    return key & 0xFFFF_FFFF_FFFF_FFFF


BUFFER_BYTES = 2_048
"""The longest datagram that netexec reads."""

_TEXT = FILLING.hex().encode()
"""Nothing that a form, lower case or stripping would change."""
_CLIENT = re.compile(rb"\d+\.\d+\.\d+\.\d+:\d+")
_ECHO = b"echo "
_OK = 200


def netexec_echo(number: int) -> bytes:
    """A datagram whose answer is the number."""
    return _ECHO + b"%d" % number


def netexec_number(answer: bytes) -> int | None:
    """The number that came back; None if the answer is to another datagram."""
    return int(answer) if answer.isdigit() else None


class NetexecWeb:
    """On one connection: the echo of a large probe, who answers, and whom it sees."""

    def __init__(self, probe: Probe) -> None:
        self.body = b""
        host = b"Host: %s:%d\r\n" % (probe.address.encode(), probe.port)
        self.request = b"GET /hostname HTTP/1.1\r\n" + host + b"\r\n"
        self.request += b"GET /clientip HTTP/1.1\r\n" + host + b"Connection: close\r\n\r\n"
        if probe.size == "large":
            self.body = _TEXT[:LARGE_TCP_BYTES]
            form = b"msg=" + self.body
            head = b"POST /echo HTTP/1.1\r\n" + host
            head += b"Content-Type: application/x-www-form-urlencoded\r\n"
            self.request = head + b"Content-Length: %d\r\n\r\n" % len(form) + form + self.request

    def read(self, received: bytes | bytearray) -> Reply | None:
        """Read two answers, or three, as one."""
        answers = read_answers(bytes(received), 3 if self.body else 2)
        if answers is None:
            return None
        *echo, (_, _, endpoint), (_, _, client) = answers
        status = next((one[0] for one in answers if one[0] != _OK), _OK)
        return Reply(status, _word(endpoint), _word(client), echo[0][2] if echo else b"")


class NetexecDatagrams:
    """On one socket: who answers, and then whom it sees, with the two echoes of a large probe.

    The first is waited for before the others are sent: of two first packets at once, a Service
    may give each to another backend, and the kernel then loses one.
    """

    def __init__(self, probe: Probe) -> None:
        self._asked = Datagram("", b"hostname")
        self._seen = Datagram("", b"clientip")
        self._echoes = _echoes(probe.mtu) if probe.size == "large" else {}
        self.rounds: tuple[tuple[Datagram, ...], ...] = (
            (self._asked,),
            (self._seen, *self._echoes.values()),
        )
        self._endpoint = ""

    def hear(self, reply: bytes) -> Answer | None:
        """Take a reply: an echo, an address with its port, or else a name."""
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


def _echoes(mtu: int) -> dict[bytes, Datagram]:
    """The two echoes by what must come back; one alone where two would be of one length."""
    whole, fragmented = (min(size, BUFFER_BYTES) for size in whole_and_fragmented(mtu))
    nonce = random.getrandbits(62)
    found: dict[bytes, Datagram] = {}
    sizes = (whole, fragmented) if fragmented + IP_UDP_BYTES > mtu else (whole,)
    for place, size in enumerate(sizes):
        text = (b"%016x" % (nonce + place) + _TEXT)[: size - len(_ECHO)]
        title = titles(whole, fragmented)[place]
        found[text] = Datagram(title, _ECHO + text, fragments=bool(place))
    return found


def _check(datagram: Datagram, expected: bytes, reply: bytes) -> None:
    if reply == expected:
        datagram.status = "ok"
        return
    datagram.status = "wrong"
    if len(reply) != len(expected):
        datagram.detail = f"{len(reply)} bytes came back of {len(expected)}"
    else:
        at = next(place for place, byte in enumerate(expected) if reply[place] != byte)
        datagram.detail = f"damaged from byte {at}"


def _word(text: bytes) -> str:
    """A name or an address, whatever else it might hold left out."""
    return text.decode("latin-1").strip().lower()[:253]


_UNAVAILABLE = 503


class HealthWeb:
    """One question, as a load balancer asks it."""

    def __init__(self, address: str, port: int) -> None:
        self.body = b""
        head = "GET /healthz HTTP/1.1\r\nHost: {}:{}\r\nConnection: close\r\n\r\n"
        self.request = head.format(address, port).encode()

    def read(self, received: bytes | bytearray) -> Reply | None:
        """The whole answer; None while it is incomplete."""
        answers = read_answers(bytes(received), 1)
        if answers is None:
            return None
        status, _, body = answers[0]
        return Reply(status, "", "", body)


def health_backends(reply: Reply) -> str:
    """Read the number of local backends.

    Raises
    ------
    WireError
        If it does not, or its status says otherwise.

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
    """The fingerprint of a certificate (DER): ``sha256:`` and 64 hexadecimal digits."""
    return f"{FINGERPRINT}{hashlib.sha256(certificate).hexdigest()}"


class Handshake:
    """One handshake. It verifies nothing: whose the certificate is, the caller looks up."""

    def __init__(self) -> None:
        import ssl  # noqa: PLC0415  few probes need it

        self._from, self._to = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = _context().wrap_bio(self._from, self._to)
        self.hello = self.read(b"")[1]
        """The client's first message."""

    def read(self, received: bytes) -> tuple[str | None, bytes]:
        """Take what came next: the certificate's fingerprint at the end, and what to send now.

        Raises
        ------
        WireError
            If it never can become a handshake.

        """
        import ssl  # noqa: PLC0415  few probes need it

        self._from.write(received)
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return None, self._to.read()
        except ssl.SSLError as error:
            raise WireError(f"TLS handshake failed: {error.reason or error}") from None
        # only anonymous cipher suites, which no context of Python's offers, have none
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
