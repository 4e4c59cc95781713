"""Secrets written in clear: found, told without repeating them, and taken out of the tree. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lab.scenario.findings import Document, Key, Problem, nearest

_TABLE = "secrets"
_TELLING = re.compile(r"pass(word|wd|phrase)|secret|token|credential", re.IGNORECASE)
_KNOWN = ("file", "env")


def take_out(document: Document) -> tuple[Problem, ...]:
    """Every secret that stands in the file itself; they are gone from the document's tree."""
    found = tuple(_in_clear(document.value))
    for key in found:
        table: object = document.value
        for name in key[:-1]:
            assert isinstance(table, dict)
            table = table[name]
        assert isinstance(table, dict)
        del table[key[-1]]
    return tuple(_problem(key) for key in found)


def _problem(key: Key) -> Problem:
    name = key[1] if key[0] == _TABLE and len(key) > 1 else str(key[-1]).replace("_", "-")
    what = "a secret is written here in clear"
    hint = (
        f"put it into a file of mode 0600, and write [secrets.{name}] with "
        'file = "/path/of/it", or env = "VARIABLE"; and change it, since it has been read'
    )
    return Problem(key, what, hint, at_key=True)


def _in_clear(tree: dict[str, object]) -> Iterator[Key]:
    for name, value in tree.items():
        if name == _TABLE:
            yield from _in_secrets(value)
        elif isinstance(value, dict):
            yield from ((name, *key) for key in _telling(value))
        elif _TELLING.search(name):
            yield (name,)


def _in_secrets(table: object) -> Iterator[Key]:
    if not isinstance(table, dict):
        yield (_TABLE,)
        return
    for name, secret in table.items():
        if not isinstance(secret, dict):
            yield (_TABLE, name)
            continue
        for key in secret:
            if key not in _KNOWN and nearest(key, (*_KNOWN, "environment")) is None:
                yield (_TABLE, name, key)


def _telling(table: dict[str, object]) -> Iterator[Key]:
    """Keys of a table, and of tables in it, whose names tell of a secret."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from ((name, *key) for key in _telling(value))
        elif _TELLING.search(name):
            yield (name,)
