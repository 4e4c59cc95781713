"""The points of KEP-2578, judged by the results of runs."""

from dataclasses import replace

import pytest
from unit.reports.made_runs import made_run

from lab.providers.workloads import WorkloadResult
from lab.windows.readiness import POINTS, judge_points

NETWORK = {
    "Ability to access Windows container IP by pod IP",
    "Ability to expose windows pods by creating the service ClusterIP",
    "Ability to expose windows pods by creating the service NodePort",
    "Ability to schedule multiple containers, with distinct IP addresses, on the same node",
    "Ability to access internal pods by internal Kubernetes DNS service endpoints.",
    "Ability to route services from pods from the EndpointSlice API.",
}


@pytest.fixture(scope="module")
def run():
    """Every cell as expected, on nodes that are not emulated."""
    return replace(made_run("healthy"), emulated_nodes=())


def by_verdict(run, verdict):
    return {each.point for each in judge_points(run) if each.verdict == verdict}


def test_points_of_the_network_pass_by_cells_and_the_others_say_why_they_are_not_run(run):
    assert by_verdict(run, "pass") == NETWORK
    assert by_verdict(run, "fail") == set()
    details = [each.detail for each in judge_points(run) if each.verdict == "not run"]
    assert len(details) == len(POINTS) - len(NETWORK)
    assert all(details)


@pytest.mark.parametrize(
    ("family", "failed"),
    [
        ("nodeport", {"Ability to expose windows pods by creating the service NodePort"}),
        ("dns", {"Ability to access internal pods by internal Kubernetes DNS service endpoints."}),
        ("node-pod", set()),
    ],
)
def test_a_red_cell_fails_the_points_of_its_family(run, family, failed):
    cells = [
        replace(each, verdict="fail")
        if each.cell.family == family and "windows" in {each.cell.source.os, each.cell.target.os}
        else each
        for each in run.results
    ]
    assert by_verdict(replace(run, results=tuple(cells)), "fail") == failed


def test_no_point_is_run_without_windows_nodes_or_on_emulated_ones(run):
    linux = tuple(
        each for each in run.results if "windows" not in {each.cell.source.os, each.cell.target.os}
    )
    for without in (replace(run, results=linux), replace(run, emulated_nodes=("win1",))):
        assert {each.verdict for each in judge_points(without)} == {"not run"}


def test_points_of_storage_follow_the_checks_of_windows_nodes(run):
    node = next(each.cell.target.node for each in run.results if each.cell.target.os == "windows")
    for check, verdict in (("pass", "pass"), ("fail", "fail"), ("probe-error", "fail")):
        workloads = (
            WorkloadResult(node, "host-path", check, ""),
            WorkloadResult("master", "host-path", "fail", "a Linux node"),
        )
        points = judge_points(replace(run, workloads=workloads))
        storage = [each for each in points if "hostPath" in each.point]
        assert {each.verdict for each in storage} == {verdict}
        assert len(storage) == 2


def test_ten_pods_are_concurrent(run):
    pods = [
        replace(each, cell=replace(each.cell, target=replace(each.cell.target, name=f"win-{n}")))
        for each in run.results
        if each.cell.family == "pod-pod" and each.cell.target.os == "windows"
        for n in range(10)
    ]
    (point,) = (
        each
        for each in judge_points(replace(run, results=tuple(pods)))
        if each.category == "Core.Concurrent"
    )
    assert (point.verdict, point.detail) == ("pass", "10 Windows pods answered")
