"""What is answered to each kind of request: HTTP, UDP echo, DNS over both."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple  # dataclasses costs 10 ms at the responder's start

from lab.providers.netns import dnswire, protocol

EchoDatagram = Callable[[bytes, bytes], tuple[bytes, bool] | None]
"""From a datagram and its sender (address:port) to the answer, and whether it may fragment."""


class Answer(NamedTuple):
    """What to send on a connection, and what to do after."""

    data: bytes
    then: str
    """``close``, ``read`` on, or ``drain`` what else the client sends and then close."""


Converse = Callable[[bytearray, bytes, bool], Answer | None]
"""From all that came, the client, and whether it was answered before; None to read on."""


def http(endpoint: bytes) -> Converse:
    """HTTP as :mod:`lab.providers.netns.protocol` has it."""

    def converse(data: bytearray, client: bytes, greeted: bool) -> Answer | None:
        try:
            request = protocol.read_request(data)
        except protocol.RequestError as error:
            return Answer(protocol.refusal(error, endpoint, client), "drain")
        if request is None:
            return None
        end = request.body_at + request.length
        if len(data) < end:
            waits = request.waits and not greeted
            return Answer(protocol.CONTINUE, "read") if waits else None
        body = bytes(data[request.body_at : end])
        return Answer(protocol.respond(request, body, endpoint, client), "close")

    return converse


def echo(endpoint: bytes) -> EchoDatagram:
    """UDP echo as :mod:`lab.providers.netns.protocol` has it."""
    return lambda data, client: protocol.echo_datagram(data, endpoint, client)


def dns_stream(records: Mapping[str, str]) -> Converse:
    """DNS over TCP, one question a connection."""

    def converse(data: bytearray, _client: bytes, _greeted: bool) -> Answer | None:
        if (wire := protocol.unframe(data)) is None:
            return None
        reply = dnswire.answer(wire, records)
        return Answer(b"" if reply is None else protocol.frame(reply), "close")

    return converse


def dns_datagram(records: Mapping[str, str]) -> EchoDatagram:
    """DNS over UDP."""

    def reply(data: bytes, _client: bytes) -> tuple[bytes, bool] | None:
        wire = dnswire.answer(data, records)
        return None if wire is None else (wire, True)

    return reply
