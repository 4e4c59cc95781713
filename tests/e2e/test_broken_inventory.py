"""An inventory that is broken, and labs on namespaces: they are none of its business."""

from __future__ import annotations

import pytest
from lab_command import processes_with

pytestmark = pytest.mark.slow


def test_a_broken_inventory_does_not_hold_up_labs_on_namespaces(lab, tmp_path, monkeypatch):
    broken = tmp_path / "lab.toml"
    broken.write_text("hypervisors = 3\n")
    monkeypatch.setenv("HYBRIDLAB_INVENTORY", str(broken))
    assert '"hypervisors"' in lab.run("up", "overlay", code=2).stderr
    lab.run("up", "overlay", "--provider", "netns")
    lab.run("exec", "overlay", "worker1", "--", "true")
    lab.run("test", "overlay", "-k", "hairpin")
    for words in (("list",), ("gc",), ("down", "overlay")):
        told = [line for line in lab.run(*words).stderr.splitlines() if "note:" in line]
        assert len(told) == 1
        assert f"{broken}: hypervisors: " in told[0]
    assert not processes_with(str(lab.state))
