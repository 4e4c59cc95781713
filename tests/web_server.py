"""A web server for tests, which supports ranges and scripted failures."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Web(ThreadingHTTPServer):
    """Serves ``files``; every request is recorded in ``asked`` as (path, Range header)."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[str, bytes] = {}
        self.asked: list[tuple[str, str | None]] = []
        self.headers: list[dict[str, str]] = []
        self.cuts: dict[str, list[int]] = {}
        """Path to the number of bytes after which its next answers break off."""
        self.stops: dict[str, threading.Event] = {}
        """Paths that are not answered; the event is set by a request."""
        self.knows_ranges = True
        self.leads: dict[str, str] = {}
        """Redirects: path to address."""
        self.busy: list[tuple[int, str | None]] = []
        """Answers of the next requests: status code and Retry-After."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Web
    protocol_version = "HTTP/1.0"

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        self.server.asked.append((self.path, wanted))
        self.server.headers.append(dict(self.headers))
        if self.server.busy:
            code, later = self.server.busy.pop(0)
            self._end(code, {"Retry-After": later} if later else {})
            return
        if self.path in self.server.leads:
            self._end(302, {"Location": self.server.leads[self.path]})
            return
        path = self.path.partition("?")[0]
        if path in self.server.stops:
            self.server.stops[path].set()
            return
        content = self.server.files.get(path)
        if content is None:
            self.send_error(404, "Not Found")
            return
        start = 0
        if wanted and self.server.knows_ranges:
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            if start >= len(content):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(content)}")
                self.end_headers()
                return
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        rest = content[start:]
        if self.server.cuts.get(path):
            rest = rest[: self.server.cuts[path].pop(0)]
        self.wfile.write(rest)

    def _end(self, code: int, headers: dict[str, str]) -> None:
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_arguments: object) -> None:
        """Say nothing."""


@contextmanager
def served(web: Web) -> Iterator[Web]:
    thread = threading.Thread(target=web.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield web
    finally:
        web.shutdown()
        thread.join()
        web.server_close()


@contextmanager
def rudely() -> Iterator[Callable[..., str]]:
    """Creates addresses where each connection gets these bytes, and then single bytes slowly."""
    over = threading.Event()
    opened: list[socket.socket] = []

    def serve(connection: socket.socket, answer: Callable[[bytes], bytes], drop: bytes) -> None:
        with suppress(OSError), connection:
            connection.sendall(answer(connection.recv(65_536)))
            while drop and not over.wait(0.05):
                connection.sendall(drop)

    def accept(listener: socket.socket, *conduct: Any) -> None:
        with suppress(OSError):
            while True:
                connection = listener.accept()[0]
                opened.append(connection)
                threading.Thread(target=serve, args=(connection, *conduct), daemon=True).start()

    def make(answer: Callable[[bytes], bytes], drop: bytes = b"") -> str:
        listener = socket.create_server(("127.0.0.1", 0))
        opened.append(listener)
        threading.Thread(target=accept, args=(listener, answer, drop), daemon=True).start()
        return f"http://127.0.0.1:{listener.getsockname()[1]}/disk"

    try:
        yield make
    finally:
        over.set()
        for one in opened:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
