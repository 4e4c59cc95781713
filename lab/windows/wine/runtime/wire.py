"""Edit protobuf messages without their schema. Pure.

A message is its fields in order, so that whatever nobody edits passes through unchanged, in any
version of the CRI (protobuf.dev, Encoding).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5
_WIDTHS = {_EIGHT: 8, _FOUR: 4}


@dataclass(frozen=True, slots=True)
class Field:
    """One field: its number, and its bytes or its number."""

    number: int
    value: bytes | int
    width: int = 0
    """Bytes of a fixed-width value; 0 for others."""


Message = tuple[Field, ...]


def decode(data: bytes) -> Message:
    """The fields of a message; ValueError if it is cut short or has groups."""
    return tuple(_fields(data))


def _fields(data: bytes) -> Iterator[Field]:
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, kind = key >> 3, key & 7
        if kind == _VARINT:
            value, at = _varint(data, at)
            yield Field(number, value)
            continue
        if kind == _BYTES:
            length, at = _varint(data, at)
        elif kind in _WIDTHS:
            length = _WIDTHS[kind]
        else:
            raise ValueError(f"field {number} is of unknown kind {kind}")
        if at + length > len(data):
            raise ValueError(f"field {number} is cut short")
        yield Field(number, data[at : at + length], 0 if kind == _BYTES else length)
        at += length


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number, and where the next one begins."""
    value = shift = 0
    while True:
        if at >= len(data):
            raise ValueError("a number is cut short")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004  the last byte's highest bit is 0
            return value, at
        shift += 7


def encode(message: Message) -> bytes:
    """The bytes of a message."""
    return b"".join(_encoded(field) for field in message)


def _encoded(field: Field) -> bytes:
    value = field.value
    if isinstance(value, int):
        return _number(field.number << 3 | _VARINT) + _number(value)
    if field.width:
        kind = next(kind for kind, width in _WIDTHS.items() if width == field.width)
        return _number(field.number << 3 | kind) + value
    return _number(field.number << 3 | _BYTES) + _number(len(value)) + value


def _number(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:  # noqa: PLR2004  seven bits a byte
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def text(message: Message, number: int) -> str:
    """A text field; empty if it is missing."""
    return next(iter(texts(message, number)), "")


def texts(message: Message, number: int) -> tuple[str, ...]:
    """Every value of a repeated text field."""
    return tuple(
        field.value.decode()
        for field in message
        if field.number == number and isinstance(field.value, bytes)
    )


def without(message: Message, *numbers: int) -> Message:
    """The message without some fields."""
    return tuple(field for field in message if field.number not in numbers)


def with_texts(message: Message, number: int, values: tuple[str, ...]) -> Message:
    """The message with a text field replaced."""
    added = (Field(number, value.encode()) for value in values)
    return (*without(message, number), *added)


def with_message(message: Message, number: int, inner: Message) -> Message:
    """The message with a message field replaced."""
    return (*without(message, number), Field(number, encode(inner)))


def edited(message: Message, number: int, edit: Callable[[Message], Message]) -> Message:
    """The message with every value of a message field edited."""
    return tuple(
        replace(field, value=encode(edit(decode(field.value))))
        if field.number == number and isinstance(field.value, bytes)
        else field
        for field in message
    )
