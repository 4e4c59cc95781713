"""What is answered to each kind of request: HTTP, UDP echo, DNS over both."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple  # dataclasses costs 10 ms at the responder's start

from lab.providers.netns import dnswire, health, protocol


class Later(NamedTuple):
    """An answer that somebody else gives: it is begun with what is to be done with it."""

    begin: Callable[[Callable[[bytes], None]], None]


EchoDatagram = Callable[[bytes, bytes], tuple[bytes, bool] | Later | None]
"""From a datagram and its sender (address:port) to the answer, and whether it may fragment."""


class ResponderAnswer(NamedTuple):
    """What to send on a connection, and what to do after."""

    data: bytes
    then: str
    """``close``, ``read`` on, or ``drain`` what else the client sends and then close."""


Converse = Callable[[bytearray, bytes, bool], ResponderAnswer | Later | None]
"""From all that came, the client, and whether it was answered before; None to read on. The answer
that comes later is sent as it is, and the connection closed."""


def http(endpoint: bytes) -> Converse:
    """HTTP as :mod:`lab.providers.netns.protocol` has it."""

    def converse(data: bytearray, client: bytes, greeted: bool) -> ResponderAnswer | None:
        try:
            request = protocol.read_request(data)
        except protocol.RequestError as error:
            return ResponderAnswer(protocol.refusal(error, endpoint, client), "drain")
        if request is None:
            return None
        end = request.body_at + request.length
        if len(data) < end:
            waits = request.waits and not greeted
            return ResponderAnswer(protocol.CONTINUE, "read") if waits else None
        body = bytes(data[request.body_at : end])
        return ResponderAnswer(protocol.respond(request, body, endpoint, client), "close")

    return converse


def health_check(service: str, local: int) -> Converse:
    """What kube-proxy says on a Service's health check port, whatever is asked there."""
    said = health.answer(service, local)

    def converse(data: bytearray, _client: bytes, _greeted: bool) -> ResponderAnswer | None:
        try:
            request = protocol.read_request(data)
        except protocol.RequestError:
            return ResponderAnswer(said, "drain")
        return None if request is None else ResponderAnswer(said, "close")

    return converse


def echo(endpoint: bytes) -> EchoDatagram:
    """UDP echo as :mod:`lab.providers.netns.protocol` has it."""
    return lambda data, client: protocol.echo_datagram(data, endpoint, client)


class Elsewhere(NamedTuple):
    """Where names are asked for that are not within the domain ``but``."""

    ask: Callable[[bytes, Callable[[bytes], None]], None]
    but: str
    """With its final dot."""

    def asked(self, wire: bytes) -> bool:
        """Whether the question is for the other server."""
        name = dnswire.asked_name(wire)
        return name is not None and not f".{name}".endswith(f".{self.but}")


def dns_stream(
    records: Mapping[str, Sequence[str]], elsewhere: Elsewhere | None = None
) -> Converse:
    """DNS over TCP, one question a connection."""

    def converse(data: bytearray, _client: bytes, _greeted: bool) -> ResponderAnswer | Later | None:
        if (wire := protocol.unframe(data)) is None:
            return None
        if elsewhere and elsewhere.asked(wire):
            ask, question = elsewhere.ask, wire
            return Later(lambda then: ask(question, lambda said: then(protocol.frame(said))))
        reply = dnswire.answer(wire, records)
        return ResponderAnswer(b"" if reply is None else protocol.frame(reply), "close")

    return converse


def dns_datagram(
    records: Mapping[str, Sequence[str]], elsewhere: Elsewhere | None = None
) -> EchoDatagram:
    """DNS over UDP."""

    def reply(data: bytes, _client: bytes) -> tuple[bytes, bool] | Later | None:
        if elsewhere and elsewhere.asked(data):
            ask = elsewhere.ask
            return Later(lambda then: ask(data, then))
        wire = dnswire.answer(data, records)
        return None if wire is None else (wire, True)

    return reply
