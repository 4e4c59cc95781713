"""A TOML file as a document with every position.

The standard library reads the values and judges the syntax; it gives no positions. Where it is
content, a scan of the same text finds where every key and value stands: on valid text that is a
matter of a few patterns.
"""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_left
from dataclasses import dataclass

from lab.scenario.findings import Document, FileFinding, Key, Position, quoted

_PLACE = re.compile(r" \(at (?:line (?P<line>\d+), column (?P<col>\d+)|end of document)\)$")
_REPEATS = ("Cannot overwrite", "Cannot declare", "Duplicate inline table key", "Cannot mutate")
_UNQUOTED = re.compile(r"""[^=#"']*=[ \t]*(?P<value>[^\s"'\[{#][^#\n]*)""")

_WORDS: tuple[tuple[str, str, str], ...] = (
    (
        "Expected '=' after a key",
        'this line has no "=" after its key',
        "write key = value; a key with anything but letters, digits, _ and - stands in quotes",
    ),
    (
        "at the end of a table declaration",
        'the "[" that opens this table is not closed',
        "write [name], alone on its line",
    ),
    ("Illegal character '\\n'", "the quote opened here is never closed", "close it on this line"),
    ("Unescaped '\\'", "this backslash begins no known escape", "use single quotes instead"),
    ("Invalid initial character for a key", "no key can begin here", "write key = value"),
    ("Invalid statement", "no line can begin with this", "write key = value, or [table]"),
    ("Unclosed array", 'the "[" opened here has no end', "close it, or put a comma in between"),
    ("Unclosed inline table", 'the "{" opened here has no end', "close it on the same line"),
    ("Invalid value", "no value begins with this", "write text in quotes"),
    ("Expected newline", "nothing more can stand on this line", "delete it, or begin a new line"),
    ("(at end of document)", "something opened above has no end", "close the quote or bracket"),
)


def is_repeat(error: Exception) -> bool:
    """Whether the parser complains of something that stands twice."""
    return str(error).startswith(_REPEATS)


def repeated_name(error: Exception, otherwise: str) -> str:
    """What stands twice within brackets, in quotes."""
    found = re.search(r"inline table key '(.*)'", str(error))
    return quoted(found[1] if found else otherwise)


def error_position(error: Exception, text: str) -> Position:
    """Where the parser has stopped."""
    found = _PLACE.search(str(error))
    if found is None or found["line"] is None:
        lines = text.rstrip("\n").split("\n")
        return Position(len(lines), len(lines[-1]) + 1)
    return Position(int(found["line"]), int(found["col"]))


def finding(error: Exception, text: str) -> FileFinding:
    """The one finding of a syntax error, at the place to mend."""
    at = error_position(error, text)
    said = str(error)
    line = text.split("\n")[at.line - 1]
    bare = _UNQUOTED.match(line)
    if bare and bare.start("value") < at.col and _is_about_a_value(said):
        what = "this value is no number, nor true or false, and has no quotes"
        return FileFinding((), at.line, bare.start("value") + 1, what, "put it in quotes")
    if said.startswith("Invalid value") and not line[at.col - 1 :].strip():
        return FileFinding(
            (), at.line, at.col, "there is no value here", "write one, text in quotes"
        )
    for part, what, hint in _WORDS:
        if part in said.replace("\n", "\\n"):
            return FileFinding((), at.line, at.col, what, hint)
    problem = _PLACE.sub("", said)
    what = f"this is not TOML: {quoted(problem)}"
    return FileFinding((), at.line, at.col, what, "mend this line, or put its value in quotes")


def _is_about_a_value(said: str) -> bool:
    return said.startswith(("Invalid value", "Expected newline or end of document"))


_SPACE = re.compile(r"[ \t]*")
_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_HEADER = re.compile(r"(\[\[?)[ \t]*")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_STRING = re.compile(
    r'"""(?:[^\\]|\\.)*?"{3,5}(?!")'
    r"|'''.*?'{3,5}(?!')"
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|'[^'\n]*'",
    re.DOTALL,
)
_PLAIN = re.compile(r"[^,\]}#\n\r]*[^,\]}#\s]")
_LONG = re.compile(
    r"""(?<![\w"'.-])(?:(?:[\w-]++|"[^"\n]*"|'[^'\n]*')[ \t]*+\.[ \t]*+){32}""", re.ASCII
)
"""A dotted key that is deeper than any inventory: its reader takes hours over thousands of dots."""
_TOML_REPEATS = 10
"""Repeated keys told of one file."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """One key of the file, or one header, and which characters it is."""

    key: Key
    start: int
    end: int
    header: bool


def parse(text: str) -> tuple[Document | None, tuple[FileFinding, ...]]:
    """The tree of a TOML text, or None with the findings that say why there is none.

    A key that stands twice is told, and the second one left out, so that the rest is read.
    """
    told: list[FileFinding] = []
    text = text.replace("\r\n", "\n")
    long = _LONG.search(text)
    if long:
        place = _Scan(text).place(long.start())
        what = "this key has more than 32 parts"
        return None, (FileFinding((), place.line, place.col, what, "write it with fewer dots"),)
    try:
        while True:
            try:
                value = tomllib.loads(text)
                break
            except tomllib.TOMLDecodeError as error:
                repeat = _repeated(text, error) if len(told) < _TOML_REPEATS else None
                if repeat is None:
                    return None, (*told, finding(error, text))
                told.append(repeat.finding)
                hole = re.sub(r"[^\n]", " ", text[repeat.start : repeat.end])
                text = text[: repeat.start] + hole + text[repeat.end :]
        document = _scanned(text).document
    except RecursionError:
        what = "the brackets in this file are nested too deeply"
        return None, (FileFinding((), 0, 0, what, "write it with fewer brackets"),)
    except ValueError:  # of Python itself, which reads no more digits than that
        what = "a number in this file has more than 4300 digits"
        return None, (*told, FileFinding((), 0, 0, what, "write it with fewer"))
    document.value = value
    return document, tuple(told)


@dataclass(frozen=True, slots=True)
class _Repeat:
    """Something that stands twice, and the characters of the second one."""

    finding: FileFinding
    start: int
    end: int


def _repeated(text: str, error: Exception) -> _Repeat | None:
    """What stands twice; None for any other error."""
    if not is_repeat(error):
        return None
    at = error_position(error, text)
    try:
        scan = _scanned(text)
    except ValueError:  # what follows it is not valid either
        return None
    second = next((one for one in scan.entries if _offset(text, at) <= one.end), None)
    if second is None:
        return None
    place, end = scan.place(second.start), second.end
    if second.header:
        following = [one.start for one in scan.entries if one.header and one.start > second.start]
        end = following[0] if following else len(text)
    first = scan.first.get(second.key, place)
    if first == place:  # in brackets, or as part of a longer key
        what = f"{repeated_name(error, str(second.key[-1]))} stands twice"
    else:
        name = ".".join(map(str, second.key)) if second.header else second.key[-1]
        what = f"{quoted(name)} stands twice, first at {first.line}:{first.col}"
    finding = FileFinding(second.key, place.line, place.col, what, "keep one of the two")
    return _Repeat(finding, second.start, end)


def _scanned(text: str) -> _Scan:
    scan = _Scan(text)
    scan.run()
    return scan


def _offset(text: str, at: Position) -> int:
    lines = text.split("\n")
    return sum(len(line) + 1 for line in lines[: at.line - 1]) + at.col - 1


class _Scan:
    """Finds where every key and value of a valid text stands."""

    def __init__(self, text: str) -> None:
        self.document = Document()
        self.entries: list[_Entry] = []
        self.first: dict[Key, Position] = {}
        """Where each key, or header, stands for the first time."""
        self._text = text
        self._ends = [found.start() for found in re.finditer("\n", text)]
        self._at = 0
        self._above: Key = ()
        self._lists: dict[Key, int] = {}

    def run(self) -> None:
        """Scan to the end, or to the first thing that is no TOML."""
        while self._skip(_BLANK) and self._at < len(self._text):
            start = self._at
            header = _HEADER.match(self._text, self._at)
            if header:
                self._header(header)
            else:
                key = self._pair(self._above)
                self._note(key, start, header=False)
            if self._at == start:
                return

    def place(self, at: int) -> Position:
        """Line and column of a character."""
        line = bisect_left(self._ends, at)
        return Position(line + 1, at - (self._ends[line - 1] if line else -1))

    def _header(self, header: re.Match[str]) -> None:
        start, self._at = self._at, header.end()
        key = self._key((), header=True)
        self._at += len(header[1])
        if header[1] == "[[":
            self._lists[key] = self._lists.get(key, -1) + 1
            key = (*key, self._lists[key])
            self.document.keys.setdefault(key, self.place(start))
        self._above = key
        self._note(key, start, header=True)

    def _note(self, key: Key, start: int, *, header: bool) -> None:
        self.entries.append(_Entry(key, start, self._at, header))
        self.first.setdefault(key, self.place(start))

    def _pair(self, above: Key) -> Key:
        """``key = value``."""
        key = self._key(above, header=False)
        self._skip(_SPACE)
        self._at += 1  # the equals sign
        self._skip(_SPACE)
        self._value(key)
        return key

    def _key(self, above: Key, *, header: bool) -> Key:
        """A key, dotted or not, with the list entries that a header's parts mean."""
        key = above
        while True:
            if header and key in self._lists:
                key = (*key, self._lists[key])
            self._skip(_SPACE)
            start = self._at
            found = _STRING.match(self._text, start) or _BARE.match(self._text, start)
            if found is None:
                return key
            self._at = found.end()
            key = (*key, _named(found[0]))
            self.document.keys.setdefault(key, self.place(start))
            self._skip(_SPACE)
            if self._text[self._at : self._at + 1] != ".":
                return key
            self._at += 1

    def _value(self, key: Key) -> None:
        start = self._at
        self.document.values[key] = self.place(start)
        opening = self._text[start : start + 1]
        if opening == "[":
            self._list(key)
            return
        if opening == "{":
            self._table(key)
            return
        found = _STRING.match(self._text, start)
        if found:
            self.document.texts[key] = str(tomllib.loads(f"v = {found[0]}")["v"])
        else:
            found = _PLAIN.match(self._text, start)
            self.document.texts[key] = found[0] if found else ""
        self._at = found.end() if found else len(self._text)

    def _list(self, key: Key) -> None:
        self._at += 1
        number = 0
        while self._more("]"):
            self._value((*key, number))
            number += 1

    def _table(self, key: Key) -> None:
        self._at += 1
        while self._more("}"):
            self._pair(key)

    def _more(self, closing: str) -> bool:
        """Whether another entry follows; the closing bracket is passed over."""
        self._skip(_BLANK)
        if self._text[self._at : self._at + 1] == ",":
            self._at += 1
            self._skip(_BLANK)
        if self._text[self._at : self._at + 1] in {closing, ""}:
            self._at += 1
            return False
        return True

    def _skip(self, pattern: re.Pattern[str]) -> bool:
        found = pattern.match(self._text, self._at)
        assert found, "the patterns of what is skipped match nothing, too"
        self._at = found.end()
        return True


def _named(written: str) -> str:
    """The name that a key stands for, quoted or bare."""
    if written[0] not in "\"'":
        return written
    return str(tomllib.loads(f"v = {written}")["v"])
