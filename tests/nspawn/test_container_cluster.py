"""A real cluster on system containers, from nothing to a green matrix, and what happens to it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from bundle.made_bundle import made_bundle
from container_labs import ContainerLabs
from whole_cluster import (  # noqa: F401  collected here
    test_a_node_that_is_rebooted_comes_back_with_its_pods,
    test_a_node_that_was_deleted_joins_again,
    test_a_suspended_cluster_goes_on_where_it_was,
    test_evidence_has_the_cluster_and_no_secret,
    test_the_kubeconfig_gets_in_from_here,
    test_the_matrix_is_green_on_a_real_cluster,
    test_the_plan_s_pod_networks_are_the_nodes,
    test_up_again_does_nothing,
    up,
)

pytestmark = pytest.mark.clusters


@pytest.fixture(scope="module")
def lab(labs: ContainerLabs) -> Iterator[ContainerLabs]:
    made_bundle()
    up(labs)
    yield labs
    labs.run("down", "cluster")
    assert labs.left() == set()


def test_a_capture_follows_a_probe_between_pods_of_the_cluster(lab: ContainerLabs) -> None:
    said = lab.run("capture", "cluster", "master-p1", "worker-p1").stdout
    assert "worker flannel.4096" in said


def test_a_stopped_kube_proxy_is_named(lab: ContainerLabs) -> None:
    lab.run("fault", "cluster", "service-rules-missing", "--node", "worker")
    said = lab.run("explain", "cluster", "worker-p1", "to-master-p1", code=1).stdout
    assert "worker" in said
    lab.run("heal", "cluster")
