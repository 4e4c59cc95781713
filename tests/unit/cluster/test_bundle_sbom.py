"""The bill of materials of a bundle: valid CycloneDX, complete, and the same every time."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from linux_clusters import bundle
from packageurl import PackageURL

from lab.cluster.bundle.manifest import Blob, ContainerImage, Layer, Manifest
from lab.cluster.bundle.sbom import SPECIFICATION, bill_of_materials

BLOB = Blob("ab" * 32, 10)
WINDOWS = ContainerImage(
    "registry.k8s.io:443/e2e/pause:3.10",
    "windows",
    "10.0.20348.2762",
    BLOB,
    Blob("cd" * 32, 1),
    (Layer("application/vnd.oci.image.layer.v1.tar+gzip", Blob("ef" * 32, 5)),),
    "pulled",
)


@pytest.fixture
def manifest():
    found = bundle()
    newer = replace(WINDOWS, os_version="10.0.17763.1", manifest=Blob("12" * 32, 3))
    return replace(found, images=(*found.images, WINDOWS, newer))


def components(manifest: Manifest) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(bill_of_materials(manifest))["components"]
    return found


def test_it_is_valid_by_the_schema_of_cyclonedx(manifest):
    validator = JsonStrictValidator(SchemaVersion.from_version(SPECIFICATION))
    assert validator.validate_str(bill_of_materials(manifest)) is None
    broken = bill_of_materials(manifest).replace('"SHA-256"', '"SHA-257"')
    assert validator.validate_str(broken) is not None, "else the validator sees nothing"


def test_every_program_and_every_image_is_in_it_once(manifest):
    found = components(manifest)
    refs = [one["bom-ref"] for one in found]
    assert len(set(refs)) == len(refs) == len(manifest.programs) + len(manifest.images)
    document = json.loads(bill_of_materials(manifest))
    assert document["dependencies"][0]["dependsOn"] == refs
    digests = {one["hashes"][0]["content"] for one in found}
    assert digests == {one.blob.sha256 for one in manifest.programs} | {
        one.manifest.sha256 for one in manifest.images
    }


def test_a_program_has_the_version_of_its_component_where_that_is_known(manifest):
    known, unknown = manifest.programs[:2]
    programs = (replace(known, component="kubernetes"), replace(unknown, component="own"))
    found = components(replace(manifest, programs=programs, images=()))
    assert {one["name"]: one.get("version") for one in found} == {
        known.name: manifest.kubernetes,
        unknown.name: None,
    }


def test_an_image_has_a_package_url_that_leads_back_to_it(manifest):
    (image, _) = [one for one in components(manifest) if one["name"].endswith("e2e/pause")]
    assert (image["name"], image["version"]) == ("registry.k8s.io:443/e2e/pause", "3.10")
    url = PackageURL.from_string(image["purl"])
    assert (url.type, url.name) == ("oci", "pause")
    assert str(url.version).removeprefix("sha256:") in {"12" * 32, "ab" * 32}
    assert url.qualifiers == {
        "arch": "amd64",
        "repository_url": "registry.k8s.io:443/e2e/pause",
        "tag": "3.10",
    }


def test_the_same_bundle_gives_the_same_document_and_another_another(manifest):
    shuffled = replace(manifest, programs=tuple(reversed(manifest.programs)))
    assert bill_of_materials(shuffled) == bill_of_materials(manifest)
    other = replace(manifest, images=manifest.images[:1])
    one, two = (json.loads(bill_of_materials(each)) for each in (manifest, other))
    assert one["serialNumber"] != two["serialNumber"]
