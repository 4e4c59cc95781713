"""Real clusters with a Windows node on Wine: made, judged, used and gone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from container_labs import ContainerLabs, why_not
from scenario_clusters import brought_up, checked, judge
from test_wine_node import missing_bundle

from lab.reports.result import cells_of
from lab.topology.observed import NAMESPACE

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
services:
  special:
    - name: by-name
      backends: 4
      headless: true
    - name: sticky
      backends: 3
      affinity: 10800
      node_port: true
    - name: near-windows
      pods: [win-p1]
      node_port: true
      external_traffic: local
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


TOPOLOGIES = (
    "wine_host_gateway.yaml",
    "wine_kubeinit.yaml",
    "wine_upstream_tor.yaml",
    "wine_hard_way.yaml",
)
"""Scenarios beside this file, each the smallest with a Windows node."""


@pytest.fixture(scope="module")
def no_labs(tmp_path_factory: pytest.TempPathFactory) -> ContainerLabs:
    """Labs that are not made yet."""
    made = ContainerLabs(tmp_path_factory.mktemp("state"))
    if why := why_not() or missing_bundle(made):
        pytest.skip(f"no Wine nodes here: {why}")
    return made


@pytest.mark.parametrize("scenario", TOPOLOGIES)
def test_every_cell_of_another_topology_is_as_expected(
    no_labs: ContainerLabs, scenario: str
) -> None:
    path = str(Path(__file__).with_name(scenario))
    name = scenario.partition(".")[0].replace("_", "-")
    with brought_up(no_labs, path, "kubernetes", name, only=None) as lab:
        checked(judge(no_labs, lab))
    assert judged(no_labs, name) == judged_on_namespaces(no_labs, path, name)


@pytest.fixture(scope="module")
def labs(
    no_labs: ContainerLabs, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ContainerLabs]:
    """A lab that is up, and nothing of it afterwards."""
    scenario = tmp_path_factory.mktemp("scenario") / f"{LAB}.yaml"
    scenario.write_text(SCENARIO, encoding="utf-8")
    with brought_up(no_labs, str(scenario), "kubernetes", LAB, only=None):
        yield no_labs
    no_labs.run("gc", "--yes", "--older-than", "0s")


def test_every_cell_is_as_expected_and_every_workload_check_passes(labs: ContainerLabs) -> None:
    checked(labs.green(LAB))


def judged(labs: ContainerLabs, lab: str) -> dict[str, tuple[str, str, object]]:
    """Verdict, known limit and refusal of each cell in the newest run; Services in "default".

    Without the family "api": only namespaces have its cells, since a cluster's API is a real one.
    """
    run = max((labs.state / "labs" / lab / "runs").glob("*/result.json"))
    document = json.loads(run.read_text(encoding="utf-8"))
    return {
        cell["id"].replace(f".{NAMESPACE}", ".default"): (
            cell["verdict"],
            cell["detail"],
            cell["refusal"],
        )
        for cell in cells_of(document["cells"])
        if cell["family"] != "api"
    }


def judged_on_namespaces(
    labs: ContainerLabs, scenario: str, lab: str
) -> dict[str, tuple[str, str, object]]:
    """The same of the scenario on network namespaces."""
    name = f"{lab}-namespaces"
    labs.run("run", scenario, "--provider", "netns", "--name", name)
    return judged(labs, name)


def test_every_cell_is_judged_as_on_namespaces(labs: ContainerLabs, tmp_path: Path) -> None:
    """Compiler and rules are shared: it shows that HNS was asked for what the Intent says."""
    scenario = tmp_path / f"{LAB}.yaml"
    scenario.write_text(SCENARIO, encoding="utf-8")
    labs.green(LAB)
    assert judged(labs, LAB) == judged_on_namespaces(labs, str(scenario), LAB)


def test_nothing_differs_from_what_was_made(labs: ContainerLabs) -> None:
    assert "every machine is as intended" in labs.run("status", LAB, "--deep").stdout


def test_the_node_says_what_it_is(labs: ContainerLabs) -> None:
    labels = "{.metadata.labels.kubernetes\\.io/os} {.metadata.labels.hybridlab/windows}"
    words = ("exec", LAB, "cp", "--", *KUBECTL, "get", "node", "win")
    done = labs.run(*words, "-o", f"jsonpath={labels} {{.status.nodeInfo.osImage}}")
    assert done.stdout.split(maxsplit=2)[:2] == ["windows", "wine"]
    assert "Windows Server 2022" in done.stdout


def test_a_windows_pod_runs_windows_commands(labs: ContainerLabs) -> None:
    done = labs.run("exec", LAB, "win-p1", "--", "cmd", "/c", "ver")
    assert "10.0.20348" in done.stdout
