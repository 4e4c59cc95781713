"""Every shipped scenario with its Linux nodes, as a real cluster and as namespaces on machines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from bundle.made_bundle import missing_bundle
from container_labs import ContainerLabs, need_bundle, room_for

from lab._deadline import Deadline
from lab.cluster.addons.calico import IMAGES
from lab.lifecycle.compilation import compile_scenario
from lab.lifecycle.images import store
from lab.providers.provider import Pods

SCENARIOS = Path(__file__).parents[2] / "scenarios"
FAILOVER = Path(__file__).parents[1] / "failover.yaml"
CHECKS = re.compile(r"(\d+) of (\d+) workload checks passed")


@dataclass(frozen=True)
class Fault:
    """A fault: its name and node, who then no longer reaches whom, and what names it."""

    what: str
    named: str
    """What 'lab explain' must say."""
    peer: str = ""

    @property
    def pods(self) -> tuple[str, str]:
        _, _, source, target = self.what.split()
        return source, target

    def words(self) -> tuple[str, ...]:
        name, node, _, _ = self.what.split()
        return (name, "--node", node, *(("--peer", self.peer) if self.peer else ()))


CLUSTERS = {
    "overlay": Fault("wrong-vni worker2 worker1-p1 worker2-p1", "on worker2, tunnel flannel.4096"),
    "services": Fault("service-rules-missing worker1 worker1-p1 to-worker2-p1", "on worker1, "),
    # flanneld puts a missing route back within seconds
    "host-gateway": Fault("ip-forward-off worker2 worker1-p1 worker2-p1", "on worker2, "),
    "upstream-tor": Fault(
        "route-missing router node001-p1 node002-p1",
        "on router, route to 10.160.4.0/24: there is none",
        "node002",
    ),
    "k8s-libvirt-1-1-2,compute.os=linux": Fault(
        "ip-forward-off compute-01 controller-01-p1 compute-01-p1", "on compute-01, "
    ),
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
"""Every scenario whose network a cluster can have from the lab alone; the largest last, as nothing
runs beside them."""
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
"""Those whose network is Calico's own, and faults of each."""
NAMESPACES = {
    **{name: fault for name, fault in CLUSTERS.items() if not name.startswith("k8s-")},
    "overlay": Fault("wrong-vni worker2 worker1-p1 worker2-p1", "on worker2, tunnel "),
    "host-gateway": Fault(
        "route-missing worker1 worker1-p1 worker2-p1", "on worker1, route to 10.10.", "worker2"
    ),
    "kubeinit": Fault(
        "wrong-udp-port compute-03 controller-01-p1 compute-03-p1", "on compute-03, tunnel"
    ),
    "calico-bgp": Fault("bgp-session-down worker1 worker1-p1 worker2-p1", "worker2", "worker2"),
}


def up(scenario: str, lab: str, pods: Pods) -> tuple[str, ...]:
    """What brings the lab up."""
    words = ("up", scenario, "--name", lab, "--provider", "nspawn", "--pods", pods)
    return (*words, "--only", "linux")


@contextmanager
def brought_up(labs: ContainerLabs, scenario: str, pods: Pods, name: str = "") -> Iterator[str]:
    """The lab, and nothing of it afterwards."""
    lab = name or scenario.partition(",")[0]
    with room_for(Path(scenario) if "/" in scenario else scenario, pods):
        try:
            labs.run(*up(scenario, lab, pods))
            yield lab
        finally:
            if (labs.state / "labs" / lab).is_dir():
                labs.run("down", lab)
        assert labs.left() == set()


def judge(labs: ContainerLabs, lab: str, *faults: Fault) -> str:
    """Matrix green, no machine differs, each fault is named; what the matrix said."""
    said = labs.green(lab)
    labs.run("status", lab, "--deep")
    for fault in faults:
        labs.run("fault", lab, *fault.words())
        explained = labs.run("explain", lab, *fault.pods, code=1).stdout
        assert fault.named in explained
        assert fault.named in labs.run("status", lab, "--deep", code=1).stdout
        labs.run("heal", lab)
        labs.run("explain", lab, *fault.pods)
    return said


def checked(said: str) -> None:
    """Every check of the workloads passed."""
    checks = CHECKS.search(said)
    assert checks, said
    assert checks[1] == checks[2]


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
    images = {one.name.rpartition(":")[0] for made in store().all() for one in made.images}
    lacking = sorted(set(IMAGES) - images)
    return why or (f"no bundle has {', '.join(lacking)}" if lacking else "")


@pytest.mark.clusters
@pytest.mark.parametrize("scenario", CALICO)
def test_a_cluster_of_calico_is_green_as_namespaces_are_and_its_faults_are_named(
    labs: ContainerLabs, scenario: str
) -> None:
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


@pytest.mark.clusters
def test_a_cluster_whose_kube_proxy_writes_iptables_is_green_and_what_it_lacks_is_named(
    labs: ContainerLabs, tmp_path: Path
) -> None:
    need_bundle()
    scenario = tmp_path / "iptables.yaml"
    text = (SCENARIOS / "overlay.yaml").read_text(encoding="utf-8")
    text = text.replace("name: overlay", "name: iptables", 1)
    scenario.write_text(text.replace("kubernetes:", "kubernetes:\n  proxy_mode: iptables", 1))
    with brought_up(labs, str(scenario), "kubernetes", name="iptables") as lab:
        checked(judge(labs, lab))
        healthy = ("explain", lab, "worker1-p1", "to-worker2-p1")
        assert "nothing is wrong" in labs.run(*healthy).stdout
        inside = ("exec", lab, "worker1", "--", "sh", "-c")
        labs.run(*inside, "pkill -STOP -x kube-proxy; nft flush chain ip nat KUBE-SERVICES")
        assert "on worker1, " in labs.run(*healthy, code=1).stdout
        labs.run(*inside, "pkill -KILL -x kube-proxy")
        Deadline(120).wait(
            "kube-proxy to write its rules again",
            lambda: labs.run(*inside, "nft list chain ip nat KUBE-SERVICES | wc -l").stdout,
            until=lambda said: int(said) > 10,
            every=1,
        )
        labs.run(*healthy)


@pytest.mark.clusters
@pytest.mark.parametrize("scenario", CLUSTERS)
def test_a_cluster_of_the_scenario_is_green_and_a_fault_is_named(
    labs: ContainerLabs, scenario: str
) -> None:
    need_bundle()
    with brought_up(labs, scenario, "kubernetes") as lab:
        checked(judge(labs, lab, CLUSTERS[scenario]))
        if scenario == "kubeinit":
            fail_without_a_server(labs, lab)


def fail_without_a_server(labs: ContainerLabs, lab: str) -> None:
    """Every cell of 'api' fails while HAProxy leaves one API server out, and names the others."""
    inside = ("exec", lab, "services", "--", "sh", "-c")
    configuration = "/etc/haproxy/haproxy.cfg"
    left_out = f"sed -i.whole '/server controller-02 /d' {configuration}"
    labs.run(*inside, f"{left_out} && systemctl reload haproxy")
    said = labs.run("test", lab, "-m", "api", code=1).stdout
    assert "13 of 1,469 cells: 13 fail" in said
    assert "expected: an answer from each of controller-01, controller-02, controller-03" in said
    labs.run(*inside, f"mv {configuration}.whole {configuration} && systemctl reload haproxy")
    labs.green(lab, "-m", "api")


@pytest.mark.parametrize("scenario", NAMESPACES)
def test_a_lab_of_namespaces_on_machines_is_green_and_a_fault_is_named(
    labs: ContainerLabs, scenario: str
) -> None:
    with brought_up(labs, scenario, "namespaces") as lab:
        judge(labs, lab, NAMESPACES[scenario])


@pytest.mark.parametrize(
    "pods", [pytest.param("kubernetes", marks=pytest.mark.clusters), "namespaces"]
)
def test_a_gateway_fails_over_when_its_control_plane_is_lost(
    labs: ContainerLabs, pods: str
) -> None:
    if pods == "kubernetes":
        need_bundle()
    with brought_up(labs, str(FAILOVER), pods, name="failover") as lab:
        said = labs.run("test", lab, "--failover", "-k", "pod-pod or node-pod").stdout
        assert "gateway of worker: held by master1, then by master" in said
        again = labs.green(lab, "-k", "pod-pod or node-pod")
        assert "Not as expected" not in again, "the matrix knows who holds the gateway now"
