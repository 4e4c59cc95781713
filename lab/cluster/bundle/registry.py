"""A registry of a bundle's images: the pull half of the OCI distribution protocol, read-only.

An image answers to its path (``pause:3.10.2``; a mirror's ``ns=registry.k8s.io`` says which
registry is meant) and to its full name below this registry
(``lab:5000/registry.k8s.io/pause:3.10.2``).
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any

from lab._errors import PreflightError
from lab.cluster.bundle.answering import Handler
from lab.cluster.bundle.contents import Contents
from lab.cluster.bundle.manifest import Manifest
from lab.cluster.bundle.store import Store

_POLL_SECONDS = 0.1


class Registry(ThreadingHTTPServer):
    """The server; reads, and changes nothing."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, contents: Contents, address: str, port: int) -> None:
        """Listen; nothing is answered before ``serve_forever``.

        Raises
        ------
        PreflightError
            When the address is not this machine's, or the port is taken.

        """
        self.contents = contents
        try:
            super().__init__((address, port), Handler)
        except (OSError, UnicodeError) as error:  # the latter of a name that is no host's
            raise PreflightError(
                f"serving the bundle's images at {address}:{port}",
                (getattr(error, "strerror", "") or str(error)).lower(),
                "give another address or port",
            ) from error

    def server_bind(self) -> None:
        """Bind, without asking the resolver for this machine's name as HTTPServer does."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away, or that stalls, is no defect of ours."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)

    @property
    def address(self) -> str:
        """Host and port."""
        host, port = self.server_address[:2]
        return f"{host!s}:{port}"


def listening(store: Store, manifest: Manifest, address: str, port: int) -> Registry:
    """A registry of a bundle's images that listens, for ``serve_forever`` and closing."""
    return Registry(Contents(store, manifest), address, port)


@contextmanager
def serving(store: Store, manifest: Manifest, address: str, port: int = 0) -> Iterator[Registry]:
    """Serve a bundle's images while the block runs.

    Parameters
    ----------
    address
        Where to listen: an address of this machine that guests reach.
    port
        0 for any that is free.

    """
    registry = listening(store, manifest, address, port)
    thread = threading.Thread(
        target=registry.serve_forever, kwargs={"poll_interval": _POLL_SECONDS}, daemon=True
    )
    thread.start()
    try:
        yield registry
    finally:
        registry.shutdown()
        thread.join()
        registry.server_close()
