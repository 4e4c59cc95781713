"""Real clusters with a Windows node on Wine: made, judged, used and gone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from container_labs import ContainerLabs
from scenario_clusters import brought_up, checked
from wine_labs import judged, judged_on_namespaces, new_labs

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


@pytest.fixture(scope="module")
def scenario(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The scenario's file."""
    path = tmp_path_factory.mktemp("scenario") / f"{LAB}.yaml"
    path.write_text(SCENARIO, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def labs(tmp_path_factory: pytest.TempPathFactory, scenario: Path) -> Iterator[ContainerLabs]:
    """A lab that is up, and nothing of it afterwards."""
    made = new_labs(tmp_path_factory)
    with brought_up(made, str(scenario), "kubernetes", LAB, only=None):
        yield made
    made.run("gc", "--yes", "--older-than", "0s")


def test_every_cell_is_as_expected_and_judged_as_on_namespaces(
    labs: ContainerLabs, scenario: Path
) -> None:
    """Every workload check passes. Compiler and rules are shared with namespaces: it shows that HNS
    was asked for what the Intent says.
    """
    checked(labs.green(LAB))
    assert judged(labs, LAB) == judged_on_namespaces(labs, str(scenario), LAB)


def test_nothing_differs_from_what_was_made(labs: ContainerLabs) -> None:
    assert "every machine is as intended" in labs.run("status", LAB, "--deep").stdout


def test_direct_server_return_that_hns_ignores_is_found_and_healed(labs: ContainerLabs) -> None:
    labs.run("fault", LAB, "hns-dsr-ignored", "--node", "win")
    explained = labs.run("explain", LAB, "client", "win:near-windows", code=1).stdout
    assert "fault:  hns-dsr-ignored\n" in explained
    labs.run("heal", LAB)
    labs.green(LAB, "-k", "near-windows")


def test_the_node_says_what_it_is(labs: ContainerLabs) -> None:
    labels = "{.metadata.labels.kubernetes\\.io/os} {.metadata.labels.hybridlab/windows}"
    words = ("exec", LAB, "cp", "--", *KUBECTL, "get", "node", "win")
    done = labs.run(*words, "-o", f"jsonpath={labels} {{.status.nodeInfo.osImage}}")
    assert done.stdout.split(maxsplit=2)[:2] == ["windows", "wine"]
    assert "Windows Server 2022" in done.stdout


def test_a_windows_pod_runs_windows_commands(labs: ContainerLabs) -> None:
    done = labs.run("exec", LAB, "win-p1", "--", "cmd", "/c", "ver")
    assert "10.0.20348" in done.stdout
