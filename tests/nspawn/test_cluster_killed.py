"""``lab up`` of a cluster, killed at every step and within: the next one goes on to the end."""

from __future__ import annotations

import pytest
from bundle.made_bundle import missing_bundle
from container_labs import ContainerLabs
from whole_cluster import NODES, SCENARIO, ready

pytestmark = pytest.mark.clusters

UP = ("up", str(SCENARIO), "--provider", "nspawn", "--pods", "kubernetes")
MOMENTS = (
    "  step 5 of 10: nodes",
    "master: prepared",
    "  step 6 of 10: control-plane",
    "master: kubeadm init",
    "  step 7 of 10: workers",
    "worker: kubeadm join",
    "  step 8 of 10: add-ons",
    "  step 9 of 10: ready",
    "  step 10 of 10: pods",
)
"""Beginnings of lines of the story; the steps before are those of a lab without a cluster."""


def test_a_cluster_comes_up_however_often_that_is_killed(labs: ContainerLabs) -> None:
    why = missing_bundle()
    if why:
        pytest.skip(why)
    for moment in MOMENTS:
        story = labs.killed_after(UP, moment)
        assert story[-1].startswith(moment), story
    labs.run(*UP)
    assert ready(labs) == dict.fromkeys(NODES, "True")
    assert "Not as expected" not in labs.run("test", "cluster").stdout
    labs.run("down", "cluster")
    assert labs.left() == set()


@pytest.mark.parametrize("moment", ["master: kubeadm init", "worker: kubeadm join"])
def test_down_after_a_kill_within_kubeadm_leaves_nothing(labs: ContainerLabs, moment: str) -> None:
    why = missing_bundle()
    if why:
        pytest.skip(why)
    labs.killed_after(UP, moment)
    labs.run("down", "cluster")
    assert labs.left() == set()
