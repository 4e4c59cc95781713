"""Processor seconds of whole commands, beside those of another revision, in turns in one run.

    python benchmarks/startup.py main

Processor time of a command and of the processes that it waits for: a busy machine changes it less
than the time on the clock. Each figure is the least of the runs.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COMMANDS = ("--help", "list", "up overlay", "down overlay")
RUNS = 7
SECONDS = 300


def unpack(revision: str, directory: Path) -> Path:
    """The tree of a revision, with its entry points as an installation would have them."""
    archive = subprocess.run(
        ["git", "-C", ROOT, "archive", revision], capture_output=True, check=True
    )
    subprocess.run(["tar", "-x", "-C", directory], input=archive.stdout, check=True)
    project = tomllib.loads((directory / "pyproject.toml").read_text())["project"]
    metadata = directory / "hybridlab-0.dist-info"
    metadata.mkdir()
    rows = [
        row
        for group, plugins in project["entry-points"].items()
        for row in (f"[{group}]", *(f"{name} = {value}" for name, value in plugins.items()))
    ]
    (metadata / "entry_points.txt").write_text("\n".join(rows))
    return directory


def measure(tree: Path, command: str, state: Path) -> float:
    """Processor seconds of one run of a command."""

    def spent() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    before = spent()
    done = subprocess.run(
        [sys.executable, "-m", "lab", *command.split()],
        cwd=tree,
        env={
            **os.environ,
            "PYTHONPATH": str(tree),
            "PYTHONDONTWRITEBYTECODE": "",
            "HYBRIDLAB_STATE": str(state),
        },
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    if done.returncode:
        sys.exit(f"lab {command} ended with {done.returncode}:\n{done.stderr}")
    return spent() - before


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("revision")
    options.add_argument("--runs", type=int, default=RUNS)
    wanted = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="hybridlab-startup-") as place:
        (state := Path(place, "state")).mkdir(mode=0o700)
        (old := Path(place, "old")).mkdir()
        trees = {"old": unpack(wanted.revision, old), "new": ROOT}
        seconds: dict[tuple[str, str], list[float]] = {}
        for number in range(wanted.runs + 1):
            for name, tree in trees.items():
                for command in COMMANDS:
                    spent = measure(tree, command, state)
                    if number:  # the first run compiles the modules
                        seconds.setdefault((name, command), []).append(spent)
    for command in COMMANDS:
        before, after = (min(seconds[name, command]) for name in trees)
        words = f"{before:.3f} s at {wanted.revision}, {after:.3f} s here"
        print(f"lab {command:<16} {after / before:5.2f} times  {words}", flush=True)


if __name__ == "__main__":
    main()
