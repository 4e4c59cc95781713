"""The WinRM service: HTTPS, NTLM, and the shells behind it."""

from __future__ import annotations

import base64
import binascii
import http.server
import os
import select
import socket
import socketserver
import ssl
import struct
import tempfile
import threading
import xml.etree.ElementTree as ET
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import spnego
from spnego._ntlm_raw.crypto import ntowfv1
from spnego.channel_bindings import GssChannelBindings

from .certificates import digest
from .shells import Asking, Shells, SoapFaultError

_NTLM_LOCK = threading.Lock()


@dataclass
class Trouble:
    """A failure that happens once, at this action; '' for any action."""

    action: str
    kind: str
    """``drop``: closed without a reply; ``ragged``: also without TLS close_notify; ``reset``: the
    same by RST; ``part``: half a reply;
    ``status``: an HTTP status without XML; ``held``: the action waits for ``gate``; ``garbage``: a
    reply that is not XML."""
    code: int = 0
    after: bool = False
    """Whether the action is done nevertheless."""
    gate: threading.Event | None = None


@dataclass
class Service:
    """Shared state of the doubles of one guest, and records for tests."""

    user: str
    password: str
    shells: Shells
    max_envelope: int = 512_000
    """Bytes of a request's body (MaxEnvelopeSizekb); more is 413."""
    troubles: list[Trouble] = field(default_factory=list)
    wire: deque[bytes] = field(default_factory=lambda: deque(maxlen=200))
    """Bodies as received from the socket."""
    logins: list[str] = field(default_factory=list)
    """The authenticated user of each connection."""
    refused: int = 0
    """Number of refused passwords."""

    def trouble(self, action: str) -> Trouble | None:
        trouble = next(
            (trouble for trouble in self.troubles if trouble.action in ("", action)), None
        )
        if trouble is not None:
            self.troubles.remove(trouble)
        return trouble


class WsMan:
    """One listener of the service, that can be stopped and started again on its port.

    ``service``: what it serves. ``address``, ``port``: 0 for any free port, kept over restarts.
    ``certificate``, ``key``: PEM files.
    """

    def __init__(
        self, service: Service, address: str, port: int, certificate: Path, key: Path
    ) -> None:
        self.service, self.address, self.port = service, address, port
        self._pair = certificate, key
        self._server: _Server | None = None

    def start(self) -> None:
        self._server = _Server((self.address, self.port), self.service, *self._pair)
        self.port = self._server.server_address[1]
        target, name = self._server.serve_forever, "double-wsman"
        self._thread = threading.Thread(target=target, args=(0.02,), name=name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Close the port and every connection; the shells stay known."""
        if self._server is not None:
            self._server.shutdown()
            self._thread.join()
            self._server.cut()
            self._server.server_close()
            self._server = None

    def cut(self) -> None:
        """Close every connection, and go on listening."""
        if self._server is not None:
            self._server.cut()

    def connections(self) -> int:
        return len(self._server.live) if self._server else 0


class _Server(http.server.ThreadingHTTPServer):
    request_queue_size = 64

    def __init__(
        self, address: tuple[str, int], service: Service, certificate: Path, key: Path
    ) -> None:
        self.service = service
        own = b"tls-server-end-point:" + digest(certificate)
        self.bindings = GssChannelBindings(application_data=own)
        self.live: set[socket.socket] = set()
        super().__init__(address, _Handler)
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(certificate, key)
        self.socket = tls.wrap_socket(
            self.socket, server_side=True, do_handshake_on_connect=False
        )  # the thread of a connection does it

    def server_bind(self) -> None:
        socketserver.TCPServer.server_bind(self)  # HTTPServer's own method looks up the host name

    def finish_request(self, request: Any, client_address: Any) -> None:
        self.live.add(request)
        try:
            super().finish_request(request, client_address)
        finally:
            self.live.discard(request)

    def cut(self) -> None:
        for one in list(self.live):
            with suppress(OSError):
                socket.socket.shutdown(one, socket.SHUT_RDWR)

    def handle_error(self, *_: object) -> None:
        """Ignore errors: tests break connections on purpose."""


class _Handler(http.server.BaseHTTPRequestHandler):
    """One connection: NTLM authenticates a connection, not a request."""

    protocol_version = "HTTP/1.1"
    server_version = "Microsoft-HTTPAPI/2.0"
    sys_version = ""
    wbufsize = -1
    server: _Server
    _context: Any = None
    _user = ""

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        service = self.server.service
        if body:
            service.wire.append(body)
        if len(body) > service.max_envelope:
            self._reply(413)
        elif self.path != "/wsman":
            self._reply(404)
        elif self._let_in():
            self._serve(body)

    def _serve(self, body: bytes) -> None:
        try:
            asking = Asking(ET.fromstring(body))
            trouble = self.server.service.trouble(asking.action)
            if trouble is None:
                self._reply(200, self._verb(asking))
            else:
                self._suffer(trouble, asking)
        except SoapFaultError as error:
            self._reply(500, asking.fault(error).encode())
        except ConnectionError:
            self.close_connection = True
        except Exception:  # noqa: BLE001  a body that cannot be opened is a bad request
            self._reply(400)
            self.close_connection = True

    def _verb(self, asking: Asking) -> bytes:
        return self.server.service.shells.verb(asking, self._user, self._gone).encode()

    def _suffer(self, trouble: Trouble, asking: Asking) -> None:
        while trouble.gate and not trouble.gate.wait(0.02):
            if self._gone():
                raise ConnectionError("the client has gone")
        done = self._verb(asking) if trouble.after or trouble.gate else b""
        match trouble.kind:
            case "status":
                self._reply(trouble.code, ways=("Negotiate",) if trouble.code == 401 else ())
            case "garbage":
                self._reply(200, b"<no xml")
            case "held":
                self._reply(200, done)
            case "part":
                self._reply(200, b"<s:Envelope", missing=1000)
            case "drop" if isinstance(self.connection, ssl.SSLSocket):
                self.connection.settimeout(0)  # close_notify is sent, but not awaited
                with suppress(OSError):
                    self.connection.unwrap()
            case "reset":
                linger = struct.pack("ii", 1, 0)
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                os.close(self.connection.detach())
        if trouble.kind in {"part", "drop", "ragged", "reset"}:
            self.close_connection = True

    def _gone(self) -> bool:
        return bool(select.select([self.connection], [], [], 0)[0])

    def _let_in(self) -> bool:
        kind, _, given = self.headers.get("Authorization", "").partition(" ")
        if not given and self._user:
            return True
        if given and kind in {"Negotiate", "NTLM"}:
            return self._ntlm(kind, given)
        self._reply(401, ways=("Negotiate",))
        return False

    def _ntlm(self, kind: str, given: str) -> bool:
        service = self.server.service
        try:
            with _users(service):
                if self._context is None or self._context.complete:
                    bindings = self.server.bindings
                    self._context = spnego.server(protocol="ntlm", channel_bindings=bindings)
                reply = self._context.step(base64.b64decode(given, validate=True))
        except (binascii.Error, spnego.exceptions.SpnegoError):
            self._context = None
            service.refused += 1
            self._reply(401, ways=("Negotiate",))
            return False
        if reply is not None:
            self._reply(401, ways=(f"{kind} {base64.b64encode(reply).decode()}",))
            return False
        self._user = str(self._context.client_principal or service.user)
        service.logins.append("NTLM")
        return True

    def _reply(
        self, status: int, text: bytes = b"", *, ways: tuple[str, ...] = (), missing: int = 0
    ) -> None:
        self.send_response(status)
        if text:
            self.send_header("Content-Type", "application/soap+xml;charset=UTF-8")
        for way in ways:
            self.send_header("WWW-Authenticate", way)
        self.send_header("Content-Length", str(len(text) + missing))
        self.end_headers()
        self.wfile.write(text)
        self.wfile.flush()


@contextmanager
def _users(service: Service) -> Iterator[None]:
    """The only user, for pyspnego's acceptor, which an environment variable tells a file."""
    known = ntowfv1(service.password).hex().upper()
    with _NTLM_LOCK, tempfile.NamedTemporaryFile("w", prefix="double-ntlm-") as file:
        file.write(f"{service.user}:1000:{'0' * 32}:{known}:[U]:LCT-00000000\n")
        file.flush()
        os.environ["NTLM_USER_FILE"] = file.name
        yield
