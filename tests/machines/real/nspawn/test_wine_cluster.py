"""A real cluster with a Windows node on Wine: made, judged, used and gone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from container_labs import ContainerLabs, why_not
from scenario_clusters import checked
from test_wine_node import missing_bundle

pytestmark = pytest.mark.clusters
LAB = "wine"
SCENARIO = f"""
name: {LAB}
summary: a control plane, a Linux worker and a Windows worker
kubernetes:
  version: "1.36"
  pod_cidr: 10.244.0.0/16
  node_prefix: 24
  service_cidr: 10.96.0.0/12
  dns_address: 10.96.0.10
network:
  cidr: 10.9.178.0/24
topology:
  kind: overlay
pods_per_node: 2
nodes:
  - name: cp
    os: linux
    role: control-plane
  - name: lin
    os: linux
  - name: win
    os: windows
    image: windows-server-2022
"""
KUBECTL = ("kubectl", "--kubeconfig=/etc/kubernetes/admin.conf")


@pytest.fixture(scope="module")
def labs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ContainerLabs]:
    """A lab that is up, and nothing of it afterwards."""
    made = ContainerLabs(tmp_path_factory.mktemp("state"))
    if why := why_not() or missing_bundle(made):
        pytest.skip(f"no Wine nodes here: {why}")
    scenario = tmp_path_factory.mktemp("scenario") / f"{LAB}.yaml"
    scenario.write_text(SCENARIO, encoding="utf-8")
    try:
        made.run("up", str(scenario), "--provider", "nspawn")
        yield made
    finally:
        if (made.state / "labs" / LAB).is_dir():
            made.run("down", LAB)
        made.run("gc", "--yes", "--older-than", "0s")
        assert made.left() == set()


def test_every_cell_is_as_expected_and_every_workload_check_passes(labs: ContainerLabs) -> None:
    checked(labs.green(LAB))


def test_the_node_says_what_it_is(labs: ContainerLabs) -> None:
    labels = "{.metadata.labels.kubernetes\\.io/os} {.metadata.labels.hybridlab/windows}"
    words = ("exec", LAB, "cp", "--", *KUBECTL, "get", "node", "win")
    done = labs.run(*words, "-o", f"jsonpath={labels} {{.status.nodeInfo.osImage}}")
    assert done.stdout.split(maxsplit=2)[:2] == ["windows", "wine"]
    assert "Windows Server 2022" in done.stdout


def test_a_windows_pod_runs_windows_commands(labs: ContainerLabs) -> None:
    done = labs.run("exec", LAB, "win-p1", "--", "cmd", "/c", "ver")
    assert "10.0.20348" in done.stdout
