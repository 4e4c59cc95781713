"""Answers of the web that end: no drop a second keeps a question beyond its time.

Python's own time-outs are for each piece that comes; a server, or what stands before it, that
sends one byte now and then would be waited for without end.
"""

from __future__ import annotations

import http.client
import io
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

_ends: ContextVar[float] = ContextVar("_ends", default=float("inf"))
"""When the answer that is waited for must be there, on the monotonic clock."""


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Give answers to the questions of the block so long, head and body together."""
    token = _ends.set(time.monotonic() + seconds)
    try:
        yield
    finally:
        _ends.reset(token)


class Answer(http.client.HTTPResponse):
    """An answer that is read until its time is over; TimeoutError then."""

    def __init__(self, sock: Any, *arguments: Any, **named: Any) -> None:
        super().__init__(sock, *arguments, **named)
        self._timed = _Timed(self.fp.detach(), sock, _ends.get())
        self.fp = io.BufferedReader(self._timed)

    def take_time(self) -> None:
        """Let the rest of it come as slowly as it likes, if only it comes."""
        self._timed.ends = float("inf")


class Http(urllib.request.HTTPHandler):
    """urllib's way over HTTP, with such answers."""

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        """As urllib calls it."""
        return self.do_open(_Http, req)


class Https(urllib.request.HTTPSHandler):
    """urllib's way over TLS, with such answers."""

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        """As urllib calls it."""
        return self.do_open(_Https, req)


class _Http(http.client.HTTPConnection):
    response_class = Answer


class _Https(http.client.HTTPSConnection):
    response_class = Answer


class _Timed(io.RawIOBase):
    """What comes on a connection, each piece in the time that is left."""

    def __init__(self, raw: io.RawIOBase, connection: Any, ends: float) -> None:
        super().__init__()
        self._raw: Any = raw
        self._connection = connection
        self.ends = ends

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int | None:
        left = self.ends - time.monotonic()
        if left <= 0:
            raise TimeoutError("the answer takes too long")
        usual = self._connection.gettimeout()
        self._connection.settimeout(min(left, float("inf") if usual is None else usual))
        try:
            return self._raw.readinto(buffer)  # type: ignore[no-any-return]
        finally:
            self._connection.settimeout(usual)

    def close(self) -> None:
        self._raw.close()
        super().close()
