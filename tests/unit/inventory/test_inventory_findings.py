"""Broken inventory files, and to the letter what is said of each."""

from __future__ import annotations

from pathlib import Path

import pytest
from broken_files import BrokenFiles

from lab._errors import InventoryError
from lab.inventory.loader import load

TABLE = BrokenFiles(
    Path(__file__).parents[2] / "cases" / "inventory" / "broken.txt", ".toml", "inventory"
)
CASES = TABLE.read()


# SECURITY.md: An inventory says where a secret is.
# SECURITY.md: Connections are encrypted, and hosts are known beforehand.
@pytest.mark.parametrize("name", CASES)
def test_broken_file_is_told_what_is_wrong_where_and_what_to_do(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("valid").mkdir()
    Path("valid/readable-by-all").write_text("hunter3")
    Path("valid/readable-by-all").chmod(0o644)
    with pytest.raises(InventoryError) as caught:
        load(CASES[name].write(Path()))
    assert caught.value.exit_code == 2
    said = str(caught.value)
    assert "hunter" not in said
    TABLE.check(CASES[name], said.replace(f"{tmp_path}/", "/"))
