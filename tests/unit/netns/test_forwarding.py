"""Questions that the responder passes on: by real sockets on loopback, without a network."""

import socket

import pytest

from lab.providers.netns import dns, protocol, responder

RECORDS = {"to-a.default.svc.cluster.local.": ["10.96.0.20"]}


@pytest.fixture
def pair():
    """The forwarder's socket, and the other server's."""
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as own,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other,
    ):
        other.bind(("127.0.0.1", 0))
        other.settimeout(5)
        own.connect(other.getsockname())
        yield own, other


def answered(question: bytes, address: str) -> bytes:
    name = dns.asked_name(question)
    assert name
    reply = dns.answer_question(question, {name: [address]})
    assert reply
    return reply


def test_answers_find_their_questions_in_whatever_order_they_come(pair):
    own, other = pair
    forwarder = dns.Forwarder(own)
    heard: dict[str, str | None] = {}
    for name in ("a.lab.", "b.lab."):

        def then(wire: bytes, name: str = name) -> None:
            heard[name] = dns.read_answer(wire, name, 7)

        forwarder.ask(dns.make_question(name, 7), then)
    asked = [other.recvfrom(512) for _ in range(2)]
    for wire, sender in reversed(asked):
        last = "1" if dns.asked_name(wire) == "a.lab." else "2"
        other.sendto(answered(wire, f"10.0.0.{last}"), sender)
    for _ in asked:
        forwarder.hear()
    assert heard == {"a.lab.": "10.0.0.1", "b.lab.": "10.0.0.2"}


def test_who_waits_for_a_server_that_is_not_there_is_told(pair):
    own, other = pair
    other.close()
    forwarder = dns.Forwarder(own)
    heard: list[bytes] = []
    forwarder.ask(dns.make_question("a.lab.", 7), heard.append)
    forwarder.hear()
    assert len(heard) == 1
    with pytest.raises(protocol.WireError, match="SERVFAIL"):
        dns.read_answer(heard[0], "a.lab.", 7)


def test_the_oldest_question_gives_way_and_its_late_answer_is_dropped(pair, monkeypatch):
    own, other = pair
    monkeypatch.setattr(dns, "WAITING_LIMIT", 1)
    forwarder = dns.Forwarder(own)
    heard: list[str] = []
    forwarder.ask(dns.make_question("a.lab.", 7), lambda _: heard.append("a"))
    forwarder.ask(dns.make_question("b.lab.", 7), lambda _: heard.append("b"))
    for _ in range(2):
        wire, sender = other.recvfrom(512)
        other.sendto(answered(wire, "10.0.0.1"), sender)
        forwarder.hear()
    assert heard == ["b"]


@pytest.mark.parametrize(
    ("name", "elsewhere"),
    [
        ("controller-01.k8scluster.kubeinit.local.", True),
        ("to-a.default.svc.cluster.local.", False),
        ("nothing.cluster.local.", False),
        ("cluster.local.", False),
        ("mycluster.local.", True),
        ("to-a.default.", True),
    ],
)
def test_only_what_is_not_the_clusters_is_asked_elsewhere(name, *, elsewhere):
    asked: list[bytes] = []
    other = responder.Elsewhere(lambda wire, _then: asked.append(wire), "cluster.local.")
    said = responder.dns_datagram(RECORDS, other)(dns.make_question(name, 7), b"10.0.0.1:53")
    assert isinstance(said, responder.Later) == elsewhere
    if isinstance(said, responder.Later):
        said.begin(lambda _: None)
        assert asked == [dns.make_question(name, 7)]


def test_what_is_no_question_is_asked_nowhere():
    other = responder.Elsewhere(lambda _wire, _then: pytest.fail("asked"), "cluster.local.")
    for wire in (b"", b"\0" * 11, dns.make_question("a.lab.", 7)[:-3], b"\xff" * 40):
        said = responder.dns_datagram(RECORDS, other)(wire, b"10.0.0.1:53")
        assert not isinstance(said, responder.Later)
