"""Requests and answers of netexec, health checks and TLS."""

import ssl
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from unit.prober.scripted_socket import ScriptedSocket, fly

from lab.lifecycle.compilation import compile_scenario
from lab.machines.agents.fleet import with_dialects, with_names
from lab.machines.cluster.credentials import CertificateSubject, Pair, issue, make_authority
from lab.providers.netns import dialects, protocol
from lab.providers.netns.dialects import (
    BUFFER_BYTES,
    NetexecDatagrams,
    fingerprint,
    netexec_web,
)
from lab.providers.netns.protocol import Reply, WireError
from lab.providers.netns.responder import health_responder
from lab.providers.provider import Outcome, Probe


def probe(**facts: Any) -> Probe:
    usual = {"key": 1, "source": "a", "protocol": "tcp", "size": "small", "address": "10.0.0.2"}
    return Probe(**(usual | {"port": 8080, "mtu": 1450, "dialect": "netexec"} | facts))


def plain(text: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(text), text)


def chunked(text: bytes, size: int = 2048) -> bytes:
    parts = [text[at : at + size] for at in range(0, len(text), size)]
    body = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts)
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + body + b"0\r\n\r\n"


WHO = plain(b"win1-p1") + plain(b"10.244.0.4:4242")


def test_small_answer_is_both_answers_however_they_arrive():
    talk = netexec_web(probe())
    for at in range(len(WHO)):
        assert talk.read(WHO[:at]) is None
    reply = talk.read(WHO)
    assert reply is not None
    assert (reply.status, reply.endpoint, reply.client) == (200, "win1-p1", "10.244.0.4:4242")


def test_large_answer_is_the_whole_body_in_chunks():
    talk = netexec_web(probe(size="large"))
    answer = chunked(talk.body) + WHO
    assert talk.read(answer[:-1]) is None
    assert talk.read(answer[:70_00]) is None
    reply = talk.read(answer)
    assert reply is not None
    assert reply.body == talk.body
    assert len(talk.body) == 65_536


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"HTTP/1.1 200 OK\r\n\r\nwin1-p1",
        b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        b"HTTP/1.1 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nab\r\n",
        b"HTTP/1.1 " + b"x" * 9_000,
    ],
)
def test_what_is_no_answer_of_netexec_is_damage(answer):
    with pytest.raises(WireError):
        netexec_web(probe()).read(answer)


def test_status_of_the_answer_that_failed_is_the_answers():
    missing = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
    reply = netexec_web(probe()).read(missing)
    assert reply is not None
    assert reply.status == 404


def told(size: str, mtu: int = 1450) -> NetexecDatagrams:
    return NetexecDatagrams(probe(protocol="udp", size=size, mtu=mtu))


def test_who_answers_is_asked_before_anything_else_is_sent():
    talk = told("large")
    assert [datagram.data for datagram in talk.rounds[0]] == [b"hostname"]
    assert talk.hear(b"win1-p1") is None
    assert talk.hear(b"10.244.0.4:4242") == ("win1-p1", "10.244.0.4:4242")


@pytest.mark.parametrize(
    ("mtu", "packets"), [(1450, (1450, 2076)), (1500, (1500, 2076)), (2075, (2075, 2076))]
)
def test_large_datagrams_fit_the_path_and_never_more_than_netexec_reads(mtu, packets):
    whole, fragments = told("large", mtu).rounds[1][1:]
    assert (len(whole.data) + 28, len(fragments.data) + 28) == packets
    assert (whole.fragments, fragments.fragments) == (False, True)
    assert all(datagram.data == datagram.data.lower().strip() for datagram in (whole, fragments))
    (alone,) = told("large", 8950).rounds[1][1:]
    assert (len(alone.data), alone.fragments) == (BUFFER_BYTES, False), "no more than it reads"


def test_echoes_are_distinguished_and_each_damage_has_its_own_status():
    talk = told("large")
    whole, fragments = talk.rounds[1][1:]
    talk.hear(b"win1-p1")
    talk.hear(fragments.data[5:])
    talk.hear(whole.data[5:-1] + b"!")
    assert (fragments.status, whole.status) == ("ok", "wrong")
    assert whole.detail == f"damaged from byte {len(whole.data) - 6}"
    talk.hear(whole.data[5:1000])
    assert whole.detail == f"995 bytes came back instead of {len(whole.data) - 5}"


def test_second_name_is_an_answer_to_nothing():
    talk = told("small")
    talk.hear(b"win1-p1")
    with pytest.raises(WireError):
        talk.hear(b"win1-p2")


def test_dialect_is_the_targets():
    intent = compile_scenario("overlay").intent
    node, win, client = (
        intent.machine(name).interfaces[0].addresses[0].partition("/")[0]
        for name in ("worker1", "win1", "client")
    )
    probes = [
        probe(address=node, dialect="lab"),
        probe(address=node, port=30_001, dialect="lab"),
        probe(address=win, dialect="lab"),
        probe(address=client, dialect="lab"),
        probe(address="10.244.1.4", dialect="lab"),
        probe(address="10.96.0.10", port=53, name="to-a", dialect="lab"),
        probe(address=win, port=30_013, dialect="health"),
    ]
    dialects = [dialect.dialect for dialect in with_dialects(intent, probes)]
    assert dialects == ["lab", "netexec", "netexec", "lab", "netexec", "lab", "health"]


def test_the_api_behind_a_services_node_speaks_tls_and_is_known_by_its_certificates():
    intent = compile_scenario("kubeinit").intent
    address = "10.0.0.253"
    probes = [probe(address=address, port=port, dialect="lab") for port in (6443, 8080)]
    assert [dialect.dialect for dialect in with_dialects(intent, probes)] == ["tls", "lab"]
    answered = Outcome(1, "ok", "", None, ("sha256:aa", "sha256:bb"), None, 1.0)
    assert with_names(answered, {"sha256:aa": "controller-01"}).backends == (
        "controller-01",
        "sha256:bb",
    )
    assert with_names(answered, {}) is answered


QUESTION = dialects.health_web("10.9.176.11", 32000)


def read(wire: bytes) -> str:
    reply = QUESTION.read(wire)
    assert reply is not None
    return dialects.health_backends(reply)


def test_a_node_reports_its_number_of_backends():
    for number in (0, 1, 3):
        said = health_responder("web", number)(bytearray(QUESTION.request), b"", False)
        assert said is not None
        assert (read(said.data), said.then) == (str(number), "close")
        assert said.data.startswith(b"HTTP/1.1 200 OK" if number else b"HTTP/1.1 503 Service")


def test_halves_are_waited_for_and_nonsense_is_answered_all_the_same():
    converse, whole = health_responder("web", 1), protocol.health_answer("web", 1)
    assert converse(bytearray(QUESTION.request[:20]), b"", False) is None
    said = converse(bytearray(b"\x16\x03\x01 what\r\n\r\n"), b"", False)
    assert said is not None
    assert said.then == "drain"
    assert QUESTION.read(whole[:-1]) is QUESTION.read(whole[:12]) is None


@pytest.mark.parametrize(
    ("status", "body", "why"),
    [
        (200, b"ok", "not a health check"),
        (200, b"[1]", "not a health check"),
        (200, b'{"localEndpoints": null}', "not a health check"),
        (200, b'{"localEndpoints": 0}', "status 200 with 0 local backends"),
        (503, b'{"localEndpoints": 2}', "status 503 with 2 local backends"),
    ],
)
def test_an_invalid_answer_is_reported(status, body, why):
    with pytest.raises(WireError, match=why):
        dialects.health_backends(Reply(status, "", "", body))


@pytest.fixture(scope="module")
def pair():
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


class Connection(ScriptedSocket):
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


class _InTurn(ScriptedSocket):
    """A new connection at every connect."""

    def __init__(self, *servers: Server) -> None:
        super().__init__()
        self._connections = (Connection(server, 65_536) for server in servers)

    def connect_ex(self, address: object) -> int:
        self._now = next(self._connections)
        return super().connect_ex(address)

    def send(self, data: bytes) -> int:
        return self._now.send(data)

    def recv(self, size: int) -> bytes:
        return self._now.recv(size)


@pytest.mark.parametrize("at_once", [64, 65_536])
def test_a_server_is_known_by_its_certificate(pair, tmp_path, at_once):
    server = Server(pair, tmp_path)
    outcome, _ = fly(Connection(server, at_once), events=200, dialect="tls")
    expected = fingerprint(ssl.PEM_cert_to_DER_cert(pair.certificate))
    assert (outcome.status, outcome.backends) == ("ok", (expected,)), outcome.detail
    assert outcome.source_seen is None, "a TLS server does not say whom it sees"
    assert server.tls.version(), "the server has not ended the handshake, and complains of it"


def test_each_try_is_a_handshake_of_its_own(pair, tmp_path):
    other = issue(
        make_authority("kubernetes"), CertificateSubject("kube-apiserver", (), ("10.0.0.2",))
    )
    servers = (Server(pair, tmp_path), Server(other, tmp_path))
    outcome, _ = fly(_InTurn(*servers), events=200, dialect="tls", tries=2)
    assert outcome.backends == tuple(
        fingerprint(ssl.PEM_cert_to_DER_cert(one.certificate)) for one in (pair, other)
    )


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ([b"HTTP/1.1 400 Bad Request\r\n\r\n"], "answer: TLS handshake failed: "),
        ([b""], "answer: the connection ended after 0 bytes"),
        ([b"\x16", b""], "answer: the connection ended after 1 bytes"),
        ([ConnectionResetError(104, "")], "answer: connection reset by peer"),
    ],
)
def test_what_speaks_no_tls_is_a_wrong_answer(script, why):
    outcome, _ = fly(ScriptedSocket(recv=script), dialect="tls")
    assert outcome.status == "wrong"
    assert outcome.detail.startswith(why)


def test_a_numbered_datagram_comes_back_from_a_cluster_s_pod_as_its_number():
    sent = dialects.netexec_echo(17)
    assert sent.startswith(b"echo ")
    assert dialects.netexec_number(sent.removeprefix(b"echo ")) == 17
    assert dialects.netexec_number(b"") is dialects.netexec_number(b"worker-p1") is None
