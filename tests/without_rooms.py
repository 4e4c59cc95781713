"""Run the core's tests in a copy of the repository without its rooms: a tool, not a test.

``python tests/without_rooms.py windows`` leaves ``lab/windows/`` out; ``... windows machines`` both
rooms. Tests that import a room are that room's, and left out with it.
"""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
ROOMS = ("windows", "machines")
QUICK = "not room and not machines and not slow"


def imports(path: Path) -> Iterator[str]:
    """Names of the modules that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def needing(tests: Path, rooms: tuple[str, ...]) -> set[Path]:
    """The files of tests that import one of the rooms, themselves or through others of theirs."""
    imported = {path: set(imports(path)) for path in tests.rglob("*.py")}
    needed = {
        path
        for path, names in imported.items()
        if any(f"{name}.".startswith(f"lab.{room}.") for name in names for room in rooms)
    }
    while True:
        stems = {path.stem for path in needed}
        more = {path for path, names in imported.items() if names & stems} - needed
        if not more:
            return needed
        needed |= more


def copy_without(rooms: tuple[str, ...], into: Path) -> None:
    """Copy what git knows of the repository, without the rooms and what needs them."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in filter(None, listed.stdout.split("\0")):
        if not name.startswith(tuple(f"lab/{room}/" for room in rooms)):
            target = into / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target)
    for path in needing(into / "tests", rooms):
        path.unlink()


def main() -> int:
    """Run the tests; return pytest's exit code."""
    rooms = tuple(sys.argv[1:]) or ROOMS
    if set(rooms) - set(ROOMS):
        sys.exit(f"usage: {sys.argv[0]} [{'|'.join(ROOMS)}]...")
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        copy_without(rooms, copy)
        environment = {**os.environ, "PYTHONPATH": folder}
        words = ("-m", "pytest", "-q", "-n", "2", "--dist", "loadfile", "-p", "no:cacheprovider")
        where = [f"tests/{part}" for part in ("unit", "netns")]
        tests = [sys.executable, *words, "-m", QUICK, *where]
        return subprocess.run(tests, cwd=copy, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
