"""The exceptions that the docs show are read, and speak of the cells that the docs say."""

import re
from pathlib import Path

import pytest

from lab.matrix.cells import cells
from lab.matrix.judge import expect
from lab.plan.planner import make_plan
from lab.scenario.loader import load
from lab.scenario.validation import keys, schema
from lab.topology import registry

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/scenarios/README.md").read_text(encoding="utf-8")


@pytest.fixture
def mine(tmp_path):
    """A copy of the shipped scenario with the page's example at its end."""
    (example,) = re.findall(r"```yaml[^\n]*\n(exceptions:.*?)```", PAGE, re.DOTALL)
    shipped = (ROOT / "scenarios/overlay.yaml").read_text(encoding="utf-8")
    path = tmp_path / "mine.yaml"
    path.write_text(f"{shipped}\n{example}", encoding="utf-8")
    return path


def test_the_example_of_the_page_matches_the_cells_it_names(mine):
    plan = make_plan(load(mine, topology_check=registry.check))
    limits = registry.limits(plan)
    for cell in cells(plan, registry.intent(plan)):
        expectation = expect(cell, limits)
        inside = cell.source.kind == "node" and cell.source.node == "worker1"
        meant = cell.family == "nodeport" and cell.entry == "worker1" and not inside
        assert expectation.rule.startswith("overlay-exception-") == meant, cell.id
        if meant:
            assert (expectation.works, expectation.refusal) == (False, "timeout")
            assert expectation.source.startswith("mine.yaml:")


def test_every_key_of_when_is_on_the_page():
    table = PAGE.partition("| in `when` |")[2]
    for key in keys(schema(), ("exceptions", 0, "when")):
        assert f"`{key}`" in table, key
