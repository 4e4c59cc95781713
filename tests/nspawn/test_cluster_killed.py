"""``lab up`` of a cluster, killed within kubeadm: ``down`` cleans.

That it comes up however often that is killed is in test_container_cluster.py.
"""

from __future__ import annotations

import pytest
from bundle.made_bundle import missing_bundle
from container_labs import ContainerLabs
from whole_cluster import SCENARIO

pytestmark = pytest.mark.clusters

UP = ("up", str(SCENARIO), "--provider", "nspawn", "--pods", "kubernetes")


@pytest.mark.parametrize("moment", ["master: kubeadm init", "worker: kubeadm join"])
def test_down_after_a_kill_within_kubeadm_leaves_nothing(labs: ContainerLabs, moment: str) -> None:
    why = missing_bundle()
    if why:
        pytest.skip(why)
    labs.killed_after(UP, moment)
    labs.run("down", "cluster")
    assert labs.left() == set()
