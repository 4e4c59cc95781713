"""A TLS handshake as a probe: who answers is known by the certificate, and nothing is verified."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from unit.prober.told_socket import ToldSocket, fly

from lab.cluster.credentials import CertificateSubject, Pair, issue, make_authority
from lab.providers.netns.dialects import Handshake, fingerprint
from lab.providers.netns.protocol import WireError


@pytest.fixture(scope="module")
def pair() -> Pair:
    return issue(
        make_authority("kubernetes"), CertificateSubject("kube-apiserver", (), ("10.0.0.1",))
    )


class Server:
    """The other side of a handshake."""

    def __init__(self, pair: Pair, directory: Path) -> None:
        certificate, key = directory / "tls.crt", directory / "tls.key"
        certificate.write_text(pair.certificate)
        key.write_text(pair.key)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self.heard, self.said = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.heard, self.said, server_side=True)

    def answer(self, data: bytes) -> bytes:
        """What it says to what it hears."""
        self.heard.write(data)
        with suppress(ssl.SSLWantReadError):
            self.tls.do_handshake()
        return self.said.read()


class Connection(ToldSocket):
    """A connection to the server, which brings so many bytes at once."""

    def __init__(self, server: Server, at_once: int) -> None:
        super().__init__()
        self._server = server
        self._at_once = at_once
        self._waiting = b""

    def send(self, data: bytes) -> int:
        self._waiting += self._server.answer(data)
        return len(data)

    def recv(self, _size: int) -> bytes:
        data, self._waiting = self._waiting[: self._at_once], self._waiting[self._at_once :]
        return data


@pytest.mark.parametrize("at_once", [64, 65_536])
def test_a_server_is_known_by_its_certificate(pair: Pair, tmp_path: Path, at_once: int) -> None:
    server = Server(pair, tmp_path)
    outcome, _ = fly(Connection(server, at_once), events=200, dialect="tls")
    expected = fingerprint(ssl.PEM_cert_to_DER_cert(pair.certificate))
    assert (outcome.status, outcome.backends) == ("ok", (expected,)), outcome.detail
    assert outcome.source_seen is None, "a TLS server does not say whom it sees"
    assert server.tls.version(), "the server has not ended the handshake, and complains of it"


def test_each_try_is_a_handshake_of_its_own(pair: Pair, tmp_path: Path) -> None:
    other = issue(
        make_authority("kubernetes"), CertificateSubject("kube-apiserver", (), ("10.0.0.2",))
    )
    connections = _of(Server(pair, tmp_path), Server(other, tmp_path))
    outcome, _ = fly(_InTurn(connections), events=200, dialect="tls", tries=2)
    assert outcome.backends == tuple(
        fingerprint(ssl.PEM_cert_to_DER_cert(one.certificate)) for one in (pair, other)
    )


class _InTurn(ToldSocket):
    """A new connection at every connect."""

    def __init__(self, connections: Iterator[Connection]) -> None:
        super().__init__()
        self._connections = connections

    def connect_ex(self, address: object) -> int:
        self._now = next(self._connections)
        return super().connect_ex(address)

    def send(self, data: bytes) -> int:
        return self._now.send(data)

    def recv(self, size: int) -> bytes:
        return self._now.recv(size)


def _of(*servers: Server) -> Iterator[Connection]:
    return (Connection(one, 65_536) for one in servers)


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ([b"HTTP/1.1 400 Bad Request\r\n\r\n"], "answer: no TLS handshake: "),
        ([b""], "answer: the connection ended after 0 bytes"),
        ([b"\x16", b""], "answer: the connection ended after 1 bytes"),
        ([ConnectionResetError(104, "")], "answer: connection reset by peer"),
    ],
)
def test_what_speaks_no_tls_is_a_wrong_answer(script: list[Any], why: str) -> None:
    outcome, _ = fly(ToldSocket(recv=script), dialect="tls")
    assert outcome.status == "wrong"
    assert outcome.detail.startswith(why)


def test_nonsense_in_place_of_a_handshake_is_told() -> None:
    with pytest.raises(WireError, match="no TLS handshake: "):
        Handshake().read(b"\x00" * 64)
