"""Where keys and values of a TOML file stand is found by a scan; the tree is tomllib's."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lab.inventory.toml import parse
from lab.scenario.findings import Key, Position

ROOT = Path(__file__).parents[3]
TEXTS = [
    (ROOT / "docs" / "lab.example.toml").read_text(encoding="utf-8"),
    (ROOT / "tests/cases/inventory/valid/everything.toml").read_text(encoding="utf-8"),
]

ODD = (
    '''\
a.b . "c d" = """
text # no comment ""
"""
[x."y.z"]
list = [ 1, # one
  [ "]", '}' ], { p = "a=b", q.r = [2] } ,
]
d = 1979-05-27T07:32:00Z
[[rows]]
n = 1
[[rows]]
[rows.inner]
n = 2
[[rows.deep]]
[[rows.deep]]
s = 'it'''
    "'"
)


def leaves(tree: object, key: Key = ()) -> Iterator[tuple[Key, object]]:
    if isinstance(tree, dict | list) and tree:
        for name, child in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield from leaves(child, (*key, name))
    else:
        yield key, tree


def offset(text: str, at: Position) -> int:
    return sum(len(line) + 1 for line in text.split("\n")[: at.line - 1]) + at.col - 1


@pytest.mark.parametrize("text", [*TEXTS, ODD])
def test_every_value_is_found_where_it_stands(text: str) -> None:
    document, findings = parse(text)
    assert not findings
    assert document is not None
    assert document.value == tomllib.loads(text)
    for key, value in leaves(document.value):
        if isinstance(value, dict):  # a table without any key
            continue
        rest = text[offset(text, document.values[key]) :]
        read = next(
            found
            for end in range(1, len(rest) + 1)
            if (found := value_of(rest[:end], following=rest[end:])) is not None
        )
        assert read == value, key


def value_of(text: str, *, following: str) -> object:
    """The value, once nothing more can belong to it."""
    if following[:1].strip(" \t\n,]}#"):
        return None
    try:
        return tomllib.loads(f"v = {text}")["v"]
    except tomllib.TOMLDecodeError:
        return None


@pytest.mark.parametrize("text", [*TEXTS, ODD])
def test_every_key_is_found_where_it_stands(text: str) -> None:
    document, _ = parse(text)
    assert document is not None
    for key, at in document.keys.items():
        rest = text[offset(text, at) :]
        name = str(key[-1])
        assert rest.startswith((name, f'"{name}"', "[[")), key


MARKS = (
    ".",
    "=",
    " ",
    "\n",
    "[",
    "]",
    "[[",
    "]]",
    "{",
    "}",
    ",",
    '"',
    "'",
    '"""',
    "'''",
    "#",
    "\\",
)
WORDS = ("a", "b", "\\", "1", "true", "a = 1\n", "[a]\n", "x = [", "y = {", "1979-05-27", "é")


@given(st.lists(st.sampled_from(MARKS + WORDS), max_size=40).map("".join))
@example('a = 1\na = 1\n"""""""""')
@example(f"a = {'1' * 5000}")
@example(f"a = 1\na = 1\nb = {'1' * 5000}")
def test_whatever_stands_in_the_file_is_read_or_told(text: str) -> None:
    document, findings = parse(text)
    assert document is not None or findings
    for finding in findings:
        assert finding.line <= text.count("\n") + 1
        assert finding.what
        assert finding.hint
    if document is not None and not findings:
        keys = {key for key, value in leaves(document.value) if value not in ({}, [])}
        assert keys <= set(document.values)
