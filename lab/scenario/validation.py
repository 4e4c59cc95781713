"""Validate a document with the models, replacing broken parts so that all errors come at once.

Each broken part is replaced by a stand-in (a default, or the first example of its field) and marked
as tainted; the rules that read it are not run.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import ErrorDetails, core_schema

from lab.scenario.findings import (
    Document,
    FileKind,
    Key,
    Problem,
    alternatives,
    did_you_mean,
    look,
    nearest,
    quoted,
)
from lab.scenario.scenario import Scenario
from lab.scenario.topics import Topic, topic_of_list
from lab.scenario.values import FILE

DIALECT = "https://json-schema.org/draft/2020-12/schema"
ID = "urn:hybridlab:scenario:1"

Schema = dict[str, Any]


class _Generator(GenerateJsonSchema):
    """Publishes optional keys as keys that may be omitted, never as ``null``."""

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        published = super().default_schema(schema)
        if published.get("default", ...) is None:
            del published["default"]
        return published

    def encode_default(self, dft: Any) -> Any:
        """Publish a port range as it is written in the file."""
        is_range = isinstance(dft, tuple) and any(isinstance(item, int) for item in dft)
        return f"{dft[0]}-{dft[1]}" if is_range else super().encode_default(dft)


def schema_of(model: type[BaseModel]) -> Schema:
    """The JSON Schema of the files that a model describes."""
    published: Schema = model.model_json_schema(schema_generator=_Generator)
    _remove_titles(published)
    return published


def schema(topology_schemas: Mapping[str, Schema] | None = None) -> Schema:
    """The JSON Schema of a scenario file.

    ``topology_schemas``: topology kind to the schema of an object with that topology's parameters
    (``kind`` itself is added here). Without it, any kind and any parameters are valid.
    """
    published = schema_of(Scenario)
    published = {
        "$schema": DIALECT,
        "$id": ID,
        "title": "hybridlab scenario",
        **{key: value for key, value in published.items() if key != "title"},
    }
    if topology_schemas:
        published["$defs"]["TopologyChoice"] = _topologies(
            published["$defs"]["TopologyChoice"], topology_schemas
        )
    return published


def _remove_titles(node: Any) -> None:
    """Drop pydantic's titles, which only repeat the key."""
    if isinstance(node, dict):
        if isinstance(node.get("title"), str):
            del node["title"]
        for child in node.values():
            _remove_titles(child)
    elif isinstance(node, list):
        for child in node:
            _remove_titles(child)


def _topologies(anything: Schema, schemas: Mapping[str, Schema]) -> Schema:
    """One alternative per kind, each with only its own parameters."""
    return {
        "title": "topology",
        "description": anything["description"],
        "type": "object",
        "oneOf": [_topology(kind, parameters) for kind, parameters in sorted(schemas.items())],
    }


def _topology(kind: str, parameters: Schema) -> Schema:
    topology_schema = copy.deepcopy(parameters)
    known = {"kind": {"const": kind, "description": "Name of the topology."}}
    topology_schema["properties"] = known | {
        k: v for k, v in topology_schema.get("properties", {}).items() if k != "kind"
    }
    topology_schema["required"] = [
        "kind",
        *(key for key in topology_schema.get("required", []) if key != "kind"),
    ]
    topology_schema.setdefault("title", kind)
    topology_schema.setdefault("type", "object")
    topology_schema.setdefault("additionalProperties", False)
    return topology_schema


def part(published: Schema, key: Key) -> Schema:
    """The part of the schema for a key; empty if there is none."""
    node = published
    for name in key:
        node = _resolve(published, node)
        node = node.get("items", {}) if isinstance(name, int) else _property_schema_of(node, name)
    return _resolve(published, node)


def keys(published: Schema, key: Key) -> list[str]:
    """The keys of the mapping at a key."""
    return [*part(published, key).get("properties", {})]


def is_required(published: Schema, key: Key) -> bool:
    """Whether the key is required in its mapping."""
    return key[-1] in part(published, key[:-1]).get("required", ())


def stand_in(published: Schema, key: Key) -> object:
    """A valid value for a key: its first example, its default, or its required keys only."""
    return _stand_in(published, part(published, key))


def _property_schema_of(node: Schema, name: str) -> Schema:
    """The schema of a key: its own, or that of additional properties."""
    free = node.get("additionalProperties")
    property_schema: Schema = node.get("properties", {}).get(
        name, free if isinstance(free, dict) else {}
    )
    return property_schema


def _resolve(published: Schema, node: Schema) -> Schema:
    if "$ref" not in node:
        return node
    target: Schema = published["$defs"][node["$ref"].rpartition("/")[2]]
    return target | {name: value for name, value in node.items() if name != "$ref"}


def _stand_in(published: Schema, node: Schema) -> object:
    node = _resolve(published, node)
    for keyword in ("examples", "enum"):
        if keyword in node:
            return copy.deepcopy(node[keyword][0])
    if "default" in node:
        return copy.deepcopy(node["default"])
    if node.get("type") == "object":
        fields: Mapping[str, Schema] = node.get("properties", {})
        return {name: _stand_in(published, fields[name]) for name in node.get("required", ())}
    if node.get("type") == "array":
        return [_stand_in(published, node["items"])]
    return {"integer": node.get("minimum", 1), "boolean": True}.get(str(node.get("type")), "text")


_TYPES = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "bool_type": "true or false",
    "list_type": "a list",
    "tuple_type": "a list",
    "frozen_set_type": "a list",
}
_MAPPINGS = ("model_type", "dict_type")


class Words:
    """Turns the errors that pydantic found in a document into problems."""

    def __init__(self, published: Schema, document: Document, kind: FileKind) -> None:
        self._published = published
        self._document = document
        self._kind = kind
        self._language = kind.language

    def problems(self, errors: list[ErrorDetails]) -> Iterator[Problem]:
        """One problem per error; a misspelt key is not also reported as missing."""
        meant = {
            (*error["loc"][:-1], name)
            for error in errors
            if error["type"] == "extra_forbidden"
            for name in self._near(error["loc"])
        }
        for error in errors:
            if error["type"] != "missing" or error["loc"] not in meant:
                yield self._problem(error)

    def nothing(self, key: Key) -> Problem:
        """The problem of a key or an entry of a list without a value."""
        if isinstance(key[-1], int):
            return Problem(key, "this entry of the list is empty", "write it or delete it")
        message = f"{quoted(key[-1])} has no value"
        if is_required(self._published, key):
            return Problem(key, message, self._like(key), at_key=True)
        return Problem(key, message, "give it one, or delete the key", at_key=True)

    def _problem(self, error: ErrorDetails) -> Problem:
        key, kind = error["loc"], error["type"]
        if kind == "wrong":
            return Problem(key, error["ctx"]["what"], error["ctx"]["hint"])
        if kind in _TYPES:
            return self._type(key, _TYPES[kind])
        if kind in _MAPPINGS:
            return self._type(key, f"a {self._language.mapping} of keys and values")
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
        example = self._language.written(stand_in(self._published, key))
        message = f"{self._place(key[:-1])} has no {quoted(key[-1])}"
        hint = f"add {key[-1]}{self._language.assign}{example}"
        return Problem(key[:-1], message, hint, at_key=True)

    def _empty(self, key: Key) -> Problem:
        return Problem(key, f"the list {self._name(key)} is empty", "name at least one in it")

    def _extra(self, key: Key) -> Problem:
        known = keys(self._published, key[:-1])
        listed = f"its keys are {', '.join(known)}"
        hint = did_you_mean(str(key[-1]), known, listed, self._document.texts.get(key, ""))
        message = f"unknown key {quoted(key[-1])} in {self._place(key[:-1])}"
        return Problem(key, message, hint, at_key=True)

    def _literal(self, key: Key) -> Problem:
        allowed = [str(value) for value in part(self._published, key)["enum"]]
        written = self._document.texts.get(key)
        choice = f"write {alternatives(allowed)}"
        if written is None:
            return Problem(key, f"{self._name(key)} must be one word", choice)
        message = f"{quoted(written)} is not allowed for {self._name(key)}"
        return Problem(key, message, did_you_mean(written, allowed, choice))

    def _bounds(self, key: Key) -> Problem:
        field = part(self._published, key)
        low, high = field.get("minimum"), field.get("maximum")
        span = f"of at least {low}" if high is None else f"from {low} to {high}"
        message = f"{self._name(key)} cannot be {self._found(key)}"
        return Problem(key, message, f"write a whole number {span}")

    def _type(self, key: Key, wanted: str) -> Problem:
        message = f"{self._name(key)} must be {wanted}, not {self._found(key)}"
        written = self._document.texts.get(key)
        if wanted == "text" and written is not None:
            if re.search(part(self._published, key).get("pattern", ""), written):
                return Problem(key, message, f"put it in quotes: {quoted(written)}")
        elif wanted == "a list":
            return Problem(key, message, self._language.listing)
        elif topic := self._topic_of_list(key):
            return Problem(key, message, f"{self._like(key)}; {topic.answer}")
        elif wanted == "true or false":
            return Problem(key, message, "write true or false, without quotes")
        return Problem(key, message, self._like(key))

    def _topic_of_list(self, key: Key) -> Topic | None:
        """What a list means at a key that holds one value."""
        items = self._document.at(key)
        if not isinstance(items, list):
            return None
        return topic_of_list(
            ".".join(map(str, key)), [item for item in items if isinstance(item, str)]
        )

    def _found(self, key: Key) -> str:
        """A description of the value at a key, for its author."""
        written = self._document.texts.get(key)
        if written is None:
            is_list = isinstance(self._document.at(key), list)
            return "a list" if is_list else f"a {self._language.mapping}"
        value = self._document.at(key)
        if isinstance(value, bool):
            return f"the truth value {written}"
        if isinstance(value, (int, float)):
            return f"the number {written}"
        return f"the text {quoted(written)}"

    def _like(self, key: Key) -> str:
        example = self._language.written(stand_in(self._published, key))
        if isinstance(key[-1], int):
            return f"write it like {example}"
        return f"write it like {key[-1]}{self._language.assign}{example}"

    def _near(self, key: Key) -> list[str]:
        """The known keys most similar to an unknown one."""
        return nearest(str(key[-1]), keys(self._published, key[:-1]))

    def _name(self, key: Key) -> str:
        """``"count"``, or ``an entry of "families"``."""
        return f"an entry of {quoted(key[-2])}" if isinstance(key[-1], int) else quoted(key[-1])

    def _place(self, key: Key) -> str:
        """A description of the mapping at a key, for its author."""
        if not key:
            return f"the {self._kind.noun}"
        above = str(key[-2]) if len(key) > 1 else ""
        if not isinstance(key[-1], int):
            entry = self._kind.entries.get(above)
            return f"{entry} {quoted(key[-1])}" if entry else quoted(key[-1])
        name = self._document.at((*key, "name"))
        noun = self._kind.entries.get(above, self._kind.other_entry)
        return f"{noun} {quoted(name)}" if isinstance(name, str) else f"this {noun}"


Model = TypeVar("Model", bound=BaseModel)

_ROUNDS = 4
"""Times a tree is repaired and validated again. Two are enough unless a stand-in is invalid."""


@dataclass(frozen=True)
class Validated(Generic[Model]):
    """A validated document."""

    model: Model | None
    """None if the document is too broken to be repaired."""
    problems: tuple[Problem, ...]
    tainted: frozenset[Key]
    """Parts of ``model`` that the author did not write."""


def parse_document(document: Document, model: type[Model], kind: FileKind) -> Validated[Model]:
    """The document as a model, with every problem of its structure and of single values."""
    tree = copy.deepcopy(document.value)
    problems: list[Problem] = []
    tainted: set[Key] = set()
    empty = [*_find_empty_values(tree, ())]
    if empty:
        published = schema_of(model)
        words = Words(published, document, kind)
        problems += [words.nothing(key) for key in empty]
        tainted |= {*empty}
        _mend(tree, tainted, published)
    for _ in range(_ROUNDS):
        try:
            model_of_file = model.model_validate(tree, context=FILE, by_name=False)
            return Validated(model_of_file, (*problems,), frozenset(tainted))
        except ValidationError as error:
            errors = _causes(error.errors(include_url=False, include_input=False))
        published = schema_of(model)
        problems += Words(published, document, kind).problems(errors)
        tainted |= {error["loc"] for error in errors}
        _mend(tree, {error["loc"] for error in errors}, published)
    return Validated(None, (*problems,), frozenset(tainted))


def _causes(errors: list[ErrorDetails]) -> list[ErrorDetails]:
    """The errors without those that follow from others.

    These are a default derived from a broken value, and a list that is too short without its broken
    entries.
    """
    above = {error["loc"][:length] for error in errors for length in range(len(error["loc"]))}
    return [
        error
        for error in errors
        if error["type"] != "default_factory_not_called"
        and not (error["type"] == "too_short" and error["loc"] in above)
    ]


def _find_empty_values(node: object, key: Key) -> Iterator[Key]:
    """Every key or list entry without a value."""
    children: dict[str | int, object] = {}
    if isinstance(node, (dict, list)):
        children = dict(node.items() if isinstance(node, dict) else enumerate(node))
    for name, child in children.items():
        if child is None:
            yield (*key, name)
        else:
            yield from _find_empty_values(child, (*key, name))


def _mend(tree: object, broken: set[Key], published: Schema) -> None:
    """Replace each broken required key or list entry by a stand-in; remove other broken keys."""
    for key in sorted(broken, key=len):
        parent: Any = look(tree, key[:-1])
        name: Any = key[-1]
        if isinstance(parent, list) or is_required(published, key):
            parent[name] = stand_in(published, key)
        else:
            parent.pop(name, None)
