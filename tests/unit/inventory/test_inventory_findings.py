"""Broken inventory files, and to the letter what is said of each.

Every ``tests/cases/inventory/NAME.toml`` has beside it ``NAME.txt``: what loading it must print.
After a wording has been changed on purpose, write them anew and read the difference:

    LAB_REGENERATE=1 pytest tests/unit/inventory; git diff tests/cases

A run that regenerates fails, so that it is never mistaken for a test; with ``CI`` set in the
environment nothing is regenerated at all.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from lab._errors import InventoryError
from lab.inventory.loader import load

CASES = Path(__file__).parents[2] / "cases" / "inventory"
REGENERATE = os.environ.get("LAB_REGENERATE") == "1" and "CI" not in os.environ


def said_of(path: Path) -> str:
    with pytest.raises(InventoryError) as caught:
        load(path)
    assert caught.value.exit_code == 2
    return f"{caught.value}\n".replace(f"{CASES}/", "/")


@pytest.mark.parametrize("path", sorted(CASES.glob("*.toml")), ids=lambda path: path.stem)
def test_broken_file_is_told_what_is_wrong_where_and_what_to_do(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(CASES)
    (CASES / "valid" / "readable-by-all").chmod(0o644)  # git keeps no more than "executable"
    said = said_of(Path(path.name))
    expected = path.with_suffix(".txt")
    if REGENERATE:
        expected.write_text(said, encoding="utf-8")
        pytest.fail(f"wrote {expected.name}; run again without LAB_REGENERATE")
    assert said == expected.read_text(encoding="utf-8")


def test_every_expected_text_has_its_broken_file() -> None:
    texts = {path.stem for path in CASES.glob("*.txt")}
    assert texts == {path.stem for path in CASES.glob("*.toml")}


# SECURITY.md: An inventory says where a secret is.
# SECURITY.md: Connections are encrypted, and hosts are known beforehand.
@pytest.mark.parametrize("path", sorted(CASES.glob("*.txt")), ids=lambda path: path.stem)
def test_findings_come_in_file_order_each_with_a_cure_and_no_secret(path: Path) -> None:
    *findings, summary = path.read_text(encoding="utf-8").splitlines()
    assert re.fullmatch(rf'reading inventory "{path.stem}.toml": \d+ errors?', summary)
    places = []
    for finding in findings:
        match = re.fullmatch(rf"{path.stem}\.toml:(\d+):(\d+): (.+); (.+)", finding)
        assert match, finding
        assert "hunter" not in finding
        places.append((int(match[1]), int(match[2])))
    assert places == sorted(places)
    assert places
