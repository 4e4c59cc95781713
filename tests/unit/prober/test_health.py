"""kube-proxy's health check: what is answered, and what is made of it."""

from __future__ import annotations

import pytest

from lab.providers.netns import dialects, protocol
from lab.providers.netns.protocol import Reply, WireError
from lab.providers.netns.responder import health_responder

QUESTION = dialects.HealthWeb("10.9.176.11", 32000)


def read(wire: bytes) -> str:
    reply = QUESTION.read(wire)
    assert reply is not None
    return dialects.health_backends(reply)


def test_a_node_says_how_many_backends_it_has() -> None:
    for number in (0, 1, 3):
        said = health_responder("web", number)(bytearray(QUESTION.request), b"", False)
        assert said is not None
        assert (read(said.data), said.then) == (str(number), "close")
        assert said.data.startswith(b"HTTP/1.1 200 OK" if number else b"HTTP/1.1 503 Service")


def test_half_a_question_is_waited_for_and_nonsense_is_answered_all_the_same() -> None:
    converse = health_responder("web", 1)
    assert converse(bytearray(QUESTION.request[:20]), b"", False) is None
    said = converse(bytearray(b"\x16\x03\x01 what\r\n\r\n"), b"", False)
    assert said is not None
    assert said.then == "drain"


def test_half_an_answer_is_waited_for() -> None:
    whole = protocol.health_answer("web", 1)
    assert QUESTION.read(whole[:-1]) is None
    assert QUESTION.read(whole[:12]) is None


@pytest.mark.parametrize(
    ("status", "body", "why"),
    [
        (200, b"ok", "no health check"),
        (200, b"[1]", "no health check"),
        (200, b'{"localEndpoints": null}', "no health check"),
        (200, b'{"localEndpoints": 0}', "status 200 with 0 local backends"),
        (503, b'{"localEndpoints": 2}', "status 503 with 2 local backends"),
    ],
)
def test_an_answer_that_is_none_is_told(status: int, body: bytes, why: str) -> None:
    with pytest.raises(WireError, match=why):
        dialects.health_backends(Reply(status, "", "", body))
