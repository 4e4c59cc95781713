"""The cells of a result as one table: each distinct value stands once, and a row refers to it.

A cell as JSON takes a kilobyte, of which nearly all is in other cells too. Here it is a row of
some 80 bytes. The layout::

    {"fields": [...], "attempt_fields": [...],      what a cell and an attempt have, in order
     "columns": [...], "attempt_columns": [...],    what stands where in a row
     "values": {"source": [...], ...},              of each such column, its distinct values
     "rows": [[[0, 3, 5, 1], 2, ...], ...]}         numbers of those values, from 0

Three columns are no such numbers: ``id`` is the numbers of the texts between its slashes,
``attempts`` is a list of rows, and an attempt's ``key`` and ``latency_ms`` stand as they are.
``repeat`` refers to the texts before, between and after the cell's id. ``rest`` has every field
that has no column of its own. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

_COLUMNS = ("source", "target", "entry", "backends", "sources", "answer", "detail", "expectation")
_ATTEMPT_COLUMNS = ("source_seen", "backends")
_PLAIN = ("key", "latency_ms")
_LONGEST = 1_000
"""Characters of a text that is put together from parts: a small file is not to become a large
text in memory. A longer one is written whole."""

_line = json.JSONEncoder(separators=(",", ":")).encode


def to_text(cells: Iterable[Mapping[str, Any]]) -> str:
    """The table of cells, each as :mod:`lab.reports.result` makes it, as JSON with a row a line."""
    table = _Table()
    rows = ",\n ".join(_line(table.row(cell)) for cell in cells)
    head = {
        "fields": table.fields,
        "attempt_fields": table.attempt_fields,
        "columns": ["id", "repeat", *_COLUMNS, "rest", "attempts"],
        "attempt_columns": [*_PLAIN, *_ATTEMPT_COLUMNS, "rest"],
        "values": {name: list(values.places) for name, values in table.values.items()},
    }
    parts = [f"{_line(name)}:{_values_text(value)}" for name, value in head.items()]
    return "{" + ",\n".join(parts) + f',\n"rows":[\n {rows}\n]}}'


def _values_text(value: object) -> str:
    """As JSON; the distinct values are JSON already."""
    if not isinstance(value, dict):
        return _line(value)
    return "{" + ",\n".join(f"{_line(name)}:[{','.join(of)}]" for name, of in value.items()) + "}"


class _Values:
    """Distinct values, as JSON, in the order of their first use."""

    def __init__(self) -> None:
        self.places: dict[str, int] = {}

    def place(self, value: object) -> int:
        return self.places.setdefault(_line(value), len(self.places))


class _Table:
    """What the rows have referred to by now."""

    def __init__(self) -> None:
        self.fields: list[str] = []
        self.attempt_fields: list[str] = []
        names = (
            "id",
            "repeat",
            *_COLUMNS,
            "rest",
            *(f"attempt_{name}" for name in _ATTEMPT_COLUMNS),
        )
        self.values = {name: _Values() for name in (*names, "attempt_rest")}

    def row(self, cell: Mapping[str, Any]) -> list[Any]:
        self.fields = self.fields or list(cell)
        rest = dict(cell)
        cell_id, repeat, attempts = rest.pop("id"), rest.pop("repeat"), rest.pop("attempts")
        return [
            [self.values["id"].place(part) for part in _parts(cell_id, "/")],
            self.values["repeat"].place(_parts(repeat, cell_id)),
            *(self.values[name].place(rest.pop(name)) for name in _COLUMNS),
            self.values["rest"].place(rest),
            [self._attempt(attempt) for attempt in attempts],
        ]

    def _attempt(self, attempt: Mapping[str, Any]) -> list[Any]:
        self.attempt_fields = self.attempt_fields or list(attempt)
        rest = dict(attempt)
        return [
            *(rest.pop(name) for name in _PLAIN),
            *(self.values[f"attempt_{name}"].place(rest.pop(name)) for name in _ATTEMPT_COLUMNS),
            self.values["attempt_rest"].place(rest),
        ]


def _parts(text: str, separator: str) -> list[str]:
    """The texts that ``separator`` joins to ``text``."""
    return text.split(separator) if separator and len(text) <= _LONGEST else [text]


def _joined(parts: Sequence[str], separator: str) -> str:
    if len(parts) > 1:
        length = sum(map(len, parts)) + len(separator) * (len(parts) - 1)
        if length > _LONGEST:
            raise ValueError(f"a text of {length} characters from {len(parts)} parts")
    return separator.join(parts)


def cells_of(table: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The cells of a table that was read.

    Raises
    ------
    KeyError, IndexError, TypeError, ValueError, AttributeError
        Where it is no such table.

    """
    values, columns = table["values"], tuple(table["columns"])
    of_attempts = tuple(table["attempt_columns"])
    for row in table["rows"]:
        cell: dict[str, Any] = dict(zip(columns, row, strict=True))
        attempts = cell.pop("attempts")
        parts = [_at(values["id"], number) for number in cell.pop("id")]
        cell_id = _joined(parts, "/")
        repeat = _joined(_at(values["repeat"], cell.pop("repeat")), cell_id)
        found = {name: _at(values[name], number) for name, number in cell.items()}
        found |= found.pop("rest")
        found |= {"id": cell_id, "repeat": repeat}
        found["attempts"] = [
            _attempt(table, dict(zip(of_attempts, attempt, strict=True))) for attempt in attempts
        ]
        yield {name: found[name] for name in table["fields"]}


def _attempt(table: Mapping[str, Any], row: dict[str, Any]) -> dict[str, Any]:
    found = {name: row.pop(name) for name in _PLAIN}
    values = table["values"]
    found |= {name: _at(values[f"attempt_{name}"], number) for name, number in row.items()}
    found |= found.pop("rest")
    return {name: found[name] for name in table["attempt_fields"]}


def _at(values: Sequence[Any], number: object) -> Any:
    """The value of that number."""
    if type(number) is not int or number < 0 or not isinstance(values, list):
        raise TypeError(f"{number!r} is no number of a value")
    return values[number]
