import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.providers.netns import protocol
from lab.providers.netns.protocol import RequestError, WireError

CASES = Path(__file__).parent / "cases"
WHO = (b"pod-1", b"10.0.0.1:4242")


def served(request: bytes) -> bytes:
    read = protocol.read_request(request)
    assert read is not None
    return protocol.respond(read, request[read.body_at :], *WHO)


def test_a_get_is_answered_with_who_answers_and_who_asked():
    reply = protocol.read_reply(served(protocol.get_request("10.0.0.2", 8080)))
    assert reply is not None
    assert (reply.status, reply.endpoint, reply.client) == (200, "pod-1", "10.0.0.1:4242")
    assert json.loads(reply.body) == {"endpoint": "pod-1", "client": "10.0.0.1:4242"}


@given(st.binary(max_size=300))
def test_a_posted_body_comes_back_whatever_is_in_it(body):
    reply = protocol.read_reply(served(protocol.echo_request("10.0.0.2", 8080, body)))
    assert reply is not None
    protocol.check_body(body, reply.body)


@pytest.mark.parametrize(
    ("line", "status"),
    [("GET /other", 404), ("DELETE /echo", 405), ("POST /", 405), ("PUT /other", 404)],
)
def test_what_is_not_served_is_refused(line, status):
    reply = protocol.read_reply(served(f"{line} HTTP/1.1\r\n\r\n".encode()))
    assert reply is not None
    assert reply.status == status


@pytest.mark.parametrize(
    "case", json.loads((CASES / "requests.json").read_text()), ids=lambda case: case["case"]
)
def test_malformed_requests_are_refused_with_their_status(case):
    with pytest.raises(RequestError) as caught:
        protocol.read_request(str(case["request"]).encode("latin-1"))
    assert caught.value.status == case["status"]
    assert protocol.read_reply(protocol.refusal(caught.value, *WHO)) is not None


def test_headers_without_end_are_refused_at_the_limit():
    start = b"GET / HTTP/1.1\r\nA: "
    assert protocol.read_request(start.ljust(protocol.HEAD_LIMIT, b"x")) is None
    with pytest.raises(RequestError):
        protocol.read_request(start.ljust(protocol.HEAD_LIMIT + 1, b"x"))
    with pytest.raises(RequestError):
        protocol.read_request(start.ljust(protocol.HEAD_LIMIT + 1, b"x") + b"\r\n\r\n")


@given(st.integers(min_value=0, max_value=200))
def test_no_part_of_a_request_or_an_answer_is_taken_for_the_whole(cut):
    request = protocol.echo_request("10.0.0.2", 8080, b"body")
    reply = served(request)
    head = request.index(b"\r\n\r\n") + 4
    assert (protocol.read_request(request[:cut]) is None) == (cut < head)
    assert (protocol.read_reply(reply[:cut]) is None) == (cut < len(reply))


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-x\r\n",
        b"HTTP/1.0 200 OK\r\n",
        b"HTTP/1.1 " + b"x" * protocol.HEAD_LIMIT,
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 OK\r\nX-Endpoint: a\r\nX-Client: b\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX-Endpoint: a\r\nX-Client: b\r\nContent-Length: 1\r\n\r\nxx",
    ],
)
def test_a_reply_of_no_endpoint_of_the_lab_is_no_answer(data):
    with pytest.raises(WireError):
        protocol.read_reply(data)


def test_a_damaged_body_names_the_first_byte_that_differs():
    with pytest.raises(WireError, match="damaged from byte 3"):
        protocol.check_body(b"abcdef", b"abcxef")
    with pytest.raises(WireError, match="echo of 2 bytes for 6, damaged from byte 2"):
        protocol.check_body(b"abcdef", b"ab")


@given(st.integers(0, 2**64 - 1), st.binary(min_size=40, max_size=2000), st.booleans())
def test_a_datagram_comes_back_in_its_own_length(nonce, filling, fragments):
    sent = protocol.datagram(nonce, filling, fragments=fragments)
    assert len(sent) == protocol.QUESTION_BYTES + len(filling)
    answer = protocol.echo_datagram(sent, *WHO)
    assert answer is not None
    reply, may_fragment = answer
    assert (len(reply), may_fragment) == (len(sent), fragments)
    assert protocol.nonce_of(reply) == nonce
    assert protocol.read_echo(sent, reply) == ("pod-1", "10.0.0.1:4242")
    short = protocol.datagram(7, b"", fragments=False)  # the answer's header is longer
    answer = protocol.echo_datagram(short, *WHO)
    assert answer is not None
    assert protocol.read_echo(short, answer[0]) == ("pod-1", "10.0.0.1:4242")


def test_a_strange_datagram_is_echoed_and_an_answer_is_not():
    answer = protocol.echo_datagram(b"hello".ljust(60, b"."), *WHO)
    assert answer is not None
    assert answer[0].startswith(b"HLR1 0000000000000000 pod-1 10.0.0.1:4242\n....")
    assert protocol.echo_datagram(answer[0], *WHO) is None


def test_an_answer_cut_short_or_damaged_after_its_header_is_not_taken():
    sent = protocol.datagram(7, bytes(range(100)), fragments=False)
    answer = protocol.echo_datagram(sent, *WHO)
    assert answer is not None
    reply = answer[0]
    for cut in (10, 63):
        with pytest.raises(WireError):
            protocol.read_echo(sent, reply[:cut])
    for at in range(reply.index(b"\n") + 1, len(reply)):
        damaged = reply[:at] + bytes([reply[at] ^ 1]) + reply[at + 1 :]
        with pytest.raises(WireError, match=f"damaged from byte {at}"):
            protocol.read_echo(sent, damaged)


@pytest.mark.parametrize("data", [b"", b"HLR1 ", b"HLR1 zzzzzzzzzzzzzzzz a b\n", b"HLQ1 0"])
def test_what_has_no_nonce_has_none(data):
    assert protocol.nonce_of(data) is None


def test_a_framed_message_is_taken_whole_or_not_at_all():
    framed = protocol.frame(b"message")
    assert [protocol.unframe(framed[:cut]) for cut in range(len(framed))] == [None] * len(framed)
    assert protocol.unframe(framed + b"more") == b"message"


def test_a_stream_is_measured_over_the_second_after_the_first_half():
    meter = protocol.StreamMeter()
    assert meter.add(10**9, 10.0) is None  # the first half second does not count
    assert meter.add(10**9, 10.5) is None
    assert meter.add(50, 11.0) is None
    assert meter.add(75, 11.5) == 8 * 125
    late = protocol.StreamMeter()
    assert [late.add(1, at) for at in (0.0, 0.6)] == [None, None]
    assert late.add(100, 2.6) == 8 * 100 / 2.0
