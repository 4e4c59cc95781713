"""Broken scenario files, and to the letter what is said of each.

Every ``tests/cases/scenario/NAME.yaml`` has beside it ``NAME.txt``: what loading it must print.
After a wording has been changed on purpose, write them anew and read the difference:

    LAB_REGENERATE=1 pytest tests/unit/scenario/test_findings.py; git diff tests/cases

A run that regenerates fails, so that it is never mistaken for a test; with ``CI`` set in the
environment nothing is regenerated at all.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from lab._errors import ScenarioError
from lab.scenario.loader import load
from lab.topology import registry

CASES = Path(__file__).parents[2] / "cases" / "scenario"
REGENERATE = os.environ.get("LAB_REGENERATE") == "1" and "CI" not in os.environ


def said_of(path: Path) -> str:
    with pytest.raises(ScenarioError) as caught:
        load(path, topology_check=registry.check)
    return f"{caught.value}\n"


@pytest.mark.parametrize("path", sorted(CASES.glob("*.yaml")), ids=lambda path: path.stem)
def test_broken_file_is_told_what_is_wrong_where_and_what_to_do(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(CASES)
    said = said_of(Path(path.name))
    expected = path.with_suffix(".txt")
    if REGENERATE:
        expected.write_text(said, encoding="utf-8")
        pytest.fail(f"wrote {expected.name}; run again without LAB_REGENERATE")
    assert said == expected.read_text(encoding="utf-8")


def test_every_expected_text_has_its_broken_file() -> None:
    texts = {path.stem for path in CASES.glob("*.txt")}
    assert texts == {path.stem for path in CASES.glob("*.yaml")}


# SECURITY.md: A scenario is data.
@pytest.mark.parametrize("path", sorted(CASES.glob("*.txt")), ids=lambda path: path.stem)
def test_findings_come_in_file_order_each_with_a_cure(path: Path) -> None:
    *findings, summary = path.read_text(encoding="utf-8").splitlines()
    assert re.fullmatch(rf'reading scenario "{path.stem}.yaml": \d+ errors?', summary)
    places = []
    for finding in findings:
        match = re.fullmatch(rf"{path.stem}\.yaml:(\d+):(\d+): (.+); (.+)", finding)
        assert match, finding
        places.append((int(match[1]), int(match[2])))
    assert places == sorted(places)
