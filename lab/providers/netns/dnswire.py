"""DNS messages: questions and answers of prober and responder.

Pure functions on bytes. dnspython takes 50 ms to import, so this module is imported by those
who have a name to ask for or to answer, when they have.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

import dns.exception
import dns.flags
import dns.message
import dns.name
import dns.opcode
import dns.rcode
import dns.rdatatype
import dns.rrset

from lab.providers.netns.protocol import WireError

_ANSWER_SECONDS = 5
"""Time to live of an answer; what CoreDNS gives for cluster names."""
_HEADER_BYTES = 12
_QR_FORMERR = 0x8001


def question(name: str, number: int) -> bytes:
    """A question for the IPv4 address of ``name``; ``number`` is its 16-bit id.

    Raises
    ------
    WireError
        If ``name`` is no domain name.

    """
    try:
        return dns.message.make_query(name, "A", id=number).to_wire()
    except dns.exception.DNSException as error:
        raise WireError(f"'{name}' is no domain name: {error}") from None


def read_answer(wire: bytes, name: str, number: int) -> str | None:
    """The address in an answer; None if the name has none (NXDOMAIN, or no A record).

    Raises
    ------
    WireError
        If it is no answer to this question, or the server could not answer.

    """
    try:
        message = dns.message.from_wire(wire)
    except (dns.exception.DNSException, ValueError, IndexError, struct.error) as error:
        raise WireError(f"no DNS answer: {type(error).__name__}") from None
    asked = [one.name for one in message.question]
    if message.id != number or not message.flags & dns.flags.QR:
        raise WireError("an answer to another question")
    code = message.rcode()
    if code not in (dns.rcode.NOERROR, dns.rcode.NXDOMAIN):
        raise WireError(f"the server says {dns.rcode.to_text(code)}")
    if asked != [dns.name.from_text(name)]:
        raise WireError("an answer for another name")
    if message.flags & dns.flags.TC:
        raise WireError("the answer is cut short")
    found = (str(one[0]) for one in message.answer if one.rdtype == dns.rdatatype.A)
    return next(found, None)


def answer(wire: bytes, records: Mapping[str, str]) -> bytes | None:
    """Answer a question from ``records`` (lower-case name with its final dot -> IPv4 address).

    NXDOMAIN for other names, no records for other types, NOTIMP for other than queries,
    FORMERR for what cannot be read; None for what is not even a header, or is an answer.
    """
    if len(wire) < _HEADER_BYTES or wire[2] & 0x80:
        return None
    try:
        query = dns.message.from_wire(wire)
        response = dns.message.make_response(query)
    except (dns.exception.DNSException, ValueError, IndexError, struct.error):
        return struct.pack("!2sHHHHH", wire[:2], _QR_FORMERR, 0, 0, 0, 0)
    response.flags |= dns.flags.AA
    if query.opcode() != dns.opcode.QUERY:
        response.set_rcode(dns.rcode.NOTIMP)
    elif len(query.question) != 1:
        response.set_rcode(dns.rcode.FORMERR)
    else:
        asked = query.question[0]
        address = records.get(asked.name.to_text().lower())
        if address is None:
            response.set_rcode(dns.rcode.NXDOMAIN)
        elif asked.rdtype in (dns.rdatatype.A, dns.rdatatype.ANY):
            response.answer.append(
                dns.rrset.from_text(asked.name, _ANSWER_SECONDS, "IN", "A", address)
            )
    return response.to_wire()
