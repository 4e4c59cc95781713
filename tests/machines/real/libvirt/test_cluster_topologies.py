"""The other topologies as real clusters on real machines: up, green, and nothing left."""

from pathlib import Path

import pytest
from bundle.made_bundle import made_bundle
from real_lab import RealLab, objects

pytestmark = pytest.mark.topologies

SCENARIOS = Path(__file__).with_name("clusters")
NAMES = {"host-gateway": "hostgw", "upstream-tor": "tor", "hard-way": "byhand"}
INVENTORY = """
[management]
cidr = "10.124.0.0/16"
"""


@pytest.mark.parametrize("topology", NAMES)
def test_a_cluster_of_this_topology_comes_up_green_and_goes(connected, topology, tmp_path):
    made_bundle()
    name = NAMES[topology]
    before = objects(connected, f"{name}-")
    (tmp_path / "lab.toml").write_text(INVENTORY)
    lab = RealLab(tmp_path / "state", tmp_path / "lab.toml")
    try:
        lab.up(SCENARIOS / f"{topology}.yaml", pods="kubernetes")
        stdout = lab.run("test", name).stdout
    finally:
        if (lab.state / "labs" / name).is_dir():
            lab.run("down", name)
    assert "cells" in stdout
    assert "Not as expected" not in stdout
    assert objects(connected, f"{name}-") == before
