"""Parse a YAML file into a document with the position of every key.

The parser uses ruamel.yaml's events, so that positions, duplicate keys and limits are handled in
one pass. Plain scalars follow the YAML 1.2 core schema. Anchors, aliases and tags are refused: no
scenario needs them, and without them a small file cannot become a large tree.
"""

from __future__ import annotations

import errno
import io
import os
import re
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from lab.scenario.findings import (
    YAML_LANGUAGE,
    Document,
    FileFinding,
    FileKind,
    Key,
    Position,
    quoted,
)
from lab.state.failure import exhausted

MAX_BYTES = 256 * 1024
"""Largest file read. A scenario of a thousand nodes, one per line, takes a quarter of it."""

UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class StopError(Exception):
    """The file cannot be read further; carries the finding that says why."""

    def __init__(self, finding: FileFinding) -> None:
        self.finding = finding
        super().__init__(finding)


def read_bytes(
    path: Path, kind: FileKind, look: Callable[[int], None] = lambda _descriptor: None
) -> bytes:
    """The bytes of a file, at most one more than :data:`MAX_BYTES`; the null device is empty.

    ``look`` is called with the open file's descriptor before it is read.

    Raises StopError when it does not exist, is not a regular file, or cannot be read. Raises
    OSError when its name is too long for a file, PreflightError when a resource of the machine is
    used up.
    """
    try:
        with open(path, "rb", opener=_at_once) as file:
            mode = os.fstat(file.fileno()).st_mode
            if not stat.S_ISREG(mode) and str(path) != os.devnull:
                raise _whole_file_error(
                    "this is no regular file", f"give the path of the {kind.noun} file"
                )
            look(file.fileno())
            raw = file.read(MAX_BYTES + 1)
    except IsADirectoryError:
        raise _whole_file_error(
            "this is a directory", f"give the path of the {kind.noun} file"
        ) from None
    except FileNotFoundError:
        raise _whole_file_error("there is no such file", kind.absent) from None
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
            raise  # a finding would repeat the long name
        if shortage := exhausted(error, f"reading '{path}'"):
            raise shortage from error
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise _whole_file_error(
            f"it cannot be read: {reason}", "check the path and its permissions"
        ) from None
    return raw


def _at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # do not wait for the writer of a pipe


def decode(raw: bytes, kind: FileKind) -> str:
    """The text of a file's bytes.

    Raises StopError when the file is too large, or at the first byte that is not UTF-8 or character
    that is not allowed in such a file.
    """
    if len(raw) > MAX_BYTES:
        raise _whole_file_error(f"the file is larger than {MAX_BYTES // 1024} KiB", kind.large)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        at = after(raw[: error.start].decode("utf-8-sig", errors="replace"))
        message = f"the byte 0x{raw[error.start]:02x} here is not UTF-8"
        hint = "save the file as UTF-8"
        raise StopError(FileFinding((), at.line, at.col, message, hint)) from None
    bad = UNPRINTABLE.search(text)
    if bad:
        at = after(text[: bad.start()])
        code = f"U+{ord(bad.group()):04X}"
        message = f"the character {code} here cannot be part of a {kind.language.name} file"
        raise StopError(FileFinding((), at.line, at.col, message, "delete it"))
    return text


def after(before: str) -> Position:
    """The position of the character that follows ``before``."""
    return Position(before.count("\n") + 1, len(before) - before.rfind("\n"))


def _whole_file_error(message: str, hint: str) -> StopError:
    return StopError(FileFinding((), 0, 0, message, hint))


_TAB = ("the indentation contains a tab", "replace it with spaces")

_WORDS: tuple[tuple[str, str, str], ...] = (
    (
        "mapping values are not allowed",
        'no value can begin at this ":"',
        'align this line with the keys around it, or put text that holds ": " in quotes',
    ),
    (
        "could not find expected ':'",
        'this line has no ":" after its key',
        'write "key: value", and align it with the keys around it',
    ),
    (
        "expected <block end>",
        "this line is not aligned with the ones it belongs to",
        'give it the same indentation; entries of a list all begin with "- "',
    ),
    (
        "sequence entries are not allowed",
        'a list entry ("- ") cannot begin here',
        "put it on a line of its own below its key",
    ),
    (
        "expected ',' or",
        'the "[" or "{" opened here has no end',
        "close it, or put a comma between its entries",
    ),
    (
        "unexpected end of stream",
        "the quote opened here is never closed",
        "close it, on the same line",
    ),
    (
        "unknown escape character",
        "the backslash in these double quotes begins no known escape",
        "use single quotes instead",
    ),
    (
        "cannot start any token",
        "no value can begin with this character",
        "put the value in quotes",
    ),
)

_AT_START = ("end of stream", "find expected ':'", "expected ',' or")
"""Problems reported where the construct began, not where the parser gave up."""


def finding(error: MarkedYAMLError, text: str) -> FileFinding:
    """The finding of a syntax error, at the position to correct."""
    problem = str(error.problem or error.context or "it cannot be parsed")
    mark = error.problem_mark or error.context_mark
    if error.context_mark is not None and any(part in problem for part in _AT_START):
        mark = error.context_mark
    line = mark.line if mark else 0
    col = mark.column if mark else 0
    tab = _tab_near(text, line)
    if tab:
        return FileFinding((), *tab, *_TAB)
    for part, message, hint in _WORDS:
        if part in problem:
            return FileFinding((), line + 1, col + 1, message, hint)
    message = f"this is not YAML: {quoted(problem)}"
    return FileFinding(
        (), line + 1, col + 1, message, "correct this line, or put its value in quotes"
    )


def _tab_near(text: str, line: int) -> tuple[int, int] | None:
    """Position of a tab in the indentation of the line in error or the one before it."""
    rows = text.split("\n")
    for number in (line, line - 1):
        if 0 <= number < len(rows):
            row = rows[number]
            indent = row[: len(row) - len(row.lstrip(" \t"))]
            if "\t" in indent:
                return number + 1, indent.index("\t") + 1
    return None


MAX_DEPTH = 12
"""Deepest nesting read; a scenario needs 6."""

SCENARIO = FileKind(
    noun="scenario",
    language=YAML_LANGUAGE,
    absent="check the path, or give the name of a shipped scenario",
    large='no scenario needs this much: use "count" for nodes that are alike',
    entries={
        "nodes": "node group",
        "shared": "shared service",
        "special": "special service",
        "ports": "port",
        "nics": "network card",
        "routes": "route",
        "assertions": "assertion",
        "links": "link",
    },
    other_entry="exception",
    repeated='write each value out, or use "count" for nodes that are alike',
)
_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_BOOL = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INT = re.compile(r"[-+]?[0-9]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]{1,3})?")
_INT_DIGITS = 18
"""Digits kept of an integer: beyond every bound, but short enough for Python to convert."""


def read(path: Path, kind: FileKind = SCENARIO) -> tuple[Document | None, tuple[FileFinding, ...]]:
    """The document of a file, or None with the finding that says why."""
    try:
        raw = read_bytes(path, kind)
    except StopError as stop:
        return None, (stop.finding,)
    return parse(raw, kind)


def parse(raw: bytes, kind: FileKind = SCENARIO) -> tuple[Document | None, tuple[FileFinding, ...]]:
    """The document of a file's bytes, or None with the findings that say why."""
    try:
        reader = _Reader(decode(raw, kind), kind)
        reader.run()
    except StopError as stop:
        return None, (stop.finding,)
    return reader.document, tuple(reader.document.problems)


class _Reader:
    """Turns ruamel's events into a :class:`Document`."""

    def __init__(self, text: str, kind: FileKind) -> None:
        self.document = Document()
        self._kind = kind
        self._text = text
        self._seen = Position(1, 1)
        self._events = self._noting(YAML(typ="safe", pure=True).parse(io.StringIO(text)))

    def _noting(self, events: Iterator[Event]) -> Iterator[Event]:
        """The events, recording the position of each: some errors do not have one."""
        for event in events:
            self._seen = self._at(event)
            yield event

    def run(self) -> None:
        """Fill the document; turn every parser error into StopError."""
        try:
            self._run()
        except MarkedYAMLError as error:
            raise StopError(finding(error, self._text)) from None
        except (YAMLError, ValueError, ArithmeticError, LookupError, TypeError, AttributeError):
            # ruamel.yaml raises plain errors on some broken input, such as an invalid escape
            message = "invalid YAML here, or right after it"
            hint = "look for a stray character, or an escape (backslash) in double quotes"
            at = self._seen
            raise StopError(FileFinding((), at.line, at.col, message, hint)) from None

    def _run(self) -> None:
        documents = 0
        for event in self._events:
            if isinstance(event, DocumentStartEvent):
                documents += 1
                if documents > 1:
                    message = "a second document begins here"
                    self._problem(event, (), message, f"keep one {self._kind.noun} a file")
                    return
            elif documents and not self.document.values:
                self._top(event)
        if not documents:
            self._nothing()

    def _top(self, event: Event) -> None:
        value = self._node(event, ())
        if value is None:
            self._nothing()
        elif isinstance(value, dict):
            self.document.value = value
        else:
            kind = "a list" if isinstance(value, list) else "a single value"
            message = f"a {self._kind.noun} is a mapping of keys and values, and this is {kind}"
            self._stop(event, (), message, f'begin with "name: {self._kind.example}"')

    def _nothing(self) -> NoReturn:
        hint = f'write one, beginning with "name: {self._kind.example}" and "summary: ..."'
        raise StopError(FileFinding((), 1, 1, f"the file holds no {self._kind.noun}", hint))

    def _node(self, event: Event, key: Key) -> object:
        self._refuse(event, key)
        self.document.values[key] = self._at(event)
        if isinstance(event, MappingStartEvent):
            return self._mapping(key)
        if isinstance(event, SequenceStartEvent):
            return self._sequence(key)
        assert isinstance(event, ScalarEvent)
        return self._scalar(event, key)

    def _mapping(self, key: Key) -> dict[str, object]:
        mapping: dict[str, object] = {}
        for event in self._events:
            if isinstance(event, MappingEndEvent):
                break
            self._refuse(event, key)
            if not isinstance(event, ScalarEvent):
                self._stop(event, key, "a key must be plain text", 'write "key: value"')
            name = self._text_of(event, key)
            child = (*key, name)
            if name == "<<":
                self._stop(event, key, '"<<" merges are not read', "write the keys out")
            if name in mapping:
                first = self.document.keys[child]
                message = f"{quoted(name)} is repeated; first at {first.line}:{first.col}"
                self._problem(event, child, message, "keep one of the two")
                self._skip(child)
                continue
            self.document.keys[child] = self._at(event)
            mapping[name] = self._node(next(self._events), child)
        return mapping

    def _skip(self, key: Key) -> None:
        """Read the value of a repeated key, and keep only its problems."""
        kept = self.document
        self.document = Document(problems=kept.problems)
        self._node(next(self._events), key)
        self.document = kept

    def _sequence(self, key: Key) -> list[object]:
        items: list[object] = []
        for event in self._events:
            if isinstance(event, SequenceEndEvent):
                break
            items.append(self._node(event, (*key, len(items))))
        return items

    def _scalar(self, event: ScalarEvent, key: Key) -> object:
        text = self._text_of(event, key)
        self.document.texts[key] = text
        return text if event.style else _resolve_text(text)

    def _text_of(self, event: Any, key: Key) -> str:
        """The text of a scalar (an attribute missing from ruamel's annotations)."""
        text = str(event.value)
        bad = UNPRINTABLE.search(text)
        if bad:
            message = f"this text holds the character U+{ord(bad.group()):04X}"
            self._problem(event, key, message, "delete it")
        return UNPRINTABLE.sub("", text)

    def _refuse(self, event: Event, key: Key) -> None:
        """Stop at anything not supported: anchors, aliases, tags and deep nesting."""
        if isinstance(event, AliasEvent) or getattr(event, "anchor", None):
            message = f'anchors ("&") and aliases ("*") are not read in {self._kind.noun} files'
            self._stop(event, key, message, self._kind.repeated)
        if getattr(event, "tag", None):
            message = f'tags ("!") are not read in {self._kind.noun} files'
            self._stop(event, key, message, "delete the tag")
        if len(key) > MAX_DEPTH:
            message = f"this is nested more than {MAX_DEPTH} levels deep"
            self._stop(event, key, message, "close the brackets, or correct the indentation")

    def _at(self, event: Event) -> Position:
        return Position(event.start_mark.line + 1, event.start_mark.column + 1)

    def _problem(self, event: Event, key: Key, message: str, hint: str) -> None:
        at = self._at(event)
        self.document.problems.append(FileFinding(key, at.line, at.col, message, hint))

    def _stop(self, event: Event, key: Key, message: str, hint: str) -> NoReturn:
        at = self._at(event)
        raise StopError(FileFinding(key, at.line, at.col, message, hint))


def _resolve_text(text: str) -> object:
    """The value of a plain scalar."""
    if text in _NULL:
        return None
    if text in _BOOL:
        return _BOOL[text]
    if _INT.fullmatch(text):
        return int(text[: _INT_DIGITS + 1])
    if _FLOAT.fullmatch(text):
        return float(text)
    return text
