"""Ports of this machine that lead to what a guest can reach."""

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

PIECE = 3_000_000


@contextmanager
def echoing() -> Iterator[int]:
    """A port that says back what it hears, once it has heard all of it."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    near = server.accept()[0]
                except OSError:
                    return
                with near:
                    heard = bytearray()
                    while piece := near.recv(65_536):
                        heard += piece
                    near.sendall(heard)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join(5)


def asked(port: int, content: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), 20) as near:
        near.sendall(content)
        near.shutdown(socket.SHUT_WR)
        heard = bytearray()
        while piece := near.recv(65_536):
            heard += piece
    return bytes(heard)


def test_bytes_go_there_and_come_back_whole(shell):
    content = os.urandom(PIECE)
    with echoing() as port, shell.forward(("127.0.0.1", port), 20) as here:
        assert asked(here, content) == content
        assert asked(here, b"again") == b"again"


def test_where_nobody_listens_the_connection_is_closed(shell):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        nobody = taken.getsockname()[1]
    with shell.forward(("127.0.0.1", nobody), 20) as here:
        assert asked(here, b"") == b""


def test_the_port_is_gone_after_the_block_and_open_connections_end(shell):
    with echoing() as port:
        with shell.forward(("127.0.0.1", port), 20) as here:
            left = socket.create_connection(("127.0.0.1", here), 20)
            left.sendall(b"unfinished")
        with left, suppress(ConnectionResetError):  # so it ends where not all was carried
            while left.recv(64):  # what came back before the end
                pass
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", here), 5)
