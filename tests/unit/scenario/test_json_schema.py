import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from broken_files import BrokenFiles

from lab.scenario.loader import find, load, shipped
from lab.scenario.source import parse
from lab.scenario.validation import schema, stand_in

CASES = Path(__file__).parents[2] / "cases" / "scenario"
KINDS = {load(find(name)).topology.kind for name in shipped()}
TOPOLOGIES = {
    "overlay": {
        "description": "A tunnel.",
        "properties": {"vni": {"type": "integer"}, "port": {"type": "integer"}},
    },
    "calico-bgp": {"properties": {"peering": {"type": "string"}, "hold_seconds": {}}},
    "upstream-vrrp": {"properties": {"office_cidr": {}, "advert_seconds": {}}},
    "kubeinit": {"properties": {"vni": {"type": "integer"}, "port": {"type": "integer"}}},
    **{
        kind: {"type": "object"}
        for kind in KINDS - {"overlay", "kubeinit", "calico-bgp", "upstream-vrrp"}
    },
}


BROKEN = BrokenFiles(CASES / "broken.txt", ".yaml", "scenario").read()


def tree(data: bytes) -> Any:
    document, _ = parse(data)
    assert document is not None
    return document.value


def validator(topologies: dict[str, dict[str, Any]] | None) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(schema(topologies))


@pytest.mark.parametrize("topologies", [None, TOPOLOGIES], ids=["any topology", "known topologies"])
def test_schema_is_valid_draft_2020_12_and_plain_json(topologies):
    published = schema(topologies)
    jsonschema.Draft202012Validator.check_schema(published)
    assert json.loads(json.dumps(published)) == published
    assert published["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert published["$id"]


@pytest.mark.parametrize("topologies", [None, TOPOLOGIES], ids=["any topology", "known topologies"])
@pytest.mark.parametrize(
    "path", [*map(find, shipped()), CASES / "valid" / "everything.yaml"], ids=lambda path: path.stem
)
def test_valid_scenarios_validate(path, topologies):
    assert [*validator(topologies).iter_errors(tree(path.read_bytes()))] == []


def test_everything_has_every_key():
    def used(node):
        if isinstance(node, dict):
            yield from node
        for child in node.values() if isinstance(node, dict) else node:
            if isinstance(child, (dict, list)):
                yield from used(child)

    published = schema()
    sections = [published, *published["$defs"].values()]
    known = {key for section in sections for key in section.get("properties", {})}
    assert known <= {*used(tree((CASES / "valid" / "everything.yaml").read_bytes()))}


@pytest.mark.parametrize(
    "case",
    [
        "unknown-key",
        "unknown-os",
        "missing-section",
        "no-value",
        "version-without-quotes",
        "version-too-old",
        "name-no-dns-label",
        "cidr-without-length",
        "memory-wrong-unit",
        "count-is-zero",
        "mtu-too-large",
        "empty-families",
    ],
)
def test_schema_refuses_what_the_loader_refuses(case):
    assert [*validator(None).iter_errors(tree(BROKEN[case].data))]


def test_topology_is_one_of_the_known_kinds_with_its_own_parameters():
    overlay = tree(find("overlay").read_bytes())
    known = validator(TOPOLOGIES)
    for wrong in ({"kind": "vxlan"}, {"kind": "hard-way", "vni": 4096}, {"vni": 4096}):
        assert [*known.iter_errors(overlay | {"topology": wrong})], wrong


def fields(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        yield from node.get("properties", {}).values()
        for child in node.values():
            yield from fields(child)
    elif isinstance(node, list):
        for child in node:
            yield from fields(child)


def test_every_field_is_described_and_none_is_null():
    published = schema(TOPOLOGIES)
    assert [
        field for field in fields(published["properties"]) if not field.get("description")
    ] == []
    for section in published["$defs"].values():
        assert section["description"]
        if "oneOf" not in section:
            assert [field for field in fields(section) if not field.get("description")] == []
    assert '"null"' not in json.dumps(published)


def test_examples_and_defaults_are_valid():
    published = schema()
    for section in published["$defs"].values():
        for field in fields(section):
            own = {"$defs": published["$defs"], **field}
            for value in [
                *field.get("examples", ()),
                *([field["default"]] if "default" in field else ()),
            ]:
                jsonschema.Draft202012Validator(own).validate(value)


def test_stand_ins_make_a_valid_scenario():
    validator(None).validate(stand_in(schema(), ()))
