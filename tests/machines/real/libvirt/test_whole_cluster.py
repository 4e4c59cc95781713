"""A real cluster on real machines, from nothing to a green matrix, and what may happen to it."""

import pytest
from bundle.made_bundle import made_bundle
from real_lab import RealLab, objects
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

pytestmark = pytest.mark.cluster

INVENTORY = """
[management]
cidr = "10.123.0.0/16"
"""


@pytest.fixture(scope="module")
def lab(connected, tmp_path_factory):
    before = objects(connected, "cluster-")
    inventory = tmp_path_factory.mktemp("inventory") / "lab.toml"
    inventory.write_text(INVENTORY)
    made_bundle()
    made = RealLab(tmp_path_factory.mktemp("state"), inventory)
    try:
        up(made)
        yield made
    finally:
        known = (made.state / "labs" / "cluster").is_dir()
        down = made.run("down", "cluster") if known else None
    assert down is not None
    assert "removed domain" in down.stderr
    assert objects(connected, "cluster-") == before
