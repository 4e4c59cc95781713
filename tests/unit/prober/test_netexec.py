"""Agnhost's netexec as a probe's other end: what is said to it, and what its answers mean."""

from __future__ import annotations

from typing import Any

import pytest

from lab.lifecycle.compilation import compile_scenario
from lab.providers.netns.dialects import BUFFER_BYTES, NetexecDatagrams, NetexecWeb
from lab.providers.netns.protocol import WireError
from lab.providers.node.fleet import with_dialects, with_names
from lab.providers.provider import Outcome, Probe


def probe(**facts: Any) -> Probe:
    usual = {"key": 1, "source": "a", "protocol": "tcp", "size": "small", "address": "10.0.0.2"}
    return Probe(**(usual | {"port": 8080, "mtu": 1450, "dialect": "netexec"} | facts))


def plain(text: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(text), text)


def chunked(text: bytes, size: int = 2048) -> bytes:
    parts = [text[at : at + size] for at in range(0, len(text), size)]
    body = b"".join(b"%x\r\n%s\r\n" % (len(one), one) for one in parts)
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + body + b"0\r\n\r\n"


WHO = plain(b"win1-p1") + plain(b"10.244.0.4:4242")


def test_small_answer_is_both_answers_however_they_arrive() -> None:
    talk = NetexecWeb(probe())
    for at in range(len(WHO)):
        assert talk.read(WHO[:at]) is None
    reply = talk.read(WHO)
    assert reply is not None
    assert (reply.status, reply.endpoint, reply.client) == (200, "win1-p1", "10.244.0.4:4242")


def test_large_answer_is_the_whole_body_in_chunks() -> None:
    talk = NetexecWeb(probe(size="large"))
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
def test_what_is_no_answer_of_netexec_is_damage(answer: bytes) -> None:
    with pytest.raises(WireError):
        NetexecWeb(probe()).read(answer)


def test_status_of_the_answer_that_failed_is_the_answers() -> None:
    missing = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
    reply = NetexecWeb(probe()).read(missing)
    assert reply is not None
    assert reply.status == 404


def told(size: str, mtu: int = 1450) -> NetexecDatagrams:
    return NetexecDatagrams(probe(protocol="udp", size=size, mtu=mtu))


def test_who_answers_is_asked_before_anything_else_is_sent() -> None:
    talk = told("large")
    assert [one.data for one in talk.rounds[0]] == [b"hostname"]
    assert talk.hear(b"win1-p1") is None
    assert talk.hear(b"10.244.0.4:4242") == ("win1-p1", "10.244.0.4:4242")


@pytest.mark.parametrize(
    ("mtu", "packets"), [(1450, (1450, 2076)), (1500, (1500, 2076)), (2075, (2075, 2076))]
)
def test_large_datagrams_fit_the_path_and_never_more_than_netexec_reads(
    mtu: int, packets: tuple[int, int]
) -> None:
    whole, fragments = told("large", mtu).rounds[1][1:]
    assert (len(whole.data) + 28, len(fragments.data) + 28) == packets
    assert (whole.fragments, fragments.fragments) == (False, True)
    assert all(one.data == one.data.lower().strip() for one in (whole, fragments))


def test_path_beyond_netexecs_buffer_is_asked_with_as_much_as_it_reads() -> None:
    (whole,) = told("large", 8950).rounds[1][1:]
    assert len(whole.data) == BUFFER_BYTES
    assert not whole.fragments


def test_echoes_are_told_apart_and_each_damage_is_its_own() -> None:
    talk = told("large")
    whole, fragments = talk.rounds[1][1:]
    talk.hear(b"win1-p1")
    talk.hear(fragments.data[5:])
    talk.hear(whole.data[5:-1] + b"!")
    assert (fragments.status, whole.status) == ("ok", "wrong")
    assert whole.detail == f"damaged from byte {len(whole.data) - 6}"


def test_echo_that_was_cut_short_says_how_much_came() -> None:
    talk = told("large")
    whole = talk.rounds[1][1]
    talk.hear(b"win1-p1")
    talk.hear(whole.data[5:1000])
    assert whole.detail == f"995 bytes came back of {len(whole.data) - 5}"


def test_second_name_is_an_answer_to_nothing() -> None:
    talk = told("small")
    talk.hear(b"win1-p1")
    with pytest.raises(WireError):
        talk.hear(b"win1-p2")


def test_dialect_is_the_targets() -> None:
    intent = compile_scenario("overlay").intent
    node, win, client = (
        intent.machine(name).interfaces[0].addresses[0].partition("/")[0]
        for name in ("worker1", "win1", "client")
    )
    asked = [
        probe(address=node, dialect="lab"),
        probe(address=node, port=30_001, dialect="lab"),
        probe(address=win, dialect="lab"),
        probe(address=client, dialect="lab"),
        probe(address="10.244.1.4", dialect="lab"),
        probe(address="10.96.0.10", port=53, name="to-a", dialect="lab"),
    ]
    said = [one.dialect for one in with_dialects(intent, asked)]
    assert said == ["lab", "netexec", "netexec", "lab", "netexec", "lab"]


def test_the_api_behind_a_services_node_speaks_tls_and_is_known_by_its_certificates() -> None:
    intent = compile_scenario("kubeinit").intent
    address = "10.0.0.253"
    asked = [probe(address=address, port=port, dialect="lab") for port in (6443, 8080)]
    assert [one.dialect for one in with_dialects(intent, asked)] == ["tls", "lab"]
    answered = Outcome(1, "ok", "", None, ("sha256:aa", "sha256:bb"), None, 1.0)
    assert with_names(answered, {"sha256:aa": "controller-01"}).backends == (
        "controller-01",
        "sha256:bb",
    )
    assert with_names(answered, {}) is answered
