"""Plug-ins of other distributions: found, used, and named where they are broken."""

import json
import os
import sys
from pathlib import Path
from typing import get_args

import pytest
from processes import run_program

from lab import _plugins
from lab._errors import UsageError

ROOT = Path(__file__).parents[2]
USE = """
import json
from types import SimpleNamespace

from lab.cli.main import command
from lab.explain.check import Look, checks, kinds
from lab.explain.faults.registry import faults
from lab.lifecycle.providers import Providers
from lab.machines.addons.addon import addons
from lab.machines.images import recipes
from lab.machines.system import systems
from lab.matrix.cells import families
from lab.topology.registry import topologies

(check,) = (check for check in checks() if type(check).__module__.startswith("hybridlab_example"))
link = SimpleNamespace(name="eth0", mtu=300)
card = SimpleNamespace(mtu=1500)
machine = SimpleNamespace(name="worker1", card=card)
look = Look(machine, SimpleNamespace(links=[link], os="linux"), "lab", None)
(difference,) = check.on_machine(look)
print(json.dumps({
    "topology": topologies()["example-routed"].kind,
    "addon": type(addons()["example-routed"]).__name__,
    "family": families()["example-itself"].order,
    "check": [difference.kind, difference.mends],
    "fault": kinds()["example-tiny-mtu"].fault in faults(),
    "command": command.get_command(None, "cells").name,
    "image": recipes.load("example-image").summary,
    "provider": Providers()["example"].name,
    "system": [system.name for system in systems()],
}))
"""


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    """The directory that the example distribution is installed in."""
    target = tmp_path_factory.mktemp("site")
    install = ("-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index")
    run_program([sys.executable, *install, "--target", target, ROOT / "examples/plugin"])
    return target


def run(site: Path, *words: str, check: bool = True):
    state = site / "state"
    state.mkdir(mode=0o700, exist_ok=True)
    environment = {**os.environ, "PYTHONPATH": str(site), "HYBRIDLAB_STATE": str(state)}
    return run_program([sys.executable, *words], env=environment, check=check)


@pytest.mark.room
def test_example_distribution_has_a_plug_in_of_every_kind(example):
    kinds = {
        line.split('"hybridlab.')[1].split('"')[0]
        for line in (ROOT / "examples/plugin/pyproject.toml").read_text().splitlines()
        if '"hybridlab.' in line
    }
    assert kinds == set(get_args(_plugins.Kind))
    assert json.loads(run(example, "-c", USE).stdout) == {
        "topology": "example-routed",
        "addon": "ExampleBridges",
        "family": 500,
        "check": ["example-tiny-mtu", "ip link set eth0 mtu 1500"],
        "fault": True,
        "command": "cells",
        "image": "Debian 12 as its makers publish it",
        "provider": "example",
        "system": ["example", "windows", "windows"],
    }


def test_its_command_topology_and_provider_are_used_like_ours(example, tmp_path):
    assert "Print how many cells SCENARIO has." in run(example, "-m", "lab", "--help").stdout
    scenario = tmp_path / "mine.yaml"
    text = (ROOT / "scenarios/upstream-tor.yaml").read_text(encoding="utf-8")
    scenario.write_text(text.replace("kind: upstream-tor", "kind: example-routed"))
    assert int(run(example, "-m", "lab", "cells", str(scenario)).stdout) > 0
    up = run(example, "-m", "lab", "up", str(scenario), "--provider", "example", "--name", "plug")
    assert "is up" in up.stdout + up.stderr


def install(directory: Path, name: str, group: str, entries: str) -> None:
    metadata = directory / f"{name}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "entry_points.txt").write_text(f"[hybridlab.{group}]\n{entries}\n")


def test_entry_points_are_read_as_the_specification_has_them(tmp_path):
    text = "[console_scripts]\na = b:c\n\n[hybridlab.faults]\n# one\n x = m.n : o [extra]\ny=m\n"
    install(tmp_path, "other", "faults", text.partition("[hybridlab.faults]\n")[2])
    plugins = list(_plugins._read(str(tmp_path), "other-1.0.dist-info"))
    assert [(plugin.name, plugin.module, plugin.attribute) for plugin in plugins] == [
        ("x", "m.n", "o"),
        ("y", "m", ""),
    ]


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ("cells = missing_module:command", "No module named 'missing_module'"),
        ("cells = json:missing", "module 'json' has no attribute 'missing'"),
        ("cells = json:dumps", "json:dumps of broken-1.0 is not a click command"),
    ],
)
def test_broken_command_of_a_plug_in_is_named_when_it_is_used(tmp_path, entry, reason):
    install(tmp_path, "broken", "commands", entry)
    used = run(tmp_path, "-m", "lab", "cells", check=False)
    assert used.returncode == 2
    assert reason in used.stderr
    assert "broken-1.0" in used.stderr
    assert run(tmp_path, "-m", "lab", "list").returncode == 0


def test_plug_in_that_cannot_be_imported_is_no_defect_of_ours():
    plugin = _plugins.Plugin("checks", "x", "missing_module", "", "other-2.0")
    with pytest.raises(UsageError, match=r"install another version of other-2\.0"):
        plugin.load()


def test_room_that_is_left_out_is_not_loaded_and_the_help_names_it(monkeypatch):
    monkeypatch.setattr(_plugins, "find_spec", lambda _: None)
    plugin = _plugins.Plugin("checks", "x", "lab.windows.checks", "", "hybridlab-1.0")
    assert not plugin.installed
    assert not any(room.installed for room in _plugins.ROOMS)
