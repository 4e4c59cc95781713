"""What a probe says to the lab's own responder, and how it takes the answers. No sockets.

Two forms, one for each transport, which :mod:`lab.providers.netns.exchange` carries; the other
dialect is :mod:`lab.providers.netns.netexec`.
"""

from __future__ import annotations

import random
from typing import Final, Protocol

from lab.providers.netns import protocol
from lab.providers.netns.flight import CannotProbeError
from lab.providers.provider import LARGE_TCP_BYTES, Probe, ProbeStatus

_SMALL_DATAGRAM = 64
"""Bytes of payload: more than the header, and small enough for any path."""
FILLING: Final = random.Random(4_096).randbytes(protocol.DATAGRAM_LIMIT + LARGE_TCP_BYTES)  # noqa: S311  a fixed pattern without repetition

Answer = tuple[str, str]
"""Who answered, and the client (address and port) that was seen."""


class WebTalk(Protocol):
    """One exchange over one TCP connection."""

    request: bytes
    body: bytes
    """What must come back, byte for byte; empty where nothing is echoed."""

    def read(self, received: bytes | bytearray) -> protocol.Reply | None:
        """The whole answer; None while it is incomplete. WireError if it never can be one."""


class Datagram:
    """One datagram of an exchange, and what became of it."""

    __slots__ = ("data", "detail", "fragments", "status", "title")

    def __init__(self, title: str, data: bytes, *, fragments: bool = False) -> None:
        self.title = title
        self.data = data
        self.fragments = fragments
        """Whether it goes without DF; all others have it."""
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
            raise protocol.WireError(f"{len(reply)} bytes that answer no datagram of this probe")
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
    """What the two are called, by the length of their packets."""
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
