"""Real clusters of other topologies with a Windows node on Wine, judged as on namespaces."""

from __future__ import annotations

from pathlib import Path

import pytest
from scenario_clusters import brought_up, checked, judge
from wine_labs import judged, judged_on_namespaces, new_labs

pytestmark = pytest.mark.clusters
SCENARIOS = (
    "wine_host_gateway.yaml",
    "wine_kubeinit.yaml",
    "wine_upstream_tor.yaml",
    "wine_hard_way.yaml",
)
"""Beside this file, each the smallest with a Windows node."""


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_cell_is_as_expected_and_judged_as_on_namespaces(
    tmp_path_factory: pytest.TempPathFactory, scenario: str
) -> None:
    labs = new_labs(tmp_path_factory)
    path = str(Path(__file__).with_name(scenario))
    name = scenario.partition(".")[0].replace("_", "-")
    with brought_up(labs, path, "kubernetes", name, only=None) as lab:
        checked(judge(labs, lab))
    assert judged(labs, name) == judged_on_namespaces(labs, path, name)
