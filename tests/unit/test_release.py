"""A release's wheel is compared with the tree, file by file."""

from __future__ import annotations

import hashlib
import json
import runpy
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from ruamel.yaml import YAML

RELEASE = runpy.run_path(str(Path(__file__).parents[2] / "tools" / "release.py"))
compare, manifest, read_tree = (RELEASE[name] for name in ("compare", "manifest", "read_tree"))
bill_of_materials = RELEASE["bill_of_materials"]
TREE = {
    "lab/a.py": b"a",
    "scenarios/overlay.yaml": b"o",
    "images/x/image.yaml": b"i",
    "docs/lab.example.toml": b"t",
    "README.md": b"r",
}
WHEEL = {
    "lab/a.py": b"a",
    "lab/scenarios/overlay.yaml": b"o",
    "lab/images/x/image.yaml": b"i",
    "lab/lab.example.toml": b"t",
    "lab/windows/wine/compiled/hns.exe": b"compiled",
    "hybridlab-0.1.0.dist-info/METADATA": b"made",
}


def test_a_wheel_of_the_tree_is_the_tree():
    assert list(compare(WHEEL, TREE)) == []


@pytest.mark.parametrize(
    ("wheel", "tree", "expected"),
    [
        ({**WHEEL, "lab/a.py": b"b"}, TREE, "lab/a.py: differs from lab/a.py"),
        (
            {**WHEEL, "lab/scenarios/overlay.yaml": b"x"},
            TREE,
            "lab/scenarios/overlay.yaml: differs from scenarios/overlay.yaml",
        ),
        ({**WHEEL, "lab/new.py": b""}, TREE, "lab/new.py: git does not know lab/new.py"),
        ({**WHEEL, "secret.txt": b""}, TREE, "secret.txt: git does not know secret.txt"),
        (WHEEL, {**TREE, "images/y": b""}, "images/y: is not in the wheel"),
        (
            {name: content for name, content in WHEEL.items() if "compiled" not in name},
            TREE,
            "lab/windows/wine/compiled/: the stand-ins of Wine nodes are not compiled",
        ),
    ],
    ids=["changed", "moved and changed", "untracked", "beside", "left out", "not compiled"],
)
def test_what_differs_is_named(wheel, tree, expected):
    assert list(compare(wheel, tree)) == [expected]


def test_the_manifest_has_the_digest_of_the_wheel_and_of_each_file(tmp_path):
    path = tmp_path / "hybridlab-0.1.0-py3-none-any.whl"
    path.write_bytes(b"wheel")
    made = manifest(path, WHEEL)
    assert made["sha256"] == hashlib.sha256(b"wheel").hexdigest()
    assert made["files"]["lab/a.py"] == hashlib.sha256(b"a").hexdigest()
    assert list(made["files"]) == sorted(WHEEL)


def test_the_bill_of_materials_has_each_locked_package_and_is_valid_cyclonedx():
    locked = (Path(__file__).parents[2] / "requirements.txt").read_text()
    bill = bill_of_materials("hybridlab-0.1.0-py3-none-any.whl", "0.1.0", locked)
    named = {component["name"]: component["version"] for component in bill["components"]}
    assert {"click", "pydantic", "pytest", "rich"} <= named.keys()
    assert len(named) == locked.count("==")
    validator = JsonStrictValidator(SchemaVersion.V1_6)
    assert validator.validate_str(json.dumps(bill)) is None
    assert validator.validate_str(json.dumps({**bill, "components": [{}]})) is not None


@pytest.mark.parametrize("action", ["attest-build-provenance", "upload-artifact"])
def test_the_workflow_of_a_release_builds_it_before_it_attests_and_keeps_the_files(action):
    path = Path(__file__).parents[2] / ".github/workflows/release.yml"
    (job,) = YAML(typ="safe").load(path)["jobs"].values()
    steps = [step.get("run", step.get("uses", "")) for step in job["steps"]]
    (place,) = [number for number, step in enumerate(steps) if action in step]
    assert steps.index("make release") < place
    written = {name for name, right in job["permissions"].items() if right == "write"}
    assert written == {"id-token", "attestations"}
