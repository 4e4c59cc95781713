"""The pins of what test bundles are built from agree with the modules that are built."""

import pytest
from bundle_pins import read_pins

PINS = read_pins()


def test_versions_passed_to_kubernetes_agree():
    minor = PINS.versions["kubernetes"].split(".")[1]
    assert PINS.versions["staging"].split(".")[1] == minor
    for build in (build for build in PINS.builds if build.module.name == "kubernetes"):
        assert {one.split("=")[1] for one in build.sets if ".gitMinor=" in one} == {minor}


@pytest.mark.parametrize("module", PINS.modules, ids=lambda module: module.name)
def test_a_module_is_pinned_at_the_versions_of_the_pins(module):
    pinned = (module.folder / "go.mod").read_text()
    sums = (module.folder / "go.sum").read_text()
    for require in module.requires:
        path, version = require.split("@")
        assert f"{path} {version}" in pinned
        assert f"{path} {version} h1:" in sums
    assert pinned.count(f" {module.staging}\n") > 20 if module.staging else "=>" not in pinned
