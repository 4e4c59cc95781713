"""What pydantic finds in a file that a user wrote, in the words of someone who has to mend it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pydantic_core import ErrorDetails

from lab.scenario.dialect import Dialect
from lab.scenario.document import Document
from lab.scenario.findings import (
    Key,
    Problem,
    alternatives,
    did_you_mean,
    nearest,
    quoted,
)
from lab.scenario.json_schema import Schema
from lab.scenario.published import is_required, keys, part, stand_in

_TYPES = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "bool_type": "true or false",
    "list_type": "a list",
}
_MAPPINGS = ("model_type", "dict_type")


class Words:
    """Problems of one document, from what pydantic found in its tree."""

    def __init__(self, published: Schema, document: Document, dialect: Dialect) -> None:
        self._published = published
        self._document = document
        self._dialect = dialect

    def problems(self, errors: list[ErrorDetails]) -> Iterator[Problem]:
        """One problem an error; a misspelt key is not also reported as missing."""
        meant = {
            (*error["loc"][:-1], self._near(error["loc"]))
            for error in errors
            if error["type"] == "extra_forbidden"
        }
        for error in errors:
            if error["type"] != "missing" or error["loc"] not in meant:
                yield self._problem(error)

    def nothing(self, key: Key) -> Problem:
        """A key or an entry of a list without a value."""
        if isinstance(key[-1], int):
            return Problem(key, "this entry of the list is empty", "write it or delete it")
        what = f"{quoted(key[-1])} has no value"
        if is_required(self._published, key):
            return Problem(key, what, self._like(key), at_key=True)
        return Problem(key, what, "give it one, or delete the key", at_key=True)

    def _problem(self, error: ErrorDetails) -> Problem:
        key, kind = error["loc"], error["type"]
        if kind == "wrong":
            return Problem(key, error["ctx"]["what"], error["ctx"]["cure"])
        if kind in _TYPES:
            return self._type(key, _TYPES[kind])
        if kind in _MAPPINGS:
            return self._type(key, f"a {self._dialect.mapping} of keys and values")
        say = {
            "extra_forbidden": self._extra,
            "missing": self._missing,
            "literal_error": self._literal,
            "too_short": self._empty,
            "greater_than_equal": self._bounds,
            "less_than_equal": self._bounds,
        }
        return say[kind](key)

    def _missing(self, key: Key) -> Problem:
        example = self._dialect.written(stand_in(self._published, key))
        what = f"{self._place(key[:-1])} has no {quoted(key[-1])}"
        cure = f"add {key[-1]}{self._dialect.assign}{example}"
        return Problem(key[:-1], what, cure, at_key=True)

    def _empty(self, key: Key) -> Problem:
        return Problem(key, f"the list {self._name(key)} is empty", "name at least one in it")

    def _extra(self, key: Key) -> Problem:
        near = self._near(key)
        known = ", ".join(keys(self._published, key[:-1]))
        cure = f"did you mean {quoted(near)}?" if near else f"its keys are {known}"
        what = f"{quoted(key[-1])} is no key of {self._place(key[:-1])}"
        return Problem(key, what, cure, at_key=True)

    def _literal(self, key: Key) -> Problem:
        allowed = [str(value) for value in part(self._published, key)["enum"]]
        written = self._document.texts.get(key)
        choice = f"write {alternatives(allowed)}"
        if written is None:
            return Problem(key, f"{self._name(key)} must be one word", choice)
        what = f"{quoted(written)} is not allowed for {self._name(key)}"
        return Problem(key, what, did_you_mean(written, allowed, choice))

    def _bounds(self, key: Key) -> Problem:
        field = part(self._published, key)
        low, high = field.get("minimum"), field.get("maximum")
        span = f"of at least {low}" if high is None else f"from {low} to {high}"
        what = f"{self._name(key)} cannot be {self._found(key)}"
        return Problem(key, what, f"write a whole number {span}")

    def _type(self, key: Key, wanted: str) -> Problem:
        what = f"{self._name(key)} must be {wanted}, not {self._found(key)}"
        written = self._document.texts.get(key)
        if wanted == "text" and written is not None:
            if re.search(part(self._published, key).get("pattern", ""), written):
                return Problem(key, what, f"put it in quotes: {quoted(written)}")
        elif wanted == "a list":
            return Problem(key, what, self._dialect.listing)
        elif wanted == "true or false":
            return Problem(key, what, "write true or false, without quotes")
        return Problem(key, what, self._like(key))

    def _found(self, key: Key) -> str:
        """What stands at a key, as its author would name it."""
        written = self._document.texts.get(key)
        if written is None:
            is_list = isinstance(self._document.at(key), list)
            return "a list" if is_list else f"a {self._dialect.mapping}"
        value = self._document.at(key)
        if isinstance(value, bool):
            return f"the truth value {written}"
        if isinstance(value, (int, float)):
            return f"the number {written}"
        return f"the text {quoted(written)}"

    def _like(self, key: Key) -> str:
        example = self._dialect.written(stand_in(self._published, key))
        if isinstance(key[-1], int):
            return f"write it like {example}"
        return f"write it like {key[-1]}{self._dialect.assign}{example}"

    def _near(self, key: Key) -> str | None:
        """The known key that an unknown one is most like."""
        return nearest(str(key[-1]), keys(self._published, key[:-1]))

    def _name(self, key: Key) -> str:
        """``"count"``, or ``an entry of "families"``."""
        return f"an entry of {quoted(key[-2])}" if isinstance(key[-1], int) else quoted(key[-1])

    def _place(self, key: Key) -> str:
        """The mapping at a key, as a reader would name it."""
        if not key:
            return self._dialect.whole
        above = str(key[-2]) if len(key) > 1 else ""
        if not isinstance(key[-1], int):
            entry = self._dialect.entries.get(above)
            return f"{entry} {quoted(key[-1])}" if entry else quoted(key[-1])
        name = self._document.at((*key, "name"))
        what = self._dialect.entries.get(above, self._dialect.other_entry)
        return f"{what} {quoted(name)}" if isinstance(name, str) else f"this {what}"
