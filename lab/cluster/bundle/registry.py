"""A registry of a bundle's images: the pull half of the OCI distribution protocol, read-only.

An image answers to its path (``pause:3.10.2``; a mirror's ``ns=registry.k8s.io`` says which
registry is meant) and to its full name below this registry
(``lab:5000/registry.k8s.io/pause:3.10.2``).
"""

from __future__ import annotations

import json
import re
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import TCPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from lab._errors import PreflightError
from lab.cluster.bundle import oci
from lab.cluster.bundle.manifest import Blob, ContainerImage, Manifest
from lab.cluster.bundle.store import Store

_ASKED = re.compile(r"/v2/(?P<path>.+)/(?P<kind>manifests|blobs|tags)/(?P<what>[^/]+)")
_RANGE = re.compile(r"bytes=(\d*)-(\d*)")
_SHA256 = "sha256:"
_STALL_SECONDS = 60.0
"""Without a request for so long a client's connection is closed."""
_POLL_SECONDS = 0.1
_OCTETS = "application/octet-stream"


@dataclass(frozen=True, slots=True)
class Served:
    """One document or blob: content or a file, never both."""

    digest: str
    """``sha256:`` and hex."""
    media_type: str
    size: int
    content: bytes | None
    path: Path | None


class Contents:
    """What a registry has, decided once from the bundle. Files are opened when asked for."""

    def __init__(self, store: Store, manifest: Manifest) -> None:
        """Read the images' manifests."""
        self._blobs: dict[str, Served] = {}
        self._manifests: dict[str, Served] = {}
        self._tags: dict[str, Served] = {}
        by_name: dict[str, list[ContainerImage]] = {}
        for image in manifest.images:
            by_name.setdefault(image.name, []).append(image)
        for name, images in by_name.items():
            found = [self._image(store, manifest, image) for image in images]
            self._tags[name] = found[0] if len(found) == 1 else self._index(images, found)

    def manifest(self, path: str, reference: str, registry: str | None) -> Served | None:
        """A manifest by tag or digest; None where there is none, or it could be either of two."""
        if reference.startswith(_SHA256):
            return self._manifests.get(reference)
        named = [full for full in self._tags if self._answers(full, path, registry)]
        found = {
            id(one): one
            for full in named
            if full.endswith(f":{reference}")
            for one in (self._tags[full],)
        }
        return next(iter(found.values())) if len(found) == 1 else None

    def tags(self, path: str, registry: str | None) -> list[str]:
        """The tags of a repository."""
        named = (full for full in self._tags if self._answers(full, path, registry))
        return sorted({full.rpartition(":")[2] for full in named})

    def blob(self, digest: str) -> Served | None:
        """A blob, or a manifest as one."""
        return self._blobs.get(digest) or self._manifests.get(digest)

    def _image(self, store: Store, manifest: Manifest, image: ContainerImage) -> Served:
        for blob in (image.config, *(layer.blob for layer in image.layers)):
            self._blobs[_SHA256 + blob.sha256] = _file(store, manifest, blob, _OCTETS)
        path = store.blob(manifest, image.manifest)
        kind = oci.media_type(oci.document(path.read_bytes(), f"manifest '{path}'"))
        served = _file(store, manifest, image.manifest, kind)
        return self._manifests.setdefault(served.digest, served)

    def _index(self, images: list[ContainerImage], served: list[Served]) -> Served:
        content = oci.index(images, [one.media_type for one in served], {})
        digest = f"{_SHA256}{sha256(content).hexdigest()}"
        found = Served(digest, oci.INDEX, len(content), content, None)
        return self._manifests.setdefault(digest, found)

    @staticmethod
    def _answers(full: str, path: str, registry: str | None) -> bool:
        repository = full.rpartition(":")[0]
        host, _, own = repository.partition("/")
        if path == repository:
            return True
        return path == own and registry in {None, host}


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
            super().__init__((address, port), _Handler)
        except OSError as error:
            raise PreflightError(
                f"serving the bundle's images at {address}:{port}",
                (error.strerror or str(error)).lower(),
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


class _Handler(BaseHTTPRequestHandler):
    server: Registry
    protocol_version = "HTTP/1.1"
    timeout = _STALL_SECONDS

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def log_message(self, *_arguments: object) -> None:
        """Say nothing."""

    def _answer(self, *, with_body: bool) -> None:
        split = urlsplit(self.path)
        path = unquote(split.path)
        if path.rstrip("/") == "/v2":
            self._document({}, with_body)
            return
        asked = _ASKED.fullmatch(path)
        if asked is None:
            self._refuse(HTTPStatus.NOT_FOUND, "NAME_UNKNOWN", f"nothing is at {path}", with_body)
            return
        registry = parse_qs(split.query).get("ns", [None])[0]
        contents = self.server.contents
        if asked["kind"] == "tags":
            tags = contents.tags(asked["path"], registry)
            self._document({"name": asked["path"], "tags": tags}, with_body)
            return
        manifests = asked["kind"] == "manifests"
        found = (
            contents.manifest(asked["path"], asked["what"], registry)
            if manifests
            else contents.blob(asked["what"])
        )
        if found is None:
            code = "MANIFEST_UNKNOWN" if manifests else "BLOB_UNKNOWN"
            what = f"the bundle has no {asked['path']} {asked['what']}"
            self._refuse(HTTPStatus.NOT_FOUND, code, what, with_body)
            return
        self._serve(found, with_body)

    def _serve(self, found: Served, with_body: bool) -> None:
        start, end = 0, found.size
        wanted = self.headers.get("Range")
        if wanted:
            part = _part(wanted, found.size)
            if part is None:
                self.send_response(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE)
                self.send_header("Content-Range", f"bytes */{found.size}")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            start, end = part
        self.send_response(HTTPStatus.PARTIAL_CONTENT if wanted else HTTPStatus.OK)
        if wanted:
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{found.size}")
        self.send_header("Content-Type", found.media_type)
        self.send_header("Content-Length", str(end - start))
        self.send_header("Docker-Content-Digest", found.digest)
        self.send_header("Accept-Ranges", "bytes")
        self.end_headers()
        if with_body:
            self._send(found, start, end)

    def _send(self, found: Served, start: int, end: int) -> None:
        if found.content is not None:
            self.wfile.write(found.content[start:end])
            return
        assert found.path is not None, "content or a file"
        with found.path.open("rb") as file:
            self.wfile.flush()
            self.connection.settimeout(_STALL_SECONDS)
            sent = self.connection.sendfile(file, start, end - start) if end > start else 0
        if sent != end - start:  # the client must not take it for whole
            self.close_connection = True

    def _document(self, found: Mapping[str, object], with_body: bool) -> None:
        self._small(HTTPStatus.OK, found, with_body)

    def _refuse(self, status: HTTPStatus, code: str, what: str, with_body: bool) -> None:
        self._small(status, {"errors": [{"code": code, "message": what}]}, with_body)

    def _small(self, status: HTTPStatus, found: Mapping[str, object], with_body: bool) -> None:
        content = json.dumps(found).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Docker-Distribution-Api-Version", "registry/2.0")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if with_body:
            self.wfile.write(content)


def _part(wanted: str, size: int) -> tuple[int, int] | None:
    """Begin and end of one range of bytes; None where it is not one that can be served."""
    found = _RANGE.fullmatch(wanted.strip())
    if found is None or not (found[1] or found[2]):
        return None
    if not found[1]:
        return max(0, size - int(found[2])), size
    start = int(found[1])
    end = min(int(found[2]) + 1, size) if found[2] else size
    return (start, end) if start < end else None


def _file(store: Store, manifest: Manifest, blob: Blob, media_type: str) -> Served:
    path = store.blob(manifest, blob)
    return Served(f"{_SHA256}{blob.sha256}", media_type, blob.size, None, path)
