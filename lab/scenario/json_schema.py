"""The published JSON Schema of scenario files (draft 2020-12)."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from lab.scenario.scenario import Scenario

DIALECT = "https://json-schema.org/draft/2020-12/schema"
ID = "urn:hybridlab:scenario:1"

Schema = dict[str, Any]


class _Generator(GenerateJsonSchema):
    """Publishes optional keys as keys that may be left out, never as ``null``."""

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        published = super().default_schema(schema)
        if published.get("default", ...) is None:
            del published["default"]
        return published

    def encode_default(self, dft: Any) -> Any:
        """A port range is published as it is written."""
        is_range = isinstance(dft, tuple) and any(isinstance(one, int) for one in dft)
        return f"{dft[0]}-{dft[1]}" if is_range else super().encode_default(dft)


def of(model: type[BaseModel]) -> Schema:
    """The JSON Schema of any file that a model describes."""
    published: Schema = model.model_json_schema(schema_generator=_Generator)
    _untitled(published)
    return published


def schema(topology_schemas: Mapping[str, Schema] | None = None) -> Schema:
    """The JSON Schema of a scenario file.

    Parameters
    ----------
    topology_schemas
        By topology kind, the schema of an object holding that topology's own parameters
        (``kind`` itself is added here). Without it, any kind and any parameters are valid.

    """
    published = of(Scenario)
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


def _untitled(node: Any) -> None:
    """Drop pydantic's titles, which only repeat the key."""
    if isinstance(node, dict):
        if isinstance(node.get("title"), str):
            del node["title"]
        for child in node.values():
            _untitled(child)
    elif isinstance(node, list):
        for child in node:
            _untitled(child)


def _topologies(anything: Schema, schemas: Mapping[str, Schema]) -> Schema:
    """One alternative a kind, each with its own parameters and no others."""
    return {
        "title": "topology",
        "description": anything["description"],
        "type": "object",
        "oneOf": [_topology(kind, parameters) for kind, parameters in sorted(schemas.items())],
    }


def _topology(kind: str, parameters: Schema) -> Schema:
    one = copy.deepcopy(parameters)
    known = {"kind": {"const": kind, "description": "Name of the topology."}}
    one["properties"] = known | {k: v for k, v in one.get("properties", {}).items() if k != "kind"}
    one["required"] = ["kind", *(key for key in one.get("required", []) if key != "kind")]
    one.setdefault("title", kind)
    one.setdefault("type", "object")
    one.setdefault("additionalProperties", False)
    return one
