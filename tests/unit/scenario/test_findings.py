"""Broken scenario files, and to the letter what is said of each."""

from __future__ import annotations

from pathlib import Path

import pytest
from broken_files import BrokenFiles

from lab._errors import ScenarioError
from lab.scenario.loader import load
from lab.topology import registry

TABLE = BrokenFiles(
    Path(__file__).parents[2] / "cases" / "scenario" / "broken.txt", ".yaml", "scenario"
)
CASES = TABLE.read()


# SECURITY.md: A scenario is data.
@pytest.mark.parametrize("name", CASES)
def test_broken_file_is_told_what_is_wrong_where_and_what_to_do(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = CASES[name].write(Path())
    with pytest.raises(ScenarioError) as caught:
        load(path, topology_check=registry.check)
    TABLE.check(CASES[name], str(caught.value))
