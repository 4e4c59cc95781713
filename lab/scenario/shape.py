"""From a document to the checked models: what pydantic finds, in words, and a tree mended.

So that every error comes at once, each broken part is replaced by a stand-in (a default, or the
first example of its field) and named as tainted: the rules that read it are not run.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from lab.scenario.findings import (
    Key,
    Problem,
    alternatives,
    did_you_mean,
    nearest,
    quoted,
)
from lab.scenario.json_schema import Schema, schema
from lab.scenario.schema import ScenarioFile
from lab.scenario.source import Document

_ROUNDS = 4
"""Times a tree is mended and checked again; each round reaches one level deeper."""

_TYPES = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "bool_type": "true or false",
    "list_type": "a list",
    "model_type": "a mapping of keys and values",
}


@dataclass(frozen=True, slots=True)
class Shaped:
    """A document in its shape."""

    model: ScenarioFile | None
    """None where the document is too broken to be mended."""
    problems: tuple[Problem, ...]
    tainted: frozenset[Key]
    """Parts of ``model`` that the author did not write."""


def shaped(document: Document) -> Shaped:
    """The document as a model, with every problem of shape and of single values."""
    tree = copy.deepcopy(document.value)
    problems: list[Problem] = []
    tainted: set[Key] = set()
    published: Schema | None = None
    empty = [*_nothings(tree, ())]
    for _ in range(_ROUNDS):
        try:
            if not empty:
                return Shaped(ScenarioFile.model_validate(tree), (*problems,), frozenset(tainted))
            errors: list[ErrorDetails] = []
        except ValidationError as error:
            errors = error.errors(include_url=False)
        published = published or schema()
        words = _Words(published, document, tree)
        problems += [_nothing(key) for key in empty]
        problems += words.problems(errors)
        broken = {*empty, *(error["loc"] for error in errors)}
        tainted |= {key for key in broken if not _unknown(key, errors)}
        for key in sorted(broken, key=len):
            _mend(tree, key, published)
        empty = []
    return Shaped(None, (*problems,), frozenset(tainted))


def _unknown(key: Key, errors: Iterable[ErrorDetails]) -> bool:
    """Whether the key was unknown, and so no rule misses it."""
    return any(error["loc"] == key and error["type"] == "extra_forbidden" for error in errors)


def _nothings(node: object, key: Key) -> Iterator[Key]:
    """Every key or entry that has no value."""
    children: dict[str | int, object] = {}
    if isinstance(node, (dict, list)):
        children = dict(node.items() if isinstance(node, dict) else enumerate(node))
    for name, child in children.items():
        if child is None:
            yield (*key, name)
        else:
            yield from _nothings(child, (*key, name))


def _nothing(key: Key) -> Problem:
    if isinstance(key[-1], int):
        return Problem(key, "this entry of the list is empty", "write it or delete it")
    what = f"{quoted(key[-1])} has no value"
    return Problem(key, what, "give it one, or leave the key out if it is not required", True)


class _Words:
    """Says in words what pydantic found."""

    def __init__(self, published: Schema, document: Document, tree: object) -> None:
        self._published = published
        self._document = document
        self._tree = tree

    def problems(self, errors: list[ErrorDetails]) -> Iterator[Problem]:
        """One problem an error; a misspelt key is not also reported as missing."""
        meant = {
            (*error["loc"][:-1], near)
            for error in errors
            if error["type"] == "extra_forbidden"
            and (near := nearest(str(error["loc"][-1]), self._keys(error["loc"][:-1])))
        }
        for error in errors:
            if error["type"] != "missing" or error["loc"] not in meant:
                yield self._problem(error)

    def _problem(self, error: ErrorDetails) -> Problem:
        key, kind = error["loc"], error["type"]
        context = error.get("ctx", {})
        if kind == "wrong":
            return Problem(key, context["what"], context["cure"])
        if kind == "extra_forbidden":
            return self._extra(key)
        if kind == "missing":
            return self._missing(key)
        if kind == "literal_error":
            return self._literal(key)
        if kind in _TYPES:
            return self._type(key, _TYPES[kind])
        return self._bounds(key)

    def _extra(self, key: Key) -> Problem:
        keys = self._keys(key[:-1])
        cure = did_you_mean(str(key[-1]), keys, f"its keys are {', '.join(keys)}")
        return Problem(key, f"{quoted(key[-1])} is no key of {self._place(key[:-1])}", cure, True)

    def _missing(self, key: Key) -> Problem:
        name = str(key[-1])
        field = _at(self._published, key)
        value = _stand_in(self._published, field)
        example = "..." if isinstance(value, (dict, list)) else _yaml(value)
        what = f"{self._place(key[:-1])} has no {quoted(name)}"
        return Problem(key[:-1], what, f"add {name}: {example}", at_key=True)

    def _literal(self, key: Key) -> Problem:
        allowed = [str(value) for value in _at(self._published, key)["enum"]]
        written = self._written(key)
        what = f"{written} is not allowed for {self._name(key)}"
        return Problem(key, what, did_you_mean(written, allowed, f"write {alternatives(allowed)}"))

    def _type(self, key: Key, wanted: str) -> Problem:
        found = _get(self._tree, key)
        written = self._document.texts.get(key, "")
        what = f"{self._name(key)} must be {wanted}, not {self._described(found, written)}"
        if wanted == "text" and key in self._document.texts:
            return Problem(key, what, f"put it in quotes: {quoted(written)}")
        return Problem(key, what, self._example(key))

    def _bounds(self, key: Key) -> Problem:
        field = _at(self._published, key)
        if "minItems" in field:
            return Problem(key, f"the list {self._name(key)} is empty", "name at least one in it")
        low, high = field.get("minimum"), field.get("maximum")
        span = f"from {low} to {high}" if high is not None else f"of at least {low}"
        what = f"{self._name(key)} cannot be {self._written(key)}"
        return Problem(key, what, f"write a whole number {span}")

    def _described(self, found: object, written: str) -> str:
        if isinstance(found, bool):
            return f"{written}, which YAML reads as true or false"
        if isinstance(found, (int, float)):
            return f"the number {written}"
        if isinstance(found, str):
            return f"the text {quoted(written)}"
        return "a list" if isinstance(found, list) else "a mapping"

    def _example(self, key: Key) -> str:
        field = _at(self._published, key)
        if field.get("type") == "boolean":
            return "write true or false, without quotes"
        if field.get("type") == "array":
            return 'begin each entry on a line of its own with "- "'
        if field.get("type") == "object":
            return f"its keys are {', '.join(self._keys(key))}"
        value = _stand_in(self._published, field)
        if isinstance(key[-1], int):
            return f"write it like {_yaml(value)}"
        return f"write it like {key[-1]}: {_yaml(value)}"

    def _keys(self, key: Key) -> list[str]:
        return [*_at(self._published, key).get("properties", {})]

    def _written(self, key: Key) -> str:
        text = self._document.texts.get(key)
        if text is None:
            return "a list" if isinstance(_get(self._tree, key), list) else "a mapping"
        return quoted(text)

    def _name(self, key: Key) -> str:
        """``"count"``, or ``an entry of "families"``."""
        if not key:
            return "the file"
        if isinstance(key[-1], int):
            return f"an entry of {quoted(key[-2])}"
        return quoted(key[-1])

    def _place(self, key: Key) -> str:
        """The mapping at a key, as a reader would name it."""
        if not key:
            return "a scenario"
        if not isinstance(key[-1], int):
            return quoted(key[-1])
        named = _get(self._tree, (*key, "name"))
        what = {"nodes": "node group", "shared": "shared service", "nics": "network card"}.get(
            str(key[-2]), "exception"
        )
        return f"{what} {quoted(named)}" if isinstance(named, str) else f"this {what}"


def _at(published: Schema, key: Key) -> Schema:
    """The part of the JSON Schema that speaks of a key; empty where none does."""
    node = published
    for part in key:
        node = _resolved(published, node)
        node = (
            node.get("items", {})
            if isinstance(part, int)
            else node.get("properties", {}).get(part, {})
        )
    return _resolved(published, node)


def _resolved(published: Schema, node: Schema) -> Schema:
    if "$ref" not in node:
        return node
    target: Schema = published["$defs"][node["$ref"].rpartition("/")[2]]
    return target | {key: value for key, value in node.items() if key != "$ref"}


def _stand_in(published: Schema, node: Schema) -> object:
    """A valid value for a part of the schema."""
    node = _resolved(published, node)
    for keyword in ("examples", "enum"):
        if keyword in node:
            return node[keyword][0]
    if "default" in node:
        return copy.deepcopy(node["default"])
    if node.get("type") == "object":
        fields: Mapping[str, Schema] = node.get("properties", {})
        return {name: _stand_in(published, fields[name]) for name in node.get("required", ())}
    if node.get("type") == "array":
        return [_stand_in(published, node["items"])]
    return {"integer": node.get("minimum", 1), "boolean": True}.get(str(node.get("type")), "text")


def _mend(tree: Any, key: Key, published: Schema) -> None:
    """Put a stand-in at a required key or an entry of a list; drop any other key."""
    parent = _get(tree, key[:-1])
    if not key or not isinstance(parent, (dict, list)):
        return
    name: Any = key[-1]
    if isinstance(parent, list) or name in _at(published, key[:-1]).get("required", ()):
        parent[name] = _stand_in(published, _at(published, key))
    else:
        parent.pop(name, None)


def _get(tree: object, key: Key) -> object:
    """The value at a key, None where there is none."""
    for part in key:
        if isinstance(tree, dict):
            tree = tree.get(part)
        elif isinstance(tree, list) and isinstance(part, int) and part < len(tree):
            tree = tree[part]
        else:
            return None
    return tree


def _yaml(value: object) -> str:
    """A value as one would write it in the file; versions need their quotes."""
    if isinstance(value, str) and value.replace(".", "").isdigit() and value.count(".") == 1:
        return f'"{value}"'
    return str(value)
