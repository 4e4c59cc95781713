"""What ``ovsdb-client --format=json dump`` writes: a document a table, read into rows. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

Row = Mapping[str, Any]
"""Column to value: sets are lists, maps are dictionaries, references are the rows' UUIDs."""


def tables(text: str) -> Mapping[str, tuple[Row, ...]]:
    """Every table of a dump, by its name.

    Raises
    ------
    ValueError
        When it is not what ovsdb-client writes.

    """
    found = {}
    for line in text.splitlines():
        if line.strip():
            document = json.loads(line)
            name = str(document["caption"]).removesuffix(" table")
            found[name] = tuple(
                {key: _plain(value) for key, value in zip(document["headings"], row, strict=True)}
                for row in document["data"]
            )
    return found


def several(value: Any) -> tuple[Any, ...]:
    """What a column of a set holds: a set of one is written as the one."""
    return tuple(value) if isinstance(value, list) else (value,)


def _plain(value: Any) -> Any:
    match value:
        case ["set", list(members)]:
            return [_plain(one) for one in members]
        case ["map", list(pairs)]:
            return {str(_plain(key)): _plain(one) for key, one in pairs}
        case ["uuid", text]:
            return text
    return value
