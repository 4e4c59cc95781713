"""The WinRM service: HTTPS, NTLM or Basic, and the shells behind it."""

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

from . import soap
from .shells import Shells
from .soap import Asking, FaultError

_HANDSHAKE_SECONDS = 10
_NTLM_LOCK = threading.Lock()
"""pyspnego's acceptor reads its users from a file that an environment variable names."""


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
    wire: deque[tuple[str, bytes]] = field(default_factory=lambda: deque(maxlen=200))
    """Content types and bodies as received from the socket."""
    logins: list[str] = field(default_factory=list)
    """The authenticated user of each connection."""
    refused: int = 0
    """Number of refused passwords."""

    def trouble(self, action: str) -> Trouble | None:
        for one in self.troubles:
            if one.action in ("", action):
                self.troubles.remove(one)
                return one
        return None


class WsMan:
    """One listener of the service, that can be stopped and started again on its port.

    ``service``: what it serves. ``address``, ``port``: 0 for any free port, kept over restarts.
    ``certificate``, ``key``: PEM files.
    """

    def __init__(
        self,
        service: Service,
        address: str,
        port: int,
        certificate: Path,
        key: Path,
    ) -> None:
        self.service, self.address, self.port = service, address, port
        self._certificate, self._key = certificate, key
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        pair = self._certificate, self._key
        self._server = _Server((self.address, self.port), self.service, *pair)
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), name="double-wsman", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Close the port and every connection; the shells stay known."""
        if self._server is None or self._thread is None:
            return
        self._server.shutdown()
        self._thread.join()
        self._server.end()
        self._server = None

    def cut(self) -> None:
        """Close every connection, and go on listening."""
        if self._server is not None:
            self._server.cut()

    def connections(self) -> int:
        return len(self._server.live) if self._server else 0


class _Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    block_on_close = True
    request_queue_size = 64

    def __init__(
        self, address: tuple[str, int], service: Service, certificate: Path, key: Path
    ) -> None:
        self.service, self.certificate = service, certificate
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.tls.load_cert_chain(certificate, key)
        self.live: set[socket.socket] = set()
        self._lock = threading.Lock()
        handle, path = tempfile.mkstemp(prefix="double-ntlm-")
        os.close(handle)
        self.users = Path(path)
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        socketserver.TCPServer.server_bind(self)  # HTTPServer's own method looks up the host name
        self.server_name, self.server_port = self.server_address[:2]

    def finish_request(self, request: Any, client_address: Any) -> None:
        request.settimeout(_HANDSHAKE_SECONDS)
        own = self.tls.wrap_socket(request, server_side=True, do_handshake_on_connect=False)
        with self._lock:
            self.live.add(own)
        with suppress(OSError):  # the client broke off
            try:
                own.do_handshake()
                own.settimeout(None)
                super().finish_request(own, client_address)
            finally:
                with self._lock:
                    self.live.discard(own)
                own.close()

    def cut(self) -> None:
        with self._lock:
            for one in self.live:
                with suppress(OSError):
                    socket.socket.shutdown(one, socket.SHUT_RDWR)

    def end(self) -> None:
        self.cut()
        self.server_close()
        self.users.unlink(missing_ok=True)

    def handle_error(self, *_: object) -> None:
        """Ignore errors: tests break connections on purpose."""


class _Handler(http.server.BaseHTTPRequestHandler):
    """One connection: NTLM authenticates a connection, not a request."""

    protocol_version = "HTTP/1.1"
    server_version = "Microsoft-HTTPAPI/2.0"
    sys_version = ""
    wbufsize = -1
    server: _Server

    def setup(self) -> None:
        super().setup()
        self._context: Any = None
        self._user = ""

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        service = self.server.service
        if body:
            service.wire.append((self.headers.get("Content-Type", ""), body))
        if len(body) > service.max_envelope:
            self._reply(413, b"")
        elif self.path != "/wsman":
            self._reply(404, b"")
        elif self._let_in():
            self._serve(body)

    def _serve(self, body: bytes) -> None:
        try:
            asking = Asking(ET.fromstring(body))
            self._told(asking)
        except FaultError as error:
            self._reply(500, soap.fault(asking, error).encode())
        except ConnectionError:
            self.close_connection = True
        except Exception:  # noqa: BLE001  a body that cannot be opened is a bad request
            self._reply(400, b"")
            self.close_connection = True

    def _told(self, asking: Asking) -> None:
        service = self.server.service
        trouble = service.trouble(asking.action)
        if trouble is None:
            text = service.shells.verb(asking, self._user, self._gone)
            self._reply(200, text.encode())
            return
        if trouble.kind == "held":
            self._wait(trouble)
        done = trouble.after or trouble.kind == "held"
        text = service.shells.verb(asking, self._user, self._gone) if done else ""
        self._suffer(trouble, text)

    def _wait(self, trouble: Trouble) -> None:
        assert trouble.gate is not None
        while not trouble.gate.wait(0.02):
            if self._gone():
                raise ConnectionError("the client has gone")

    def _suffer(self, trouble: Trouble, text: str) -> None:
        if trouble.kind == "status":
            self._reply(trouble.code, b"", ("Negotiate",) if trouble.code == 401 else ())
        elif trouble.kind == "garbage":
            self._reply(200, b"<no xml")
        elif trouble.kind == "held":
            self._reply(200, text.encode())
        elif trouble.kind == "part":
            self.send_response(200)
            self.send_header("Content-Type", "application/soap+xml;charset=UTF-8")
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b"<s:Envelope")
            self.close_connection = True
        else:
            if trouble.kind == "drop" and isinstance(self.connection, ssl.SSLSocket):
                self.connection.settimeout(0)  # close_notify is sent, but not awaited
                with suppress(OSError):
                    self.connection.unwrap()
            if trouble.kind == "reset":
                linger = struct.pack("ii", 1, 0)
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                os.close(self.connection.detach())
            self.close_connection = True

    def _gone(self) -> bool:
        return bool(select.select([self.connection], [], [], 0)[0])

    def _let_in(self) -> bool:
        kind, _, given = self.headers.get("Authorization", "").partition(" ")
        if not given:
            if self._user:
                return True
        elif kind in ("Negotiate", "NTLM"):
            return self._ntlm(kind, given)
        self._refuse()
        return False

    def _ntlm(self, kind: str, given: str) -> bool:
        import spnego  # noqa: PLC0415  only if it is used

        service = self.server.service
        try:
            token = base64.b64decode(given, validate=True)
            with _users(self.server.users, service):
                if self._context is None or self._context.complete:
                    self._context = spnego.server(
                        protocol="ntlm", channel_bindings=self._bindings()
                    )
                reply = self._context.step(token)
        except (binascii.Error, spnego.exceptions.SpnegoError):
            self._context = None
            service.refused += 1
            self._refuse()
            return False
        if reply is not None:
            self._reply(401, b"", (f"{kind} {base64.b64encode(reply).decode()}",))
            return False
        self._user = str(self._context.client_principal or service.user)
        service.logins.append("NTLM")
        return True

    def _bindings(self) -> Any:
        from spnego.channel_bindings import GssChannelBindings  # noqa: PLC0415  as above

        from .certificates import digest  # noqa: PLC0415  as above

        own = digest(self.server.certificate)
        return GssChannelBindings(application_data=b"tls-server-end-point:" + own)

    def _refuse(self) -> None:
        self._reply(401, b"", ("Negotiate",))

    def _reply(self, status: int, text: bytes, ways: tuple[str, ...] = ()) -> None:
        kind = "application/soap+xml;charset=UTF-8"
        self.send_response(status)
        if text:
            self.send_header("Content-Type", kind)
        for way in ways:
            self.send_header("WWW-Authenticate", way)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
        self.wfile.flush()


@contextmanager
def _users(path: Path, service: Service) -> Iterator[None]:
    """Configure the only user for pyspnego."""
    from spnego._ntlm_raw.crypto import ntowfv1  # noqa: PLC0415  only with NTLM

    digest = ntowfv1(service.password).hex().upper()
    with _NTLM_LOCK:
        path.write_text(f"{service.user}:1000:{'0' * 32}:{digest}:[U]:LCT-00000000\n")
        os.environ["NTLM_USER_FILE"] = str(path)
        yield
