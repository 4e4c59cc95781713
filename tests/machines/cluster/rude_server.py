"""A server whose behaviour on each connection is scripted by a test, and access to it."""

import json
import re
import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from websockets_by_hand import frame, switched

from lab._deadline import Deadline
from lab.machines.cluster.credentials import CertificateSubject, issue, make_authority

Conduct = Callable[[socket.socket], None]


class RudeServer:
    """Reads the request of each connection, and then calls the test's behaviour."""

    def __init__(
        self, conduct: Conduct, tls: ssl.SSLContext | None = None, *, switches: bool = True
    ) -> None:
        self._conduct = conduct
        self._tls = tls
        self._switches = switches
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._connections: list[socket.socket] = []
        self._talks: list[threading.Thread] = []
        self.asked: list[bytes] = []
        self.over = threading.Event()
        """Set at the end; checked by :func:`drip` between two pieces."""
        threading.Thread(target=self._run, daemon=True).start()

    @property
    def address(self) -> str:
        scheme = "https" if self._tls else "http"
        return f"{scheme}://127.0.0.1:{self._listener.getsockname()[1]}"

    def _run(self) -> None:
        with suppress(OSError):
            while True:
                self._connections.append(self._listener.accept()[0])
                talk = threading.Thread(
                    target=self._serve, args=(self._connections[-1],), daemon=True
                )
                talk.start()
                self._talks.append(talk)

    def _serve(self, connection: socket.socket) -> None:
        with suppress(OSError), self._secured(connection) as line:
            self.asked.append(line.recv(65_536))
            if self._switches and b"Upgrade: websocket" in self.asked[-1]:
                key = re.search(rb"(?i)sec-websocket-key: (\S+)", self.asked[-1])
                assert key
                line.sendall(switched(key[1]))
            self._conduct(line)

    def _secured(self, connection: socket.socket) -> socket.socket:
        return self._tls.wrap_socket(connection, server_side=True) if self._tls else connection

    def drip(self, connection: socket.socket, head: bytes, drop: bytes) -> None:
        """Send something, and then small pieces at intervals."""
        connection.sendall(head)
        while not self.over.wait(0.05):
            connection.sendall(drop)

    def talks(self, deadline: Deadline) -> int:
        """The number of connections that are still open at the deadline, or 0 before."""
        for talk in self._talks:
            talk.join(deadline.left())
        return sum(talk.is_alive() for talk in self._talks)

    def end(self) -> None:
        self.over.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._connections:
            connection.close()


def certified(directory: Path) -> tuple[ssl.SSLContext, Path]:
    """A server certificate for loopback, and its certificate authority."""
    ca = make_authority("tests")
    own = issue(ca, CertificateSubject("server", hosts=("127.0.0.1",)))
    (directory / "ca.crt").write_text(ca.certificate)
    (directory / "own.pem").write_text(own.certificate + own.key)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(directory / "own.pem")
    return tls, directory / "ca.crt"


def kubeconfig(path: Path, server: str, ca: Path | None = None) -> Path:
    cluster = {"server": server} | ({"certificate-authority": str(ca)} if ca else {})
    found = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "it",
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        "clusters": [{"name": "it", "cluster": cluster}],
        "users": [{"name": "it", "user": {}}],
    }
    path.write_text(json.dumps(found))
    return path


CLOSED = frame(b"\x03\xe8", 8)


def status(**found: object) -> bytes:
    """The final status message of a command."""
    return frame(b"\x03" + json.dumps(found).encode())
