"""A socket with scripted results, and a probe driven over it."""

import errno
import socket
from typing import Any

from lab.providers.netns import exchange, protocol
from lab.providers.netns.exchange import Expired, InFlight, describe_failure
from lab.providers.provider import Outcome, Probe

WHO = (b"pod", b"10.0.0.1:4242")


class ScriptedSocket:
    """Answers every call from a script: bytes, a number, or an exception."""

    def __init__(self, **script: list[Any]) -> None:
        self._script = script
        self.sent: list[bytes] = []

    def _next(self, call: str, usual: Any) -> Any:
        value = (self._script.get(call) or [usual]).pop(0)
        if isinstance(value, Exception):
            raise value
        return value

    def connect_ex(self, _address: object) -> int:
        code: int = self._next("connect_ex", errno.EINPROGRESS)
        return code

    def send(self, data: bytes) -> int:
        taken: int = self._next("send", len(data))
        self.sent.append(data[:taken])
        return taken

    def recv(self, _size: int) -> bytes:
        data = self._next("recv", BlockingIOError())
        if data is DAMAGED:
            whole = echo(self.sent[-1])
            return whole[:-1] + bytes([whole[-1] ^ 1])
        return echo(self.sent[-1]) if data is ECHO else bytes(data)

    def getsockopt(self, *_: int) -> int:
        code: int = self._next("getsockopt", 0)
        return code

    def setsockopt(self, *_: object) -> None:
        pass


ECHO, DAMAGED = object(), object()


def echo(data: bytes) -> bytes:
    answer = protocol.echo_datagram(data, *WHO)
    assert answer is not None
    return answer[0]


def fly(sock: ScriptedSocket, *, events: int = 20, **facts: Any) -> tuple[Outcome, list[int]]:
    """Drive a probe to its end as the loop does; return its waits. It expires after ``events``."""
    usual = {"key": 1, "source": "a", "protocol": "tcp", "size": "small", "address": "10.0.0.2"}
    flight = InFlight(Probe(**(usual | {"port": 8080, "mtu": 1500} | facts)))

    def open_(_flight: InFlight, _kind: int) -> socket.socket:
        return sock  # type: ignore[return-value]  # it quacks

    flight.steps = exchange.exchange_steps(flight, open_, None)
    waited: list[int] = []
    try:
        while len(waited) < events:
            waited.append(next(flight.steps))
        flight.steps.throw(Expired())
    except StopIteration:
        pass
    except (OSError, protocol.WireError, Expired) as error:
        flight.status, flight.detail = describe_failure(error, flight.phase, 1.0)
    return flight.outcome(), waited
