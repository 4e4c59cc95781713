"""What `tools/plugin.py` begins is a plug-in of its own name, found at once."""

import json
import os
import shutil
import sys
import tomllib
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "tools"))
import plugin
from processes import run_program

ROOT = Path(__file__).parents[2]
FOUND = """
import json
from types import SimpleNamespace

from lab.cli.main import command
from lab.machines.addons.addon import addons
from lab.explain.check import checks, kinds, Look
from lab.explain.faults.registry import faults
from lab.matrix.cells import families
from lab.topology import windows_limits
from lab.facts.items import Item
from lab.topology.subject import QueueSubject
from lab.topology.registry import topologies

new = "cable-cut"
shaper = Item("queue", QueueSubject("queue", "root", "eth0"), "tbf rate 1Mbit", "", "tc", "tc")
seen = SimpleNamespace(items={shaper.key: shaper}, os="linux")
(check,) = (one for one in checks() if type(one).__module__.endswith(".cable_cut"))
machine = SimpleNamespace(name="worker1", wire="eth0", sends=None, receives=None)
(difference,) = check.on_machine(Look(machine, seen, "lab", None))
made = topologies()[new]
print(json.dumps({
    "topology": [made.kind, made.limits == windows_limits.EVERYWHERE, list(made.also)],
    "cni": sorted(addons()[new].topologies),
    "family": new in families(),
    "fault": [faults()[new].name, faults()[new].kind in kinds()],
    "check": [difference.kind, difference.node, kinds()[new].fault],
    "command": command.get_command(None, new).name,
}))
"""


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """The product with a plug-in of every kind."""
    root = tmp_path_factory.mktemp("copy")
    for part in ("lab", "images", "scenarios"):
        shutil.copytree(ROOT / part, root / part, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", root)
    for kind in plugin.MODELS:
        plugin.begin(kind, "cable-cut", root)
    register(root)
    return root


def register(root: Path) -> None:
    """Install the entry points of the copy's ``pyproject.toml``, as pip does."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = [
        line
        for group, entries in project["entry-points"].items()
        for line in (f"[{group}]", *(f"{name} = {value}" for name, value in entries.items()))
    ]
    metadata = root / "copy-1.0.dist-info"
    metadata.mkdir()
    (metadata / "entry_points.txt").write_text("\n".join(lines), encoding="utf-8")


def run(copy: Path, *words: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(copy), "HYBRIDLAB_STATE": str(copy / "state")}
    return run_program([sys.executable, *words], cwd=copy, env=environment).stdout


@pytest.mark.room
def test_plug_in_of_every_kind_is_found_by_its_name(copy):
    assert json.loads(run(copy, "-c", FOUND)) == {
        "topology": ["cable-cut", True, []],
        "cni": ["cable-cut"],
        "family": True,
        "fault": ["cable-cut", True],
        "check": ["cable-cut", "worker1", "slow-link"],
        "command": "cable-cut",
    }
    assert "cable-cut" in run(copy, "-m", "lab", "image", "list")
    assert "cable-cut" in run(copy, "-m", "lab", "--help")
    scenario = copy / "mine.yaml"
    text = (ROOT / "scenarios/upstream-tor.yaml").read_text(encoding="utf-8")
    scenario.write_text(text.replace("kind: upstream-tor", "kind: cable-cut"), encoding="utf-8")
    assert "valid" in run(copy, "-m", "lab", "validate", str(scenario))
    assert "is up" in run(copy, "-m", "lab", "up", str(scenario), "--provider", "cable-cut")


def test_command_is_a_file_and_its_row_below_that_of_its_model(copy):
    table, before = (
        (root / plugin.TABLES["command"][0]).read_text(encoding="utf-8").splitlines()
        for root in (copy, ROOT)
    )
    (at,) = (number for number, line in enumerate(table) if "cable" in line)
    assert table[at] == table[at - 1].replace("events", "cable-cut")
    assert table[:at] + table[at + 1 :] == before


@pytest.mark.room
def test_name_that_is_taken_is_refused(copy):
    for kind in plugin.MODELS:
        with pytest.raises(FileExistsError):
            plugin.begin(kind, "cable-cut", copy)


@pytest.mark.parametrize("name", ["Cable", "../cut", "cable_cut", "cut-", ""])
def test_what_is_no_name_is_refused_and_nothing_is_written(name, tmp_path):
    with pytest.raises(ValueError, match="is not a name"):
        plugin.begin("fault", name, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.room
def test_contributing_names_the_script_and_every_kind_has_a_model():
    listed = run_program([sys.executable, ROOT / "tools/plugin.py", "--list"])
    assert [line.split()[0] for line in listed.stdout.splitlines()] == [*plugin.MODELS]
    assert all((ROOT / model).exists() for model in plugin.MODELS.values())
    assert "tools/plugin.py" in (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
