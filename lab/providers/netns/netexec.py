"""What a probe says to ``netexec`` of Kubernetes' agnhost image, and how it takes the answers.

No sockets. From its source (kubernetes 1.36, test/images/agnhost/netexec/netexec.go):

- HTTP: ``/hostname`` and ``/clientip`` are plain text, ``/echo`` gives the form field ``msg``
  back; requests of one connection are answered in their order.
- UDP: ``hostname``, ``clientip`` and ``echo TEXT``, all read into a buffer of 2,048 bytes, put
  into lower case and stripped. What is longer is cut off on Linux. On Windows reading it fails,
  and netexec **ends itself**, so no datagram of ours is longer, whatever the path's MTU. The
  answer to ``echo TEXT`` is five bytes shorter than the question.

The one in fragments is as long as that buffer, where the path's MTU is shorter; a path that
carries more than 2,076 bytes is asked with one of 2,076, and nothing goes in fragments.
"""

from __future__ import annotations

import random
import re

from lab.providers.netns.protocol import HEAD_LIMIT, IP_UDP_BYTES, Reply, WireError
from lab.providers.netns.talks import FILLING, Answer, Datagram, titles, whole_and_fragmented
from lab.providers.provider import LARGE_TCP_BYTES, Probe

BUFFER_BYTES = 2_048
"""The longest datagram that netexec reads."""

_END = b"\r\n\r\n"
_TEXT = FILLING.hex().encode()
"""Nothing that a form, lower case or stripping would change."""
_CLIENT = re.compile(rb"\d+\.\d+\.\d+\.\d+:\d+")
_ECHO = b"echo "
_OK = 200


def echoed(number: int) -> bytes:
    """A datagram whose answer is the number."""
    return _ECHO + b"%d" % number


def number_of(answer: bytes) -> int | None:
    """The number that came back; None if it is no answer to such a datagram."""
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
        *echo, (_, endpoint), (_, client) = answers
        status = next((status for status, _ in answers if status != _OK), _OK)
        return Reply(status, _word(endpoint), _word(client), echo[0][1] if echo else b"")


def read_answers(data: bytes, wanted: int) -> list[tuple[int, bytes]] | None:
    """Status and body of so many HTTP answers; None while they are incomplete.

    Raises
    ------
    WireError
        If they never can become that.

    """
    found: list[tuple[int, bytes]] = []
    while len(found) < wanted:
        end = data.find(_END)
        if end < 0:
            if not data.startswith(b"HTTP/1.1 "[: len(data)]) or len(data) > HEAD_LIMIT:
                raise WireError(f"no HTTP answer: {data[:40]!r}")
            return None
        status, fields = _head(data[:end])
        taken = _body(data[end + len(_END) :], fields)
        if taken is None:
            return None
        body, data = taken
        found.append((status, body))
        if status != _OK:  # netexec ends the connection, and the rest is never answered
            return found + [(_OK, b"")] * (wanted - len(found))
    return found


def _head(head: bytes) -> tuple[int, dict[str, str]]:
    line, *headers = head.decode("latin-1").split("\r\n")
    fields = {
        name.lower(): value.strip().lower()
        for name, colon, value in (header.partition(":") for header in headers)
        if colon
    }
    try:
        return int(line.split(" ", 2)[1]), fields
    except (ValueError, IndexError):
        raise WireError(f"no HTTP answer: '{line}'") from None


def _body(data: bytes, fields: dict[str, str]) -> tuple[bytes, bytes] | None:
    """The body, and what stands after it; None while it is incomplete."""
    if fields.get("transfer-encoding") == "chunked":
        return _chunks(data)
    try:
        length = int(fields["content-length"])
    except (KeyError, ValueError):
        raise WireError("an HTTP answer of unknown length") from None
    return (data[:length], data[length:]) if len(data) >= length else None


def _chunks(data: bytes) -> tuple[bytes, bytes] | None:
    body = bytearray()
    while True:
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
        if not length:
            return bytes(body), data


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
            raise WireError(f"{len(reply)} bytes that answer no datagram of this probe")
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
