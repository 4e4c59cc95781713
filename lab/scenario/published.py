"""Reading the published JSON Schema: what it says of a key, and a valid value for it."""

from __future__ import annotations

import copy
from collections.abc import Mapping

from lab.scenario.findings import Key
from lab.scenario.json_schema import Schema


def part(published: Schema, key: Key) -> Schema:
    """The part of the schema that speaks of a key; empty where none does."""
    node = published
    for name in key:
        node = _resolved(published, node)
        node = node.get("items", {}) if isinstance(name, int) else _property(node, name)
    return _resolved(published, node)


def keys(published: Schema, key: Key) -> list[str]:
    """The keys of the mapping at a key."""
    return [*part(published, key).get("properties", {})]


def is_required(published: Schema, key: Key) -> bool:
    """Whether the mapping above a key must have it."""
    return key[-1] in part(published, key[:-1]).get("required", ())


def stand_in(published: Schema, key: Key) -> object:
    """A valid value for a key: its first example, its default, or the least that is required."""
    return _stand_in(published, part(published, key))


def _property(node: Schema, name: str) -> Schema:
    """The schema of a key: its own, or that of all keys whose names are free."""
    free = node.get("additionalProperties")
    found: Schema = node.get("properties", {}).get(name, free if isinstance(free, dict) else {})
    return found


def _resolved(published: Schema, node: Schema) -> Schema:
    if "$ref" not in node:
        return node
    target: Schema = published["$defs"][node["$ref"].rpartition("/")[2]]
    return target | {name: value for name, value in node.items() if name != "$ref"}


def _stand_in(published: Schema, node: Schema) -> object:
    node = _resolved(published, node)
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
