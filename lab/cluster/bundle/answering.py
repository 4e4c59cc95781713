"""The answers of a registry: one connection's requests, read-only and with suspicion."""

from __future__ import annotations

import io
import json
import re
import time
from collections.abc import Mapping
from contextlib import ExitStack
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any, BinaryIO, Protocol
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from lab.cluster.bundle.contents import Contents, Served

_ASKED = re.compile(r"/v2/(?P<path>.+)/(?P<kind>manifests|blobs|tags)/(?P<what>[^/]+)")
_RANGE = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})")
STALL_SECONDS = 60.0
"""A request's head must have come in that time, and an answer must go on being taken."""


class Serving(Protocol):
    """The server, as far as answers go."""

    contents: Contents


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    server: Serving  # type: ignore[assignment]
    protocol_version = "HTTP/1.1"
    timeout = STALL_SECONDS

    def setup(self) -> None:
        """Read requests with patience that ends."""
        super().setup()
        self.rfile.close()
        self._head = _Head(self.connection)
        self.rfile = io.BufferedReader(self._head)

    def handle_one_request(self) -> None:
        """One request; its head must come in time, however many pieces it comes in."""
        self._head.begin(self.timeout)
        super().handle_one_request()

    def do_GET(self) -> None:
        """Answer with the content."""
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        """Answer without it."""
        self._answer(with_body=False)

    def log_message(self, *_arguments: object) -> None:
        """Say nothing."""

    def _answer(self, *, with_body: bool) -> None:
        if self.headers.get("Content-Length", "0") != "0" or self.headers.get("Transfer-Encoding"):
            self.close_connection = True  # what follows is no request
        split = _split(self.path)
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
            if tags:
                self._document({"name": asked["path"], "tags": tags}, with_body)
            else:
                what = f"the bundle has no {asked['path']}"
                self._refuse(HTTPStatus.NOT_FOUND, "NAME_UNKNOWN", what, with_body)
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
        with ExitStack() as opened:
            file = None
            if found.path is not None:
                try:
                    file = opened.enter_context(found.path.open("rb"))
                except OSError as error:
                    said = f"the bundle is damaged: {(error.strerror or str(error)).lower()}"
                    gone = HTTPStatus.INTERNAL_SERVER_ERROR
                    self._refuse(gone, "BLOB_UNKNOWN", said, with_body)
                    return
            self._serve(found, file, with_body)

    def _serve(self, found: Served, file: BinaryIO | None, with_body: bool) -> None:
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
            self._send(found, file, start, end)

    def _send(self, found: Served, file: BinaryIO | None, start: int, end: int) -> None:
        if found.content is not None:
            self.wfile.write(found.content[start:end])
            return
        assert file is not None, "content or a file"
        self.wfile.flush()
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


class _Head(io.RawIOBase):
    """What comes on a connection, until its time is over."""

    def __init__(self, connection: Any) -> None:
        super().__init__()
        self._connection = connection
        self._seconds = self._ends = 0.0

    def begin(self, seconds: float) -> None:
        """So long from now."""
        self._seconds, self._ends = seconds, time.monotonic() + seconds

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        """Raises TimeoutError when the time is over."""
        left = self._ends - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._connection.settimeout(left)
        try:
            return int(self._connection.recv_into(buffer))
        finally:
            self._connection.settimeout(self._seconds)


def _split(target: str) -> SplitResult:
    """The parts of what is asked for; one that is no address is a path that nothing is at."""
    try:
        return urlsplit(target)
    except ValueError:
        return SplitResult("", "", target, "", "")


def _part(wanted: str, size: int) -> tuple[int, int] | None:
    """Begin and end of one range of bytes; None where it is not one that can be served."""
    found = _RANGE.fullmatch(wanted.strip())
    if found is None or not (found[1] or found[2]):
        return None
    if not found[1]:
        start = max(0, size - int(found[2]))
        return (start, size) if start < size else None
    start = int(found[1])
    end = min(int(found[2]) + 1, size) if found[2] else size
    return (start, end) if start < end else None
