"""The steps of a probe against a socket that does as it is told."""

import errno
from select import EPOLLIN, EPOLLOUT

import pytest
from unit.prober.scripted_socket import DAMAGED, ECHO, ScriptedSocket, echo, fly

from lab.providers.netns import protocol


def reply(body: bytes = b"", status: int = 200) -> bytes:
    head = (
        f"HTTP/1.1 {status} X\r\nX-Endpoint: pod\r\nX-Client: 10.0.0.1:1\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def test_a_request_sent_at_once_waits_only_for_the_answer():
    outcome, waited = fly(ScriptedSocket(recv=[reply()]))
    assert (outcome.status, outcome.backends, waited) == ("ok", ("pod",), [EPOLLIN])


def test_a_request_that_cannot_be_sent_yet_waits_for_the_connection():
    sock = ScriptedSocket(send=[BlockingIOError(), 60], recv=[reply()])
    outcome, waited = fly(sock)
    assert (outcome.status, waited) == ("ok", [EPOLLOUT, EPOLLIN])


def test_an_answer_in_pieces_is_put_together():
    whole = reply(b"hello")
    outcome, _ = fly(ScriptedSocket(recv=[whole[:9], BlockingIOError(), whole[9:70], whole[70:]]))
    assert outcome.status == "ok"


@pytest.mark.parametrize(
    ("script", "status", "detail"),
    [
        ({"connect_ex": [errno.ENETUNREACH]}, "no-route", "connect: network is unreachable"),
        ({"connect_ex": [errno.EADDRNOTAVAIL]}, "error", "connect: cannot assign"),
        ({"send": [OSError(errno.ECONNREFUSED, "")]}, "refused", "connect: connection refused"),
        (
            {"send": [BlockingIOError()], "getsockopt": [errno.EHOSTUNREACH]},
            "no-route",
            "connect: no route to host",
        ),
        ({"send": [BlockingIOError(), OSError(errno.ETIMEDOUT, "")]}, "timeout", "connect: "),
        ({"recv": [OSError(errno.ECONNRESET, "")]}, "wrong", "answer: connection reset by peer"),
        ({"recv": [b""]}, "wrong", "answer: the connection ended after 0 bytes"),
        ({"recv": [reply()[:30], b""]}, "wrong", "answer, after 30 bytes: the connection ended"),
        ({"recv": [reply(status=503)]}, "wrong", "answer: status 503 from 'pod'"),
        ({}, "timeout", "answer: no reply in 1 s"),
    ],
)
def test_each_failure_has_its_status_and_place(script, status, detail):
    outcome, _ = fly(ScriptedSocket(**script))
    assert outcome.status == status
    assert outcome.detail.startswith(detail)


def test_a_large_request_taken_in_pieces_is_sent_whole():
    sock = ScriptedSocket(send=[1000, 64_000, 536 + 100])
    outcome, waited = fly(sock, size="large", events=4)
    request = b"".join(sock.sent)
    read = protocol.read_request(request)
    assert read is not None
    assert (read.length, len(request) - read.body_at) == (65_536, 65_536)
    assert waited[:2] == [EPOLLOUT, EPOLLOUT]
    assert outcome.status == "timeout"


def test_a_failure_after_the_first_try_names_the_try_and_keeps_the_backends():
    sock = ScriptedSocket(recv=[reply(), OSError(errno.ECONNRESET, "")])
    outcome, _ = fly(sock, tries=3)
    assert (outcome.status, outcome.backends) == ("wrong", ("pod",))
    assert outcome.detail == "try 2 of 3, answer: connection reset by peer"


def test_every_try_is_made_and_every_source_noted():
    sock = ScriptedSocket(recv=[reply(), reply().replace(b"10.0.0.1", b"10.0.0.8"), reply()])
    outcome, waited = fly(sock, tries=3)
    assert (outcome.status, len(waited)) == ("ok", 3)
    assert (outcome.source_seen, outcome.other_sources) == ("10.0.0.1", ("10.0.0.8",))


@pytest.mark.parametrize(
    ("script", "events", "sent", "detail"),
    [
        ([], 20, [92], "answer: no reply in 1 s"),
        (
            [ECHO],
            20,
            [92, 1450, 2900],
            "1450 bytes with DF: no reply in time; 2900 bytes in fragments: no reply in time",
        ),
        (
            [ECHO, ECHO],
            4,
            [92, 1450, 2900],
            "1450 bytes with DF: no reply in time; 2900 bytes in fragments: echoed",
        ),
    ],
    ids=["the small one first", "the mtu and twice the mtu", "the failed one is named"],
)
def test_large_datagrams_follow_a_small_one_and_are_distinguished(script, events, sent, detail):
    sock = ScriptedSocket(recv=script)
    outcome, _ = fly(sock, protocol="udp", size="large", mtu=1450, events=events)
    assert [len(data) + 28 for data in sock.sent] == sent
    assert (outcome.status, outcome.detail) == ("timeout", detail)


@pytest.mark.parametrize(
    ("size", "script", "detail"),
    [
        ("small", [DAMAGED], "answer: damaged from byte 63"),
        (
            "large",
            [ECHO, DAMAGED],
            "1500 bytes with DF: no reply in time; 3000 bytes in fragments: damaged from byte 2971",
        ),
    ],
)
def test_a_damaged_datagram_names_its_first_wrong_byte(size, script, detail):
    outcome, _ = fly(ScriptedSocket(recv=script), protocol="udp", size=size, events=4)
    assert outcome.detail == detail
    assert outcome.status == ("wrong" if size == "small" else "timeout")


def test_a_datagram_of_another_probe_is_wrong():
    stray = echo(protocol.datagram(1, b"x" * 40, fragments=False))
    outcome, _ = fly(ScriptedSocket(recv=[stray]), protocol="udp")
    assert outcome.status == "wrong"
    assert "match no datagram of this probe" in outcome.detail


def test_a_stream_is_sent_until_its_receiver_reports_the_rate():
    answer = reply(b'{"throughput": 2.5e8}')
    sock = ScriptedSocket(recv=[BlockingIOError(), BlockingIOError(), answer])
    outcome, waited = fly(sock, dialect="throughput")
    assert (outcome.status, outcome.throughput, outcome.backends) == ("ok", 2.5e8, ("pod",))
    assert waited == [EPOLLIN | EPOLLOUT] * 3
    assert sock.sent[0].startswith(b"POST /throughput ")
    assert sum(map(len, sock.sent)) > 1_000_000


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        *((reply(body), "not the rate of a stream") for body in (b"", b"{}")),
        (reply(b'{"throughput": "x"}'), "not the rate of a stream"),
        (reply(b'{"throughput": -1}'), "not the rate of a stream"),
        (b"", "the connection ended after 0 bytes"),
    ],
)
def test_a_receiver_without_a_rate_is_an_error(answer, says):
    outcome, _ = fly(ScriptedSocket(recv=[answer]), dialect="throughput")
    assert (outcome.status, outcome.throughput) == ("wrong", None)
    assert says in outcome.detail
