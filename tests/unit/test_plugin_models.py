"""What `tools/plugin.py` begins is a plug-in of its own name."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from lab.topology import windows_limits

sys.path.append(str(Path(__file__).parents[2] / "tools"))
import plugin
from processes import run_program

ROOT = Path(__file__).parents[2]


def loaded(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("kind", "constant", "key"),
    [("fault", "FAULT", "name"), ("family", "FAMILY", "name"), ("topology", "TOPOLOGY", "kind")],
)
def test_copy_is_a_plug_in_of_the_new_name(kind, constant, key, tmp_path):
    made = plugin.begin(kind, "cable-cut", tmp_path)
    assert made == tmp_path / Path(plugin.MODELS[kind]).with_name("cable_cut.py")
    assert getattr(getattr(loaded(made), constant), key) == "cable-cut"
    with pytest.raises(FileExistsError):
        plugin.begin(kind, "cable-cut", tmp_path)


def test_topology_has_the_limits_that_its_emulated_windows_nodes_have(tmp_path):
    made = loaded(plugin.begin("topology", "cable-cut", tmp_path)).TOPOLOGY
    assert made.limits == windows_limits.EVERYWHERE
    assert made.also == ()


def test_check_has_kinds_of_the_new_name(tmp_path):
    assert 'Kind("cable-cut-down"' in plugin.begin("check", "cable-cut", tmp_path).read_text()


def test_cni_is_that_of_the_topology_of_the_new_name(tmp_path):
    made = loaded(plugin.begin("cni", "cable-cut", tmp_path))
    assert made.ADDON.topologies == {"cable-cut"}


def test_provider_is_a_package_that_makes_one_of_the_new_name(tmp_path):
    made = plugin.begin("provider", "cable-cut", tmp_path)
    assert made.name == "cable_cut"
    assert {one.name for one in made.iterdir()} == {"__init__.py", "marks.py", "provider.py"}
    assert 'name: str = "cable-cut"' in (made / "provider.py").read_text()


def test_image_is_a_folder_and_a_command_a_file(tmp_path):
    recipe = (plugin.begin("image", "debian-14", tmp_path) / "image.yaml").read_text()
    assert recipe.startswith("name: debian-14\n")
    made = plugin.begin("command", "cable-cut", tmp_path)
    assert made.name == "cable_cut.py"
    assert loaded(made).command.name == "cable-cut"


@pytest.mark.parametrize("name", ["Cable", "../cut", "cable_cut", "cut-", ""])
def test_what_is_no_name_is_refused_and_nothing_is_written(name, tmp_path):
    with pytest.raises(ValueError, match="is not a name"):
        plugin.begin("fault", name, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_contributing_names_the_script_and_every_kind_has_a_model():
    listed = run_program([sys.executable, ROOT / "tools/plugin.py", "--list"])
    assert [line.split()[0] for line in listed.stdout.splitlines()] == [*plugin.MODELS]
    assert all((ROOT / model).exists() for model in plugin.MODELS.values())
    assert "tools/plugin.py" in (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
