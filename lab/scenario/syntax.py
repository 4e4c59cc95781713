"""What a YAML parser says, in the words of someone who has to mend the line."""

from __future__ import annotations

from ruamel.yaml.error import MarkedYAMLError

from lab.scenario.findings import Finding, quoted

_TAB = ("a tab stands in the indentation", "replace it with spaces")

_WORDS: tuple[tuple[str, str, str], ...] = (
    (
        "mapping values are not allowed",
        'this ":" stands where no value can begin',
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
"""Problems to mend where the thing began, not where the parser gave up."""


def finding(error: MarkedYAMLError, text: str) -> Finding:
    """The one finding of a syntax error, at the place to mend."""
    problem = str(error.problem or error.context or "it cannot be parsed")
    mark = error.problem_mark or error.context_mark
    if error.context_mark is not None and any(part in problem for part in _AT_START):
        mark = error.context_mark
    line = mark.line if mark else 0
    col = mark.column if mark else 0
    tab = _tab_near(text, line)
    if tab:
        return Finding((), *tab, *_TAB)
    for part, what, cure in _WORDS:
        if part in problem:
            return Finding((), line + 1, col + 1, what, cure)
    what = f"this is not YAML: {quoted(problem)}"
    return Finding((), line + 1, col + 1, what, "mend this line, or put its value in quotes")


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
