"""Values as JSON, and back as the types that the reader expects.

A process inside a lab answers in this form. A program there may write into the same pipe, so
reading runs no code: it gives a value of exactly the expected type, or an error. Standard library
only, as agents on nodes use it.
"""

from __future__ import annotations

import json
import os
import traceback
from base64 import b64decode, b64encode
from collections.abc import Callable, Hashable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache, partial
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from lab import _errors
from lab._dataclass import dataclass
from lab._errors import LabError
from lab.state.failure import resource

T = TypeVar("T")
Reader = Callable[[Any], Any]
"""Makes a value of one type of what JSON gives; raises ValueError if it is none."""


def encode(value: object) -> bytes:
    """The value as JSON: a dataclass as an object, bytes as base64, sets and tuples as lists."""
    return json.dumps(value, default=plain).encode()


def plain(value: Any) -> object:
    """What JSON has instead of a dataclass, bytes or a set.

    Raises TypeError for any other value.
    """
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, set | frozenset):
        return [*value]
    return {field.name: getattr(value, field.name) for field in fields(value)}


def decode(data: bytes, kind: type[T]) -> T:
    """The value of type ``kind`` that :func:`encode` was given.

    ``kind`` is made of None, bool, int, float, str, bytes, Literal, tuple, list, set, frozenset,
    dict or Mapping with text or whole numbers as keys, dataclasses, and unions of these.

    Raises ValueError when the data is not a value of that type.
    """
    read: Callable[[Any], T] = _reader(cast(Hashable, kind))
    try:
        return read(json.loads(data))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


@cache
def _reader(kind: Any) -> Reader:
    """The reader of a type; raises TypeError for one that has none."""
    if kind in _READERS:
        return _READERS[kind]
    if is_dataclass(kind):
        return _record(kind)
    if get_origin(kind) is Literal:
        return _literal(get_args(kind))
    return _generic(kind, get_origin(kind), get_args(kind))


def _generic(kind: Any, origin: Any, arguments: tuple[Any, ...]) -> Reader:
    if origin in {Union, UnionType}:
        return _union([_reader(argument) for argument in arguments])
    if origin is tuple and arguments[1:] != (...,):
        return _make_tuple_reader([_reader(argument) for argument in arguments])
    if origin in {tuple, list, set, frozenset}:
        return _several(origin, _reader(arguments[0]))
    if origin in {dict, Mapping} and arguments[0] in {str, int}:
        return _make_mapping_reader(arguments[0], _reader(arguments[1]))
    raise TypeError(f"no value of type {kind} can be read")


def _require_type(kind: type, value: Any) -> Any:
    if type(value) is not kind:
        raise ValueError(f"{kind.__name__} is wanted, not {type(value).__name__}")
    return value


def _number(value: Any) -> float:
    try:
        return float(_require_type(int if isinstance(value, int) else float, value))
    except OverflowError as error:
        raise ValueError(str(error)) from None


_READERS: Mapping[Any, Reader] = {
    **{kind: partial(_require_type, kind) for kind in (bool, int, str, NoneType)},
    None: partial(_require_type, NoneType),
    float: _number,
    bytes: lambda value: b64decode(_require_type(str, value), validate=True),
}


def _record(kind: Any) -> Reader:
    hints = get_type_hints(kind)
    readers = {field.name: _reader(hints[field.name]) for field in fields(kind)}

    def read(value: Any) -> Any:
        if _require_type(dict, value).keys() != readers.keys():
            raise ValueError(f"these are not the fields of {kind.__name__}")
        return kind(**{name: reader(value[name]) for name, reader in readers.items()})

    return read


def _literal(words: tuple[Any, ...]) -> Reader:
    def read(value: Any) -> Any:
        for word in words:
            if type(word) is type(value) and word == value:
                return word
        raise ValueError(f"it is none of {', '.join(map(str, words))}")

    return read


def _union(readers: list[Reader]) -> Reader:
    def read(value: Any) -> Any:
        reasons = []
        for reader in readers:
            try:
                return reader(value)
            except ValueError as error:
                reasons.append(str(error))
        raise ValueError("; ".join(reasons))

    return read


def _make_tuple_reader(readers: list[Reader]) -> Reader:
    def read(value: Any) -> Any:
        if len(_require_type(list, value)) != len(readers):
            raise ValueError(f"{len(readers)} values are wanted, not {len(value)}")
        return tuple(reader(part) for reader, part in zip(readers, value, strict=True))

    return read


def _several(collection: type, reader: Reader) -> Reader:
    def read(value: Any) -> Any:
        return collection(reader(part) for part in _require_type(list, value))

    return read


def _make_mapping_reader(keys: type, reader: Reader) -> Reader:
    def read(value: Any) -> Any:
        return {keys(key): reader(part) for key, part in _require_type(dict, value).items()}

    return read


@dataclass(frozen=True, slots=True)
class Failure:
    """An exception as a value."""

    name: str
    """Its class: one of :data:`_RAISED`, or that of any other."""
    words: tuple[str, str, str]
    """What a LabError says; else its text, and for an OSError the file."""
    number: int | None
    """The errno of an OSError."""
    trace: str

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """The exception as a value."""
        classes = (kind.__name__ for kind in type(error).__mro__)
        name = next((name for name in classes if name in _RAISED), type(error).__name__)
        words, number = (str(error), "", ""), None
        if isinstance(error, LabError):
            words = (error.doing, error.happened, error.hint)
        elif isinstance(error, OSError) and error.errno is not None:
            file = error.filename
            named = (
                ""
                if file is None
                else os.fsdecode(file)
                if isinstance(file, str | bytes)
                else str(file)
            )
            words, number = (error.strerror or "", named, ""), error.errno
        elif isinstance(error, RuntimeError) and (lacking := resource(error)):
            name, words, number = OSError.__name__, (os.strerror(lacking), "", ""), lacking
        return cls(name, words, number, "".join(traceback.format_exception(error)))

    def error(self) -> Exception:
        """The exception again; RuntimeError for one that is not in :data:`_RAISED`."""
        kind = _RAISED.get(self.name)
        error: Exception
        if kind is None:
            error = RuntimeError(f"{self.name}: {self.words[0]}")
        elif issubclass(kind, LabError):
            error = kind(*self.words)
        elif self.number is None:
            error = kind(self.words[0])
        else:
            error = OSError(self.number, self.words[0], self.words[1] or None)
        error.add_note(self.trace)
        return error


_RAISED: Mapping[str, type[Exception]] = {
    kind.__name__: kind
    for kind in (
        LabError,
        _errors.UsageError,
        _errors.BrokenError,
        _errors.DeadlineError,
        _errors.MatrixError,
        _errors.PreflightError,
        _errors.StateError,
        OSError,
        MemoryError,
    )
}
"""What is raised again as itself, by name; a subclass is raised as the nearest of these."""
