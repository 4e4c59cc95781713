"""An HTTP proxy that makes tunnels (``CONNECT``), all of them to one server."""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class ConnectProxy(ThreadingHTTPServer):
    """``tunnels``: the server that each request named, and the user's credentials.

    ``status``: what it answers; other than 200 it makes no tunnel.
    """

    daemon_threads = True

    def __init__(self, server: tuple[str, int]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.server = server
        self.status = 200
        self.tunnels: list[tuple[str, str | None]] = []

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: ConnectProxy
    protocol_version = "HTTP/1.1"

    def do_CONNECT(self) -> None:
        credentials = self.headers.get("Proxy-Authorization")
        self.server.tunnels.append((self.path, credentials))
        self.close_connection = True
        if self.server.status != 200:
            self.send_error(self.server.status)
            return
        with socket.create_connection(self.server.server) as far:
            self.wfile.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            ends = {self.connection: far, far: self.connection}
            while True:
                for near in select.select([*ends], (), ())[0]:
                    try:
                        content = near.recv(65_536)
                    except OSError:
                        content = b""
                    if not content:
                        return
                    ends[near].sendall(content)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def connect_proxy(server: tuple[str, int]) -> Iterator[ConnectProxy]:
    """A proxy that serves for the block."""
    proxy = ConnectProxy(server)
    thread = threading.Thread(target=proxy.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.shutdown()
        proxy.server_close()
        thread.join()
