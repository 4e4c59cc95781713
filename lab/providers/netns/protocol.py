"""The protocol between prober and responder: HTTP/1.1 over TCP, one-line headers over UDP.

Pure functions on bytes, for both directions. The HTTP works with curl::

    GET /                 {"endpoint": "worker1-p1", "client": "10.244.1.2:40112"}
    GET /readyz           the same; an API server's readiness check
    POST /echo + body     the same body
    POST /throughput      {"throughput": 9.4e+08}: bits per second of an endless body

All answers carry ``X-Endpoint`` and ``X-Client``. A datagram starts with ``HLQ1 NONCE MODE``
and a line feed, its answer with ``HLR1 NONCE ENDPOINT CLIENT`` and a line feed; the rest of
the answer repeats the datagram's bytes from that offset on, so that both have the same length.
"""

from __future__ import annotations

import json
import math
import struct
from typing import NamedTuple  # importing dataclasses takes 10 ms

HEAD_LIMIT = 8_192
"""Most bytes of a request line with its headers; the usual limit of web servers."""
BODY_LIMIT = 1 << 20
"""Most bytes of a body: 1 MiB, sixteen times a large probe."""
WARM_UP_SECONDS, MEASURED_SECONDS = 0.5, 1.0
"""Durations of a stream's uncounted and counted parts."""
IP_UDP_BYTES = 28
"""IPv4 header without options (20) and UDP header (8)."""
DATAGRAM_LIMIT = 65_507
"""Bytes of payload in the largest UDP datagram over IPv4."""

_END = b"\r\n\r\n"
_LENGTH = struct.Struct("!H")
_QUESTION, _ANSWER = b"HLQ1 ", b"HLR1 "
_NO_NONCE = b"0" * 16
_OK = 200
_FRAGMENTS = ord("F")
_MODE_AT = 22
QUESTION_BYTES = 24
"""Length of a datagram's one-line header."""
_REASONS = {
    200: b"OK",
    400: b"Bad Request",
    404: b"Not Found",
    405: b"Method Not Allowed",
    411: b"Length Required",
    413: b"Content Too Large",
    503: b"Service Unavailable",
}
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class WireError(ValueError):
    """An unexpected answer; the text is a clause without a full stop."""


class CannotProbeError(Exception):
    """The probe cannot be sent at all; the text is a clause without a full stop."""


class RequestError(ValueError):
    """A request that cannot be served; ``status`` is the HTTP status to answer."""

    def __init__(self, status: int, why: str) -> None:
        self.status = status
        super().__init__(why)


class HttpRequest(NamedTuple):
    """One HTTP request whose head has arrived."""

    method: bytes
    target: bytes
    body_at: int
    length: int
    waits: bool
    """True if the client waits for ``100 Continue`` before it sends the body."""


HttpAnswer = tuple[int, dict[str, str], bytes]
"""Status, headers by lower-case name, and body."""


class Reply(NamedTuple):
    """One whole HTTP answer."""

    status: int
    endpoint: str
    client: str
    """The client's address and port, as the endpoint saw them."""
    body: bytes


def get_request(address: str, port: int) -> bytes:
    """The request of a small TCP probe."""
    return b"GET / HTTP/1.1\r\nHost: %s:%d\r\nConnection: close\r\n\r\n" % (address.encode(), port)


def echo_request(address: str, port: int, body: bytes) -> bytes:
    """The request of a large TCP probe."""
    head = b"POST /echo HTTP/1.1\r\nHost: %s:%d\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
    return head % (address.encode(), port, len(body)) + body


def stream_request(address: str, port: int) -> bytes:
    """The request that starts a stream; its bytes follow until the answer arrives."""
    head = b"POST /throughput HTTP/1.1\r\nHost: %s:%d\r\nConnection: close\r\n\r\n"
    return head % (address.encode(), port)


def read_request(data: bytes | bytearray) -> HttpRequest | None:
    """Read the head of a request; None while it is incomplete.

    Raises RequestError if it cannot become a request that is served.
    """
    end = data.find(_END)
    if end < 0 and len(data) <= HEAD_LIMIT:
        if b"\n" in data:
            _request_line(bytes(data).partition(b"\n")[0].rstrip(b"\r"))
        return None
    if end < 0 or end > HEAD_LIMIT:
        raise RequestError(400, f"more than {HEAD_LIMIT} bytes of headers")
    line, *headers = bytes(data[:end]).split(b"\r\n")
    method, target = _request_line(line)
    length, waits = _read_framing(headers)
    return HttpRequest(method, target, end + len(_END), length, waits)


def _request_line(line: bytes) -> tuple[bytes, bytes]:
    words = line.split(b" ")
    if len(words) != 3 or not words[0].isalpha() or not words[2].startswith(b"HTTP/1."):  # noqa: PLR2004  method, target, version
        raise RequestError(400, "not an HTTP/1 request line")
    return words[0], words[1]


def _read_framing(headers: list[bytes]) -> tuple[int, bool]:
    lengths: set[bytes] = set()
    waits = False
    for header in headers:
        name, colon, value = header.partition(b":")
        if not colon or not name or name != name.strip():
            raise RequestError(400, "a header without a name")
        match name.lower():
            case b"content-length":
                lengths.add(value.strip())
            case b"transfer-encoding":
                raise RequestError(411, "a body without Content-Length")
            case b"expect":
                waits = value.strip().lower() == b"100-continue"
    if not lengths:
        return 0, waits
    text = lengths.pop()
    if lengths or not text.isdigit():
        raise RequestError(400, "no single Content-Length")
    if len(text) > len(str(BODY_LIMIT)) or int(text) > BODY_LIMIT:
        raise RequestError(413, f"a body of more than {BODY_LIMIT} bytes")
    return int(text), waits


def respond(request: HttpRequest, body: bytes, endpoint: bytes, client: bytes) -> bytes:
    """The answer to a complete request."""
    match request.method, request.target:
        case b"GET", b"/" | b"/readyz":
            text = b'{"endpoint": "%s", "client": "%s"}\n' % (endpoint, client)
            return _reply(200, b"application/json", text, endpoint, client)
        case b"POST", b"/echo":
            return _reply(200, b"application/octet-stream", body, endpoint, client)
    known = request.target in {b"/", b"/echo", b"/readyz", b"/throughput"}
    served = "GET /, POST /echo and POST /throughput are served"
    return refusal(RequestError(405 if known else 404, served), endpoint, client)


def asks_for_stream(request: HttpRequest) -> bool:
    """True if a stream follows, to be measured and discarded."""
    return (request.method, request.target) == (b"POST", b"/throughput")


class StreamMeter:
    """Measures a stream's throughput over one second, after a warm-up of half a second.

    During the warm-up TCP adapts its rate and queues on the path fill.
    """

    def __init__(self) -> None:
        self._began: float | None = None
        self._from: float | None = None
        self._bytes = 0

    def add(self, count: int, now: float) -> float | None:
        """Count bytes received at ``now``; returns bits per second once known, else None."""
        if self._began is None:
            self._began = now
        if self._from is None:
            if now - self._began >= WARM_UP_SECONDS:
                self._from = now
            return None
        self._bytes += count
        seconds = now - self._from
        return 8 * self._bytes / seconds if seconds >= MEASURED_SECONDS else None


def stream_answer(throughput: float, endpoint: bytes, client: bytes) -> bytes:
    """The answer to a measured stream."""
    text = json.dumps({"throughput": throughput}).encode() + b"\n"
    return _reply(200, b"application/json", text, endpoint, client)


def read_throughput(reply: Reply) -> float:
    """Read the throughput from a receiver's answer, in bits per second.

    Raises WireError if the answer has none.
    """
    try:
        throughput = float(json.loads(reply.body)["throughput"])
    except (ValueError, KeyError, TypeError):
        throughput = -1.0
    if reply.status != _OK or not 0 <= throughput < math.inf:
        raise WireError(f"not the rate of a stream: {reply.body[:40]!r}")
    return throughput


def refusal(error: RequestError, endpoint: bytes, client: bytes) -> bytes:
    """The answer to a request that is not served."""
    text = json.dumps({"error": str(error)}).encode() + b"\n"
    return _reply(error.status, b"application/json", text, endpoint, client)


def _reply(status: int, kind: bytes, body: bytes, endpoint: bytes, client: bytes) -> bytes:
    head = (
        b"HTTP/1.1 %d %s\r\nX-Endpoint: %s\r\nX-Client: %s\r\nContent-Type: %s\r\n"
        b"Content-Length: %d\r\nConnection: close\r\n\r\n"
    )
    return head % (status, _REASONS[status], endpoint, client, kind, len(body)) + body


def read_answers(data: bytes, wanted: int) -> list[HttpAnswer] | None:
    """``wanted`` HTTP answers; None while they are incomplete.

    Raises WireError if ``data`` cannot become that many answers.
    """
    answers: list[HttpAnswer] = []
    while len(answers) < wanted:
        end = data.find(_END)
        if end < 0:
            if not data.startswith(b"HTTP/1.1 "[: len(data)]) or len(data) > HEAD_LIMIT:
                raise WireError(f"not an HTTP answer: {data[:40]!r}")
            return None
        status, fields = _head(data[:end])
        taken = _body(data[end + len(_END) :], fields)
        if taken is None:
            return None
        body, data = taken
        answers.append((status, fields, body))
        if status != _OK:  # netexec closes the connection without the other answers
            return answers + [(_OK, {}, b"")] * (wanted - len(answers))
    if data:
        raise WireError(f"{len(data)} bytes more than announced")
    return answers


def _head(head: bytes) -> tuple[int, dict[str, str]]:
    line, *headers = head.decode("latin-1").split("\r\n")
    fields = {
        name.lower(): value.strip()
        for name, colon, value in (header.partition(":") for header in headers)
        if colon
    }
    try:
        return int(line.split(" ", 2)[1]), fields
    except (ValueError, IndexError):
        raise WireError(f"not an HTTP answer: '{line}'") from None


def _body(data: bytes, fields: dict[str, str]) -> tuple[bytes, bytes] | None:
    if fields.get("transfer-encoding", "").lower() == "chunked":
        return _chunks(data)
    try:
        length = int(fields["content-length"])
    except (KeyError, ValueError):
        raise WireError("an HTTP answer of unknown length") from None
    return (data[:length], data[length:]) if len(data) >= length else None


def _chunks(data: bytes) -> tuple[bytes, bytes] | None:
    body = bytearray()
    length = -1
    while length:
        line, feed, rest = data.partition(b"\r\n")
        if not feed:
            return None
        try:
            length = int(line.partition(b";")[0], 16)
        except ValueError:
            raise WireError(f"a damaged chunk: {line[:40]!r}") from None
        if len(rest) < length + 2:
            return None
        body += rest[:length]
        data = rest[length + 2 :]
    return bytes(body), data


def read_reply(data: bytes | bytearray) -> Reply | None:
    """Read a whole answer; None while it is incomplete.

    Raises WireError if it is not a responder's answer.
    """
    answers = read_answers(bytes(data), 1)
    if answers is None:
        return None
    status, fields, body = answers[0]
    try:
        return Reply(status, fields["x-endpoint"], fields["x-client"], body)
    except KeyError:
        raise WireError(f"not an endpoint of the lab: HTTP status {status}") from None


def datagram(nonce: int, filling: bytes, *, fragments: bool) -> bytes:
    """A datagram to echo; ``fragments`` requests an answer without the DF bit."""
    return b"%s%016x %c\n" % (_QUESTION, nonce, b"F" if fragments else b"D") + filling


def echo_datagram(data: bytes, endpoint: bytes, client: bytes) -> tuple[bytes, bool] | None:
    """The answer to a datagram, and whether it may be fragmented; None if ``data`` is an answer.

    Foreign datagrams (``nc -u``) are echoed too, in fragments if necessary.
    """
    if data.startswith(_ANSWER):
        return None
    ours = data.startswith(_QUESTION) and len(data) >= QUESTION_BYTES
    nonce = data[len(_QUESTION) : _MODE_AT - 1] if ours else _NO_NONCE
    head = b"%s%s %s %s\n" % (_ANSWER, nonce, endpoint, client)
    return head + data[len(head) :], not ours or data[_MODE_AT] == _FRAGMENTS


def nonce_of(reply: bytes) -> int | None:
    """The nonce of the datagram that ``reply`` answers; None if it is not a responder's answer."""
    if not reply.startswith(_ANSWER):
        return None
    try:
        return int(reply[len(_ANSWER) : len(_ANSWER) + len(_NO_NONCE)], 16)
    except ValueError:
        return None


def read_echo(sent: bytes, reply: bytes) -> tuple[str, str]:
    """Endpoint and client (address and port) of an answer with the right nonce.

    Raises WireError if the answer does not repeat the whole datagram, byte for byte.
    """
    head, feed, rest = reply.partition(b"\n")
    words = head.decode("latin-1").split(" ")
    if not feed or len(words) != 4:  # noqa: PLR2004  mark, nonce, endpoint, client
        raise WireError("a damaged answer")
    at = len(head) + 1
    if len(reply) != max(len(sent), at):
        raise WireError(f"{len(reply)} bytes came back instead of {len(sent)}")
    if rest != sent[at:]:
        raise WireError(f"damaged from byte {_first_difference(rest, sent[at:]) + at}")
    return words[2], words[3]


def _first_difference(content: bytes, other: bytes) -> int:
    pairs = zip(content, other, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(content), len(other)))


def check_body(sent: bytes, body: bytes) -> None:
    """Compare an echoed body with the body sent.

    Raises WireError if they differ; gives the offset of the first difference.
    """
    if body != sent:
        at = _first_difference(body, sent)
        raise WireError(f"echo of {len(body)} bytes for {len(sent)}, damaged from byte {at}")


def frame(wire: bytes) -> bytes:
    """A DNS message for TCP, prefixed with its length in two bytes."""
    return _LENGTH.pack(len(wire)) + wire


def unframe(data: bytes | bytearray) -> bytes | None:
    """The first DNS message in a TCP stream; None while incomplete."""
    if len(data) < _LENGTH.size:
        return None
    end = _LENGTH.size + _LENGTH.unpack_from(data)[0]
    return bytes(data[_LENGTH.size : end]) if len(data) >= end else None


def health_answer(service: str, local: int) -> bytes:
    """kube-proxy's answer to a health check of a Service with ``local`` backends on the node.

    Source: Kubernetes 1.36, pkg/proxy/healthcheck/service_health.go. The answer to any request is
    JSON with that number; the status is 200 if there are any backends, 503 if there are none.
    """
    status = 200 if local else 503
    document = {
        "service": {"namespace": "default", "name": service},
        "localEndpoints": local,
        "serviceProxyHealthy": True,
    }
    body = json.dumps(document, indent=4).encode()
    head = (
        b"HTTP/1.1 %d %s\r\nContent-Type: application/json\r\n"
        b"X-Load-Balancing-Endpoint-Weight: %d\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
    )
    return head % (status, _REASONS[status], local, len(body)) + body
