"""The built wheel, in an environment of its own, is a whole product."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from lab_command import assert_nothing_is_left

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
ENOUGH_SECONDS = 300


def run(*words: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [str(word) for word in words],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=ENOUGH_SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
    return done


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    out = tmp_path_factory.mktemp("dist")
    pip = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation")
    run(*pip, "--wheel-dir", out, ROOT)
    (built,) = out.glob("hybridlab-*.whl")
    return built


def test_wheel_holds_scenarios_templates_suite_and_types(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    for scenario in (ROOT / "scenarios").glob("*.yaml"):
        assert f"lab/scenarios/{scenario.name}" in names
    assert "lab/suites/pytest.ini" in names
    assert {"lab/lab.example.toml", "lab/py.typed"} <= names
    assert any(name.startswith("lab/reports/templates/") for name in names)
    assert any(name.startswith("lab/images/") for name in names)


def test_wheel_holds_the_compiled_stand_ins_of_wine_nodes(wheel, tmp_path):
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    words = "from lab.windows.wine import standins; print(standins.compiled(None))"
    packaged = run(sys.executable, "-P", "-c", words, PYTHONPATH=str(tmp_path)).stdout.strip()
    assert packaged == str(tmp_path / "lab/windows/wine/compiled")
    for name in ("probe.exe", "keeper.exe", "bcryptprimitives.dll"):
        content = Path(packaged, name).read_bytes()
        assert content.startswith(b"MZ"), name


def test_installed_wheel_brings_overlay_up_and_tests_it(wheel, tmp_path):
    run(sys.executable, "-m", "venv", tmp_path / "venv")
    pip = (tmp_path / "venv/bin/python", "-m", "pip", "install", "--quiet")
    run(*pip, "--require-hashes", "--requirement", ROOT / "requirements.txt")
    run(*pip, "--no-deps", wheel)
    lab = tmp_path / "venv/bin/lab"
    state = tmp_path / "state"
    home = {"HYBRIDLAB_STATE": str(state), "PYTHONPATH": ""}
    try:
        run(lab, "up", "overlay", **home)
        run(lab, "test", "overlay", **home)
        assert "[hypervisors." in run(lab, "inventory", "example", **home).stdout
    finally:
        run(lab, "down", "overlay", **home)
    assert_nothing_is_left(state)
