"""DNS for prober and responder: messages (RFC 1035), resolver files, and forwarding.

Only what a lab needs: queries for IPv4 addresses. Standard library only.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from lab.providers.netns.protocol import WireError

_ANSWER_SECONDS = 5
"""Time to live of an answer; CoreDNS uses the same for cluster names."""
_HEADER = struct.Struct("!6H")
_QUESTION_TAIL = struct.Struct("!HH")
_RECORD = struct.Struct("!HHIH")
"""Type, class, time to live, and length of the data."""
_A, _ANY, _INTERNET = 1, 255, 1
_RESPONSE, _AUTHORITATIVE, _CUT, _DESIRED = 0x8000, 0x0400, 0x0200, 0x0100
_OPCODE, _CODE = 0x7800, 0x000F
_OK, _FORMAT, _FAILURE, _NO_NAME, _NOT_IMPLEMENTED = 0, 1, 2, 3, 4
_CODES = {1: "FORMERR", 2: "SERVFAIL", 4: "NOTIMP", 5: "REFUSED"}
_LABEL_BYTES, _NAME_BYTES, _POINTER = 63, 255, 0xC0
_TO_QUESTION = struct.pack("!H", _POINTER << 8 | _HEADER.size)
"""A pointer to the name after the header."""

Labels = tuple[bytes, ...]
"""The labels of a domain name in lower case, without the root's empty label."""


def make_question(name: str, number: int) -> bytes:
    """A query for the IPv4 address of ``name``; ``number`` is its 16-bit id.

    Raises WireError if ``name`` is not a domain name.
    """
    head = _HEADER.pack(number, _DESIRED, 1, 0, 0, 0)
    return head + _encode_name(name) + _QUESTION_TAIL.pack(_A, _INTERNET)


def read_answer(wire: bytes, name: str, number: int) -> str | None:
    """The addresses in an answer, sorted and separated by commas.

    None if the name has none (NXDOMAIN, or no A record).

    Raises WireError if it answers another query, or the server returned an error.
    """
    try:
        given, flags, questions, answers, _, _ = _HEADER.unpack_from(wire)
        if given != number or not flags & _RESPONSE:
            raise WireError("an answer to a different query")
        code = flags & _CODE
        if code not in (_OK, _NO_NAME):
            raise WireError(f"the server answered {_CODES.get(code, f'error {code}')}")
        if questions != 1:
            raise WireError("an answer for a different name")
        labels, end = _read_labels(wire, _HEADER.size)
        if labels != _read_labels(_encode_name(name), 0)[0]:
            raise WireError("an answer for a different name")
        if flags & _CUT:
            raise WireError("the answer is truncated")
        addresses = _read_addresses(wire, end + _QUESTION_TAIL.size, answers)
        return ", ".join(socket.inet_ntoa(address) for address in sorted(addresses)) or None
    except (struct.error, IndexError):
        raise WireError(f"not a DNS answer: {len(wire)} bytes are too few") from None


def answer_question(wire: bytes, records: Mapping[str, Sequence[str]]) -> bytes | None:
    """Answer a query from ``records`` (lower-case name with final dot -> IPv4 addresses).

    NXDOMAIN for other names, no records for other types, NOTIMP for other opcodes,
    FORMERR for a malformed query; None if ``wire`` is shorter than a header, or is an answer.
    """
    if len(wire) < _HEADER.size:
        return None
    number, flags, questions, _, _, _ = _HEADER.unpack_from(wire)
    if flags & _RESPONSE:
        return None
    reply_flags = _RESPONSE | _AUTHORITATIVE | flags & (_OPCODE | _DESIRED)
    try:
        labels, kind, repeated = _only_question(wire, questions)
    except (WireError, struct.error, IndexError):
        return _HEADER.pack(number, reply_flags | _FORMAT, 0, 0, 0, 0)
    addresses = records.get(_text(labels))
    answers: list[bytes] = []
    if flags & _OPCODE:
        reply_flags |= _NOT_IMPLEMENTED
    elif addresses is None:
        reply_flags |= _NO_NAME
    elif kind in (_A, _ANY):
        answers = [_record(address) for address in addresses]
    return _HEADER.pack(number, reply_flags, 1, len(answers), 0, 0) + repeated + b"".join(answers)


def _record(address: str) -> bytes:
    data = socket.inet_aton(address)
    return _TO_QUESTION + _RECORD.pack(_A, _INTERNET, _ANSWER_SECONDS, len(data)) + data


def asked_name(wire: bytes) -> str | None:
    """The lower-case name, with final dot, that a query asks for; None if it is not a query."""
    try:
        _, flags, questions, _, _, _ = _HEADER.unpack_from(wire)
        return None if flags & _RESPONSE else _text(_only_question(wire, questions)[0])
    except (WireError, struct.error, IndexError):
        return None


def with_id(wire: bytes, number: int) -> bytes:
    """The message with ``number`` as its id."""
    return number.to_bytes(2) + wire[2:]


def message_id(wire: bytes) -> int:
    """A message's id: its first two bytes."""
    return int.from_bytes(wire[:2])


def servfail(question: bytes) -> bytes:
    """A SERVFAIL answer, for when no server could be asked."""
    number, flags, _, _, _, _ = _HEADER.unpack_from(question)
    reply_flags = _RESPONSE | flags & (_OPCODE | _DESIRED) | _FAILURE
    return _HEADER.pack(number, reply_flags, 1, 0, 0, 0) + _only_question(question, 1)[2]


def _only_question(wire: bytes, questions: int) -> tuple[Labels, int, bytes]:
    if questions != 1:
        raise WireError(f"{questions} questions")
    labels, end = _read_labels(wire, _HEADER.size)
    kind, _ = _QUESTION_TAIL.unpack_from(wire, end)
    return labels, kind, wire[_HEADER.size : end + _QUESTION_TAIL.size]


def _encode_name(name: str) -> bytes:
    labels = name.removesuffix(".").split(".") if name != "." else []
    try:
        parts = [label.encode("ascii") for label in labels]
    except UnicodeEncodeError:
        raise WireError(f"'{name}' is not a domain name: it has a non-ASCII character") from None
    if not all(0 < len(part) <= _LABEL_BYTES for part in parts):
        raise WireError(f"'{name}' is not a domain name: a label is empty or too long")
    wire = b"".join(bytes([len(part)]) + part for part in parts) + b"\0"
    if len(wire) > _NAME_BYTES:
        raise WireError(f"'{name}' is not a domain name: it is longer than {_NAME_BYTES} bytes")
    return wire


def _read_labels(wire: bytes, at: int) -> tuple[Labels, int]:
    """The name at offset ``at``, and the offset after it. Pointers only go back, so this ends."""
    labels: list[bytes] = []
    behind = None
    while length := wire[at]:
        if length >= _POINTER:
            to = (length & ~_POINTER) << 8 | wire[at + 1]
            behind = at + 2 if behind is None else behind
            if to >= at:
                raise WireError("not a DNS message: a name points forward")
            at = to
        elif length > _LABEL_BYTES:
            raise WireError("not a DNS message: unknown kind of label")
        else:
            label = wire[at + 1 : at + 1 + length]
            if len(label) < length:
                raise IndexError
            labels.append(label.lower())
            at += 1 + length
            if sum(map(len, labels)) + len(labels) >= _NAME_BYTES:
                raise WireError("not a DNS message: a name is too long")
    return tuple(labels), at + 1 if behind is None else behind


def _text(labels: Labels) -> str:
    """The name with its final dot; a dot within a label is escaped."""
    return "".join(label.replace(b".", b"\\.").decode("latin-1") + "." for label in labels)


def _read_addresses(wire: bytes, at: int, records: int) -> Iterator[bytes]:
    for _ in range(records):
        at = _read_labels(wire, at)[1]
        kind, _, _, length = _RECORD.unpack_from(wire, at)
        at += _RECORD.size
        data = wire[at : at + length]
        if len(data) < length:
            raise IndexError
        if kind == _A and length == 4:  # noqa: PLR2004  bytes of an IPv4 address
            yield data
        at += length


class ResolverFile(NamedTuple):
    """The contents of a resolv.conf. Only the first name server is used."""

    server: str | None
    search: tuple[str, ...]
    ndots: int


def read_resolver(text: str) -> ResolverFile:
    """Read a resolv.conf: ``nameserver``, ``search`` (the last one counts), ``options ndots:N``.

    Unknown lines are ignored and ``ndots`` is limited to 0..15, as in resolv.conf(5).
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
    """The names to query, in order, fully qualified with a final dot.

    A name with a final dot is the only candidate. A name with at least ``ndots`` dots comes before
    its combinations with the search domains, any other name after them.
    """
    if name.endswith("."):
        return (name,)
    searched = tuple(f"{name}.{domain}." for domain in resolver.search if domain)
    if name.count(".") >= resolver.ndots:
        return (f"{name}.", *searched)
    return (*searched, f"{name}.")


WAITING_LIMIT = 16_384
"""Unanswered queries to keep, a quarter of all ids; beyond it the oldest is dropped."""
_IDS = 1 << 16
_LONGEST = 65_535

Then = Callable[[bytes], None]


class Forwarder:
    """Forwards queries to one other name server.

    Parameters
    ----------
    sock
        A non-blocking datagram socket connected to that server.

    """

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._waiting: dict[int, tuple[bytes, Then]] = {}
        self._next = 0

    def ask(self, question: bytes, then: Then) -> None:
        """Forward a query; ``then`` receives the answer, if one arrives."""
        while len(self._waiting) >= WAITING_LIMIT:
            del self._waiting[next(iter(self._waiting))]
        while self._next in self._waiting:
            self._next = (self._next + 1) % _IDS
        number, self._next = self._next, (self._next + 1) % _IDS
        self._waiting[number] = question, then
        with suppress(OSError):  # lost like any other packet; hear() sees a refusal
            self.sock.send(with_id(question, number))

    def hear(self) -> bool:
        """Pass an answer of the server to the caller waiting for it; False if there is none."""
        try:
            wire = self.sock.recv(_LONGEST)
        except BlockingIOError:
            return False
        except OSError:  # nothing listens there: fail all waiting queries
            self._fail()
            return False
        question, then = self._waiting.pop(message_id(wire), (b"", None))
        if then is not None:
            then(with_id(wire, message_id(question)))
        return True

    def _fail(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for question, then in waiting.values():
            then(servfail(question))
