"""Scenarios with three control planes behind HAProxy, as real clusters."""

from pathlib import Path

import pytest
from container_labs import ContainerLabs, need_bundle
from scenario_clusters import Fault, brought_up, checked, judge

FAILOVER = Path(__file__).parents[3] / "failover.yaml"
PLANES = {
    "upstream-vrrp": Fault("tunnel-udp-dropped master2 node001-p1 master2-p1", "on master2, "),
    "hard-way": Fault(
        "route-missing router worker-1-p1 worker-0-p1",
        "on router, route to 10.200.0.0/24: there is none",
        "worker-0",
    ),
    "kubeinit": Fault(
        "wrong-udp-port compute-03 controller-01-p1 compute-03-p1",
        "on compute-03, tunnel flannel.4096",
    ),
}
"""Scenarios with three control planes."""


@pytest.mark.clusters
@pytest.mark.parametrize("scenario", PLANES)
def test_a_cluster_with_three_control_planes_is_green_and_a_fault_is_named(labs, scenario):
    need_bundle()
    with brought_up(labs, scenario, "kubernetes") as lab:
        checked(judge(labs, lab, PLANES[scenario]))
        if scenario == "kubeinit":
            fail_without_a_server(labs, lab)


def fail_without_a_server(labs: ContainerLabs, lab: str) -> None:
    """Every cell of 'api' fails while HAProxy leaves one API server out, and names the others."""
    inside = ("exec", lab, "services", "--", "sh", "-c")
    configuration = "/etc/haproxy/haproxy.cfg"
    left_out = f"sed -i.whole '/server controller-02 /d' {configuration}"
    labs.run(*inside, f"{left_out} && systemctl reload haproxy")
    stdout = labs.run("test", lab, "-m", "api", code=1).stdout
    assert "13 of 1,469 cells: 13 fail" in stdout
    assert "expected: an answer from each of controller-01, controller-02, controller-03" in stdout
    labs.run(*inside, f"mv {configuration}.whole {configuration} && systemctl reload haproxy")
    labs.green(lab, "-m", "api")


@pytest.mark.parametrize(
    "pods", [pytest.param("kubernetes", marks=pytest.mark.clusters), "namespaces"]
)
def test_a_gateway_fails_over_when_its_control_plane_is_lost(labs, pods):
    if pods == "kubernetes":
        need_bundle()
    with brought_up(labs, str(FAILOVER), pods, name="failover") as lab:
        stdout = labs.run("test", lab, "--failover", "-k", "pod-pod or node-pod").stdout
        assert "gateway of worker: held by master1, then by master" in stdout
        again = labs.green(lab, "-k", "pod-pod or node-pod")
        assert "Not as expected" not in again, "the matrix knows who holds the gateway now"
