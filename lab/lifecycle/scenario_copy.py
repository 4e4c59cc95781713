"""The scenario as it was when the lab was brought up, in the lab's own directory."""

from __future__ import annotations

from pathlib import Path

from lab.state.directory import make_private
from lab.state.failure import guarded_files
from lab.state.files import read_private, write_private

FILE = "scenario.yaml"


def write_scenario(directory: Path, text: str) -> Path:
    """Write the scenario into the lab's directory, unless it is there; its path.

    Raises
    ------
    StateError
        When it cannot be written.

    """
    path = directory / FILE
    make_private(directory)
    with guarded_files(f"reading '{path}'"):
        there = path.is_file() and read_private(path) == text.encode()
    if not there:
        write_private(path, text)
    return path
