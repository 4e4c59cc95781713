"""What a TOML parser says, in the words of someone who has to mend the line. Pure."""

from __future__ import annotations

import re

from lab.scenario.document import Position
from lab.scenario.findings import Finding, quoted

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


def place(error: Exception, text: str) -> Position:
    """Where the parser has stopped."""
    found = _PLACE.search(str(error))
    if found is None or found["line"] is None:
        lines = text.rstrip("\n").split("\n")
        return Position(len(lines), len(lines[-1]) + 1)
    return Position(int(found["line"]), int(found["col"]))


def finding(error: Exception, text: str) -> Finding:
    """The one finding of a syntax error, at the place to mend."""
    at = place(error, text)
    said = str(error)
    line = text.split("\n")[at.line - 1]
    bare = _UNQUOTED.match(line)
    if bare and bare.start("value") < at.col and _is_about_a_value(said):
        what = "this value is no number, nor true or false, and has no quotes"
        return Finding((), at.line, bare.start("value") + 1, what, "put it in quotes")
    if said.startswith("Invalid value") and not line[at.col - 1 :].strip():
        return Finding((), at.line, at.col, "there is no value here", "write one, text in quotes")
    for part, what, cure in _WORDS:
        if part in said.replace("\n", "\\n"):
            return Finding((), at.line, at.col, what, cure)
    problem = _PLACE.sub("", said)
    what = f"this is not TOML: {quoted(problem)}"
    return Finding((), at.line, at.col, what, "mend this line, or put its value in quotes")


def _is_about_a_value(said: str) -> bool:
    return said.startswith(("Invalid value", "Expected newline or end of document"))
