"""DNS as a stub resolver and as the lab's name server see it; pure functions on text and bytes.

dnspython takes 50 ms to import, so it is imported by those who have a name to ask or answer.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import NamedTuple  # dataclasses costs 10 ms at the responder's start

_ANSWER_SECONDS = 5
"""Time to live of an answer; what CoreDNS gives for cluster names."""
_HEADER_BYTES = 12
_QR_FORMERR = 0x8001
_LENGTH = struct.Struct("!H")


class NameWireError(ValueError):
    """An answer that cannot be used; the text says why, a clause without a full stop."""


class ResolverFile(NamedTuple):
    """What a resolv.conf says. Of several name servers the first is asked, as nothing else is."""

    server: str | None
    search: tuple[str, ...]
    ndots: int


def read_resolver(text: str) -> ResolverFile:
    """Read a resolv.conf: ``nameserver``, ``search`` (the last one counts), ``options ndots:N``.

    Unknown lines are passed over and ``ndots`` is held to 0..15, as resolv.conf(5) has it.
    """
    servers: list[str] = []
    search: tuple[str, ...] = ()
    ndots = 1
    for line in text.splitlines():
        match line.split():
            case ["nameserver", server, *_]:
                servers.append(server)
            case ["search" | "domain", *domains]:
                search = tuple(domain.rstrip(".") for domain in domains)
            case ["options", *options]:
                for option in options:
                    name, _, value = option.partition(":")
                    if name == "ndots" and value.isdigit():
                        ndots = min(int(value), 15)
    return ResolverFile(servers[0] if servers else None, search, ndots)


def candidates(name: str, resolver: ResolverFile) -> tuple[str, ...]:
    """The names to ask for, in order, fully qualified with their final dot.

    A name with its final dot is asked as it is. One with at least ``ndots`` dots is asked
    as it is first and with each search domain after; any other the other way round.
    """
    if name.endswith("."):
        return (name,)
    searched = tuple(f"{name}.{domain}." for domain in resolver.search if domain)
    if name.count(".") >= resolver.ndots:
        return (f"{name}.", *searched)
    return (*searched, f"{name}.")


def question(name: str, number: int) -> bytes:
    """A question for the IPv4 address of ``name``; ``number`` is its 16-bit id.

    Raises
    ------
    NameWireError
        If ``name`` is no domain name.

    """
    import dns.exception
    import dns.message

    try:
        return dns.message.make_query(name, "A", id=number).to_wire()
    except dns.exception.DNSException as error:
        raise NameWireError(f"'{name}' is no domain name: {error}") from None


def read_answer(wire: bytes, name: str, number: int) -> str | None:
    """The address in an answer; None if the name has none (NXDOMAIN, or no A record).

    Raises
    ------
    NameWireError
        If it is no answer to this question, or the server could not answer.

    """
    import dns.exception
    import dns.flags
    import dns.message
    import dns.name
    import dns.rcode
    import dns.rdatatype

    try:
        message = dns.message.from_wire(wire)
    except (dns.exception.DNSException, ValueError, IndexError, struct.error) as error:
        raise NameWireError(f"no DNS answer: {type(error).__name__}") from None
    asked = [one.name for one in message.question]
    if message.id != number or not message.flags & dns.flags.QR:
        raise NameWireError("an answer to another question")
    code = message.rcode()
    if code not in (dns.rcode.NOERROR, dns.rcode.NXDOMAIN):
        raise NameWireError(f"the server says {dns.rcode.to_text(code)}")
    if asked != [dns.name.from_text(name)]:
        raise NameWireError("an answer for another name")
    if message.flags & dns.flags.TC:
        raise NameWireError("the answer is cut short")
    found = (str(one[0]) for one in message.answer if one.rdtype == dns.rdatatype.A)
    return next(found, None)


def answer(wire: bytes, records: Mapping[str, str]) -> bytes | None:
    """Answer a question from ``records`` (lower-case name with its final dot -> IPv4 address).

    NXDOMAIN for other names, no records for other types, NOTIMP for other than queries,
    FORMERR for what cannot be read; None for what is not even a header, or is an answer.
    """
    import dns.exception
    import dns.flags
    import dns.message
    import dns.opcode
    import dns.rcode
    import dns.rdatatype
    import dns.rrset

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


def frame(wire: bytes) -> bytes:
    """A message as TCP carries it: its length in two bytes before it."""
    return _LENGTH.pack(len(wire)) + wire


def unframe(data: bytes | bytearray) -> bytes | None:
    """The message at the head of what TCP brought; None while it is incomplete."""
    if len(data) < _LENGTH.size:
        return None
    end = _LENGTH.size + _LENGTH.unpack_from(data)[0]
    return bytes(data[_LENGTH.size : end]) if len(data) >= end else None
