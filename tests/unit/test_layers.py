"""A module knows only what stands left of it in the flow."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import lab

ROOT = Path(lab.__file__).parent
FLOW = (
    "state",
    "scenario",
    "inventory",
    "plan",
    "topology",
    "guests",
    "imaging",
    "cluster",
    "providers",
    "matrix",
    "suites",
    "reports",
    "lifecycle",
    "cli",
)
EVERYONE = {"_deadline", "_errors", "_log"}
THE_DOERS = {"providers", "guests", "imaging"}
ONLY_DOERS = {"subprocess", "socket", "ctypes", "libvirt", "paramiko", "winrm", "pycdlib"}
STARTS_LAB_ITSELF = ROOT / "lifecycle" / "command.py"
"""The one exception: docs/decisions/0008-nightly-runs-commands.md."""
SLOW = {"rich", "jinja2", "pytest", "dns", "pydantic", "ruamel", "sqlite3"} | ONLY_DOERS


def modules() -> list[Path]:
    return sorted(ROOT.rglob("*.py"))


def imports(path: Path, *, top_level: bool = False) -> Iterator[str]:
    tree = ast.parse(path.read_text())
    nodes = tree.body if top_level else ast.walk(tree)
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def package_of(name: str) -> str | None:
    parts = name.split(".")
    return parts[1] if parts[0] == "lab" and len(parts) > 1 else None


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_module_imports_only_what_stands_left_of_it(path: Path) -> None:
    own = path.relative_to(ROOT).parts[0]
    if own not in FLOW:
        return
    allowed = EVERYONE | set(FLOW[: FLOW.index(own) + 1])
    known = allowed | set(FLOW)
    reached = {package for name in imports(path) if (package := package_of(name)) in known}
    assert reached <= allowed, f"{path.name} reaches right: {sorted(reached - allowed)}"


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_only_providers_guests_and_imaging_speak_to_the_system(path: Path) -> None:
    if path.relative_to(ROOT).parts[0] in THE_DOERS:
        return
    reached = {name.split(".")[0] for name in imports(path)} & ONLY_DOERS
    assert reached <= ({"subprocess"} if path == STARTS_LAB_ITSELF else set())


def test_state_knows_no_other_package() -> None:
    for path in (ROOT / "state").glob("*.py"):
        reached = {package_of(name) for name in imports(path)} - {None, "state"} - EVERYONE
        assert not reached, path.name


@pytest.mark.parametrize("path", sorted((ROOT / "cli").glob("*.py")), ids=lambda path: path.name)
def test_command_line_imports_nothing_slow_at_its_top(path: Path) -> None:
    reached = {name.split(".")[0] for name in imports(path, top_level=True)} & SLOW
    assert not reached


def test_every_package_of_the_flow_exists() -> None:
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert packages == set(FLOW)
