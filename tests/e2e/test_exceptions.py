"""The example of the docs on cells that are expected not to work, as a user types it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


def test_what_an_exception_speaks_of_is_a_known_limit_while_it_fails(lab, tmp_path):
    page = (ROOT / "docs/scenarios/README.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```yaml\n(exceptions:.*?)```", page, re.DOTALL)
    mine = tmp_path / "mine.yaml"
    shipped = (ROOT / "scenarios/overlay.yaml").read_text(encoding="utf-8")
    mine.write_text(f"{shipped}\n{example}".replace("name: overlay", "name: mine"))
    lab.run("up", str(mine))
    works = lab.run("test", str(mine), "-m", "nodeport and tcp and small", code=1).stdout
    assert "unexpected passes" in works
    lab.run("fault", str(mine), "nodeport-blocked", "--node", "worker1")
    blocked = lab.run("test", str(mine), "-m", "nodeport and tcp and small").stdout
    assert "the firewall of worker1 lets nobody in on NodePorts (mine-exception-1)" in blocked
    assert "(mine-exception-2)" in blocked
