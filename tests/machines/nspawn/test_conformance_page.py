"""The page on Kubernetes' own tests says why tests fail on Wine nodes, as the run of them does."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[3]
KNOWN = tomllib.loads(
    (ROOT / "tests/machines/real/nspawn/conformance_windows.toml").read_text(encoding="utf-8")
)


def test_each_test_that_is_known_to_fail_is_in_the_pages_table() -> None:
    page = (ROOT / "docs/how-to/conformance.md").read_text(encoding="utf-8")
    table = page.partition("| Fails | Reason |\n|---|---|\n")[2].partition("\n\n")[0]
    rows = [line.strip("|").split(" | ") for line in table.splitlines()]
    assert {test.strip(): why.strip() for test, why in rows} == KNOWN["fails"]


def test_what_is_run_and_what_is_not_are_regular_expressions() -> None:
    for pattern in (*KNOWN["run"], *KNOWN["not-run"]):
        re.compile(pattern)
