"""Calico's scenarios with their Linux nodes, as real clusters."""

import pytest
from bundle.made_bundle import missing_bundle
from container_labs import ContainerLabs
from scenario_clusters import Fault, brought_up, checked, judge, up

from lab._deadline import Deadline
from lab.lifecycle.compilation import compile_scenario
from lab.machines.addons.calico import IMAGES
from lab.machines.caches import store

CALICO = {
    "calico-vxlan": (
        Fault("wrong-encapsulation worker2 worker1-p1 worker2-p1", "on worker2, IPPool of-"),
        Fault("tunnel-udp-dropped worker2 worker1-p1 worker2-p1", "on worker2, "),
        Fault("felix-killed worker1 worker1-p1 worker2-p1", "on worker1, program felix"),
    ),
    "calico-bgp": (
        Fault(
            "bgp-session-down worker1 worker1-p1 worker2-p1",
            "on worker1, BGP session with worker2",
            "worker2",
        ),
        Fault("wrong-pool worker2 worker2-p1 client", "on worker2, IPPool of-worker2"),
    ),
    "calico-bgp-tor": (
        Fault("wrong-as-number worker2 worker1-p1 worker2-p1", "on worker2, AS number of node"),
    ),
}
"""Scenarios, and faults of each."""


def gone_and_back(labs: ContainerLabs, lab: str, node: str, scenario: str) -> str:
    """A node that was deleted is missed by all, and joins again; what the API says of it then."""
    kubectl = ("exec", lab, "master", "--", "kubectl", "--kubeconfig=/etc/kubernetes/admin.conf")
    block = (
        compile_scenario(scenario, "linux", None, "kubernetes", real=True)
        .intent.machine(node)
        .kubelet
    )
    routes = ("exec", lab, "worker1", "--", "ip", "route", "show", str(block and block.pod_cidr))
    assert labs.run(*routes).stdout
    labs.run(*kubectl, "delete", "node", node, "--wait=true")
    if scenario != "calico-bgp-tor":  # the router is told by the node itself, which still runs
        Deadline(120).wait(
            "the route to the block of the node that is gone",
            lambda: labs.run(*routes).stdout,
            until=lambda said: not said,
            every=1,
        )
    labs.run(*up(scenario, lab, "kubernetes"))
    return labs.run(*kubectl, "get", "node", node).stdout


def without_calico() -> str:
    """Why no cluster of Calico's can be made here; empty where the bundle has its images."""
    why = missing_bundle()
    images = {image.name.rpartition(":")[0] for made in store().all() for image in made.images}
    lacking = sorted(set(IMAGES) - images)
    return why or (f"no bundle has {', '.join(lacking)}" if lacking else "")


@pytest.mark.clusters
@pytest.mark.parametrize("scenario", CALICO)
def test_a_cluster_of_calico_is_green_as_namespaces_are_and_its_faults_are_named(labs, scenario):
    why = without_calico()
    if why:
        pytest.skip(why)
    embedded = ("up", scenario, "--name", "embedded", "--provider", "netns", "--only", "linux")
    labs.run(*embedded)
    try:
        labs.green("embedded")
        with brought_up(labs, scenario, "kubernetes") as lab:
            checked(judge(labs, lab, *CALICO[scenario]))
            assert labs.run("diff", "embedded", lab).stdout.endswith("\n744 cells as before\n")
            assert "Ready" in gone_and_back(labs, lab, "worker2", scenario)
            labs.green(lab)
    finally:
        labs.run("down", "embedded")
