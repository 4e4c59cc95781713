"""A lab whose pods are Kubernetes' own: bound before it is probed, and checked beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from paper_lab import PaperLabs, blueprint
from simulation import Network

from lab._errors import DeadlineError
from lab.cluster.bind import foreseen
from lab.cluster.observed import NodeVersion
from lab.cluster.workload_checks import WorkloadResult, wanted
from lab.matrix.cells import cells
from lab.suites.session import bound
from lab.topology.intent import Intent

Outer = Callable[..., pytest.RunResult]
VERSION = NodeVersion("win1", "v1.36.3", "Windows Server 2022", "10.0.20348.2762", "containerd")


def moved(intent: Intent) -> Intent:
    """The intent with a pod elsewhere than planned."""
    return replace(
        intent,
        machines=tuple(
            replace(
                machine,
                pods=tuple(
                    replace(pod, address="10.244.0.99/24") if pod.name == "master-p1" else pod
                    for pod in machine.pods
                ),
            )
            for machine in intent.machines
        ),
    )


class PaperCluster:
    def __init__(self, *, ready: bool = True, failing: str = "") -> None:
        self.intent = foreseen(blueprint()[1])
        self.ready = ready
        self.failing = failing
        self.there = False
        self.told: list[str] = []

    def foreseen(self) -> Intent:
        return self.intent

    @contextmanager
    def probed(self, *, ready: bool) -> Iterator[Intent]:
        if ready and not self.ready:
            raise DeadlineError("waiting for the 6 probe pods", "pod 'win1-p1' is Pending")
        self.there = True
        yield moved(self.intent)
        self.there = False

    def workloads(self) -> tuple[WorkloadResult, ...]:
        assert self.there, "the checks use the pods' namespace"
        self.told.append("workloads")
        return tuple(
            WorkloadResult(node, check, "fail", "no value")
            if f"{node}/{check}" == self.failing
            else WorkloadResult(node, check, "pass", "")
            for node, check in wanted(self.intent)
        )

    def versions(self) -> tuple[NodeVersion, ...]:
        return (VERSION,)


def clustered(path: Path, cluster: PaperCluster) -> PaperLabs:
    labs = PaperLabs(path)
    plan, _, limits, _ = blueprint()
    labs.lab.provider.paper_cluster = cluster
    labs.lab.provider.network = Network(cells(plan, moved(cluster.intent)), limits)
    return labs


@pytest.fixture
def outer(pytester):
    def run(labs, *arguments):
        suite = ("-p", "lab.suites.plugin", "--lab", "paper", "--pyargs", "lab.suites")
        return pytester.runpytest_inprocess(*suite, *arguments, plugins=[labs])

    return run


def test_cells_ask_the_addresses_that_the_pods_really_have(outer, tmp_path):
    labs = clustered(tmp_path, PaperCluster())
    assert outer(labs).ret == 0
    run = labs.lab.recorded[0][0]
    targets = {result.cell.target.address for result in run.results}
    assert "10.244.0.99" in targets
    drawn = {pod.address for one in labs.lab.tested.machines for pod in one.pods}
    assert "10.244.0.99/24" in drawn  # the report's picture has them, too
    assert run.nodes == (VERSION,)
    assert len(run.workloads) == len(wanted(labs.lab.provider.paper_cluster.intent))


def test_failed_check_fails_the_run_as_an_item_of_its_own(outer, tmp_path):
    labs = clustered(tmp_path, PaperCluster(failing="win1/host-path"))
    result = outer(labs)
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*workloads/win1/host-path: no value"])
    assert not labs.lab.recorded[0][0].green()


def test_checks_can_be_chosen_alone_and_are_not_made_when_they_are_not(outer, tmp_path):
    cluster = PaperCluster()
    outer(clustered(tmp_path, cluster), "-k", "workloads").assert_outcomes(
        passed=len(wanted(cluster.intent))
    )
    cluster = PaperCluster()
    assert outer(clustered(tmp_path, cluster), "-k", "hairpin").ret == 0
    assert not cluster.told


def test_pods_that_cannot_be_had_are_a_broken_lab_and_no_failed_cells(outer, tmp_path):
    labs = clustered(tmp_path, PaperCluster(ready=False))
    result = outer(labs)
    assert result.ret == 3
    result.assert_outcomes()
    assert not labs.lab.recorded


def test_what_explains_a_lab_does_not_wait_for_pods_that_are_not_ready(tmp_path):
    cluster = PaperCluster(ready=False)
    with bound(clustered(tmp_path, cluster).lab, cluster) as intent:
        assert intent == moved(cluster.intent)
