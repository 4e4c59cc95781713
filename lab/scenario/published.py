"""Reading the published JSON Schema: what it says of a key, and a valid value for it."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping

from lab.scenario.findings import Key
from lab.scenario.json_schema import Schema


def part(published: Schema, key: Key) -> Schema:
    """The part of the schema that speaks of a key; empty where none does."""
    node = published
    for name in key:
        node = _resolved(published, node)
        entries = node.get("items", {})
        node = entries if isinstance(name, int) else node.get("properties", {}).get(name, {})
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


def as_written(value: object) -> str:
    """A value as one would write it in the file, on one line."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return f"{{{', '.join(f'{name}: {as_written(one)}' for name, one in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(as_written(one) for one in value)}]"
    if isinstance(value, str) and re.fullmatch(r"[0-9.]*", value) and value.count(".") <= 1:
        return f'"{value}"'
    return str(value)


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
