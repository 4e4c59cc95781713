import json
import struct
from pathlib import Path
from typing import Any

import dns.flags
import dns.message
import dns.rcode
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.providers.netns import dns as lab_dns
from lab.providers.netns.protocol import WireError

CASES = Path(__file__).parent / "cases"
RECORDS = {
    "svc.ns.svc.k8s.": ("10.96.0.7",),
    "pods.ns.svc.k8s.": ("10.244.10.4", "10.244.9.4", "10.244.1.4"),
}


def cases(name: str) -> list[Any]:
    loaded: list[Any] = json.loads((CASES / name).read_text())
    return loaded


@pytest.mark.parametrize("case", cases("candidates.json"), ids=lambda case: case["case"])
def test_names_are_asked_in_the_order_of_a_stub_resolver(case):
    resolver = lab_dns.ResolverFile("10.96.0.10", tuple(case["search"]), case["ndots"])
    assert list(lab_dns.candidates(case["name"], resolver)) == case["asked"]


@pytest.mark.parametrize("case", cases("resolvers.json"), ids=lambda case: case["case"])
def test_a_resolver_file_is_read_as_resolv_conf(case):
    read = lab_dns.read_resolver(case["text"])
    assert (read.server, list(read.search), read.ndots) == (
        case["server"],
        case["search"],
        case["ndots"],
    )


def answered(name: str, number: int = 7) -> str | None:
    wire = lab_dns.answer_question(lab_dns.make_question(name, number), RECORDS)
    assert wire is not None
    return lab_dns.read_answer(wire, name, number)


@pytest.mark.parametrize(
    ("name", "addresses"),
    [
        ("svc.ns.svc.k8s.", "10.96.0.7"),
        ("SVC.ns.svc.K8S.", "10.96.0.7"),
        ("pods.ns.svc.k8s.", "10.244.1.4, 10.244.9.4, 10.244.10.4"),
        ("nobody.ns.svc.k8s.", None),
    ],
)
def test_a_name_is_answered_with_its_addresses_in_order(name, addresses):
    assert answered(name) == addresses


NOTIFY = bytearray(lab_dns.make_question("svc.ns.svc.k8s.", 0x1234))
NOTIFY[2] |= 4 << 3


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (dns.message.make_query("svc.ns.svc.k8s.", "AAAA", id=0x1234).to_wire(), "NOERROR"),
        (b"\x12\x34\x01\x00\x00\x01" + bytes(6), "FORMERR"),
        (struct.pack("!6H", 0x1234, 0, 0, 0, 0, 0), "FORMERR"),
        (bytes(NOTIFY), "NOTIMP"),
    ],
    ids=["no such record", "unreadable", "no question", "no query"],
)
def test_what_has_no_answer_has_a_code(asked, code):
    wire = lab_dns.answer_question(asked, RECORDS)
    assert wire is not None
    message = dns.message.from_wire(wire)
    assert (message.id, message.rcode().name, message.answer) == (0x1234, code, [])


def test_answers_and_scraps_are_not_answered():
    reply = lab_dns.answer_question(lab_dns.make_question("svc.ns.svc.k8s.", 7), RECORDS)
    assert reply is not None
    assert lab_dns.answer_question(reply, RECORDS) is None
    assert lab_dns.answer_question(b"\x00" * 11, RECORDS) is None


@given(st.binary(min_size=0, max_size=80))
def test_no_packet_upsets_the_name_server(wire):
    lab_dns.answer_question(wire, RECORDS)
    lab_dns.answer_question(lab_dns.make_question("svc.ns.svc.k8s.", 7)[:20] + wire, RECORDS)


@given(st.binary(min_size=0, max_size=80))
def test_no_packet_upsets_the_asker(wire):
    for packet in (wire, struct.pack("!H", 7) + b"\x81\x80" + wire):
        try:
            lab_dns.read_answer(packet, "svc.", 7)
        except WireError:
            continue


def message(name: str = "svc.", number: int = 7, flags: int = dns.flags.QR) -> dns.message.Message:
    made = dns.message.make_query(name, "A", id=number)
    made.flags |= flags
    return made


def refused(answer: dns.message.Message) -> str:
    with pytest.raises(WireError) as caught:
        lab_dns.read_answer(answer.to_wire(), "svc.", 7)
    return str(caught.value)


def test_an_answer_to_something_else_is_not_taken():
    assert refused(message(number=8)) == "an answer to a different query"
    assert refused(message(flags=0)) == "an answer to a different query"
    assert refused(message("other.")) == "an answer for a different name"
    assert refused(message(flags=dns.flags.QR | dns.flags.TC)) == "the answer is truncated"


def test_a_server_that_cannot_answer_is_quoted():
    failed = message()
    failed.set_rcode(dns.rcode.SERVFAIL)
    assert refused(failed) == "the server answered SERVFAIL"


@pytest.mark.parametrize("name", ["a..b.", "x" * 64 + "."])
def test_what_is_no_domain_name_cannot_be_asked(name):
    with pytest.raises(WireError, match="is not a domain name"):
        lab_dns.make_question(name, 7)
