"""All that a Windows node is given, per topology, release and minor: as it was, and meant so."""

from __future__ import annotations

import json

import cluster_nodes
import pytest
from cluster_nodes import BUILDS, GOLDEN, LIKE, MINORS, SCENARIOS
from golden_files import check_golden

PAUSE = " --pod-infra-container-image=registry.k8s.io/pause:3.10.2"
GATES = " --feature-gates=WinDSR=true"
OVERLAY = ",WinOverlay=true"
FLAGS = {"1.33": (PAUSE, OVERLAY, GATES)}
"""What Kubernetes' programs are given below the newest minor, and the newest does not know."""

OVERLAYS = {"overlay", "kubeinit", "calico-vxlan"}


@pytest.mark.parametrize("topology", SCENARIOS)
def test_node_is_given_what_it_was_given(topology):
    like = cluster_nodes.golden(LIKE[topology]) if topology in LIKE else None
    check_golden(GOLDEN / f"{topology}.yaml", cluster_nodes.golden(topology), like)


@pytest.mark.parametrize("topology", SCENARIOS)
@pytest.mark.parametrize("year", BUILDS)
@pytest.mark.parametrize("minor", MINORS)
def test_releases_differ_by_their_flags_alone(topology, year, minor):
    made = cluster_nodes.golden(topology, year, minor)
    for flag in FLAGS.get(minor, ()):
        assert made.count(flag) == (flag != OVERLAY or topology in OVERLAYS)
        made = made.replace(flag, "")
    assert made == cluster_nodes.golden(topology)


def test_no_golden_is_of_nobody():
    names = {f"{name}.yaml.diff" if name in LIKE else f"{name}.yaml" for name in SCENARIOS}
    assert {path.name for path in GOLDEN.iterdir()} == names


@pytest.mark.parametrize("topology", SCENARIOS)
def test_all_of_it_is_ascii(topology):
    """Windows PowerShell reads what has no mark in its code page."""
    made = cluster_nodes.everything(cluster_nodes.decided(topology), cluster_nodes.seen("2022"))
    assert json.dumps(made, ensure_ascii=False).isascii()


@pytest.mark.parametrize("topology", SCENARIOS)
@pytest.mark.parametrize("minor", MINORS)
def test_no_command_line_holds_a_quote_or_the_token(topology, minor):
    """sc.exe gets it as one argument, and PowerShell hands quotes on unescaped."""
    made = cluster_nodes.everything(
        cluster_nodes.decided(topology, minor), cluster_nodes.seen("2022")
    )
    commands = [
        one["command"] for step in made["steps"] for one in step.values() if "command" in one
    ]
    assert len(commands) == 2
    for command in commands:
        assert '"' not in command
        assert cluster_nodes.JOIN.token not in command
