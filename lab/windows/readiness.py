"""The points of Windows Operational Readiness (KEP-2578), judged by a run's results. Pure.

The names are those of the specification's lists of test cases (kubernetes-sigs,
windows-operational-readiness: core network, storage, scheduling and concurrency). A point that no
cell and no check answers is not run, and says why; so is every point without a Windows node, since
its Linux form is another test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from lab._log import quantity
from lab.matrix.cell import Cell
from lab.matrix.verdict import GREEN, RunResult
from lab.providers.workloads import Check

Category = Literal["Core.Network", "Core.Storage", "Core.Scheduling", "Core.Concurrent"]
PointVerdict = Literal["pass", "fail", "not run"]
WINDOWS = "windows"
CONCURRENT = 10
"""Pods that the specification starts at once."""


def _never(_cell: Cell) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Point:
    """One point, and what answers it: cells, a check on each Windows node, or a number of pods."""

    category: Category
    name: str
    cells: Callable[[Cell], bool] = _never
    check: Check | None = None
    pods: int = 0
    missing: str = ""
    """Why nothing answers it."""


def _to_windows(*families: str) -> Callable[[Cell], bool]:
    return lambda cell: cell.family in families and cell.target.os == WINDOWS


def _on_one_node(cell: Cell) -> bool:
    return _to_windows("pod-pod")(cell) and cell.relation == "same-node"


def _from_windows(cell: Cell) -> bool:
    return cell.family == "dns" and cell.source.os == WINDOWS


POINTS: tuple[Point, ...] = (
    Point(
        "Core.Network",
        "Ability to access Windows container IP by pod IP",
        _to_windows("pod-pod"),
    ),
    Point(
        "Core.Network",
        "Ability to expose windows pods by creating the service ClusterIP",
        _to_windows("pod-service"),
    ),
    Point(
        "Core.Network",
        "Ability to expose windows pods by creating the service NodePort",
        _to_windows("nodeport"),
    ),
    Point(
        "Core.Network",
        "Ability to schedule multiple containers, with distinct IP addresses, on the same node",
        _on_one_node,
    ),
    Point(
        "Core.Network",
        "Ability to delete and recreate services in such a way that load balancing rules for pods "
        "are recovered by whatever chosen service proxy is being utilized",
        missing="no Service is made again during a run",
    ),
    Point(
        "Core.Network",
        "Ability to delete and recreate pods for StatefulSets which preserve their ability to "
        "serve as routed endpoints for services",
        missing="no StatefulSet is made",
    ),
    Point(
        "Core.Network",
        "Ability to access internal pods by internal Kubernetes DNS service endpoints.",
        _from_windows,
    ),
    Point(
        "Core.Network",
        "Ability to access external services by Kubernetes DNS services endpoints (for "
        "non-airgapped clusters).",
        missing="no name outside the cluster is resolved",
    ),
    Point(
        "Core.Network",
        "Ability to access internal pods through custom DNS records, injected by the Kubernetes "
        "pod Specification.",
        missing="no pod has a DNS configuration of its own",
    ),
    Point(
        "Core.Network",
        "Ability to route services from pods from the EndpointSlice API.",
        _to_windows("pod-service"),
    ),
    Point(
        "Core.Storage",
        "Ability to mount a hostPath storage volume from a Kubelet into a pod and read from it.",
        check="host-path",
    ),
    Point(
        "Core.Storage",
        "Ability to mount a hostPath storage volume from a Kubelet into a pod and write to it.",
        check="host-path",
    ),
    Point(
        "Core.Storage",
        "Ability to mount host volumes. (Secrets/Projected Secrets/ConfigMap/Projected ConfigMap)",
        missing="Secret and ConfigMap are checked as environment variables, not as volumes",
    ),
    Point(
        "Core.Storage",
        "Ability to read and write shared files on a single Kubernetes node between three running "
        "Windows containers, simultaneously.",
        missing="the volumes of a pod are used by one container each",
    ),
    Point(
        "Core.Scheduling",
        "Ability to not exceed pod memory limits and should fail once there isn't enough memory",
        missing="no pod uses up its memory",
    ),
    Point(
        "Core.Scheduling",
        "Ability to not exceed pod CPU limits",
        missing="no pod uses up its processors",
    ),
    Point("Core.Concurrent", "Ability to schedule 10 pods concurrently", pods=CONCURRENT),
)


@dataclass(frozen=True, slots=True)
class PointResult:
    """One point of a run."""

    category: Category
    point: str
    verdict: PointVerdict
    detail: str
    """What answered it, or why nothing did."""


def judge_points(run: RunResult) -> tuple[PointResult, ...]:
    """Every point, in the order of the specification."""
    systems = {end.os for result in run.results for end in (result.cell.source, result.cell.target)}
    if WINDOWS not in systems:
        return tuple(_not_run(point, "the run has no Windows node") for point in POINTS)
    if run.emulated_nodes:
        return tuple(_not_run(point, "its Windows nodes are emulated") for point in POINTS)
    return tuple(_judge(point, run) for point in POINTS)


def _not_run(point: Point, why: str) -> PointResult:
    return PointResult(point.category, point.name, "not run", why)


def _judge(point: Point, run: RunResult) -> PointResult:
    if point.missing:
        return _not_run(point, point.missing)
    if point.pods:
        pods = len(set(_answering_pods(run)))
        if pods < point.pods:
            return _not_run(point, f"{quantity(pods, 'Windows pod')} answered of {point.pods}")
        return PointResult(point.category, point.name, "pass", f"{pods} Windows pods answered")
    if point.check:
        return _weigh(point, "workload check", [*_checks(run, point.check)])
    return _weigh(point, "cell", [*_verdicts(run, point.cells)])


def _weigh(point: Point, noun: str, verdicts: Sequence[str]) -> PointResult:
    """The result by the verdicts of its cells, or of its check on each node."""
    red = sum(verdict not in GREEN for verdict in verdicts)
    number = quantity(len(verdicts), noun)
    if red:
        detail = f"{red:,} of {number} not as expected"
        return PointResult(point.category, point.name, "fail", detail)
    if "pass" in verdicts:
        return PointResult(point.category, point.name, "pass", number)
    return _not_run(
        point, f"{number}, all known limits" if verdicts else f"the run has none of its {noun}s"
    )


def _verdicts(run: RunResult, chosen: Callable[[Cell], bool]) -> Iterator[str]:
    return (result.verdict for result in run.results if chosen(result.cell))


def _checks(run: RunResult, check: Check) -> Iterator[str]:
    windows = {
        end.node
        for result in run.results
        for end in (result.cell.source, result.cell.target)
        if end.os == WINDOWS and end.kind == "pod"
    }
    for workload in run.workloads:
        if workload.node in windows and workload.check == check:
            yield workload.verdict


def _answering_pods(run: RunResult) -> Iterable[str]:
    for result in run.results:
        if result.verdict == "pass" and _to_windows("pod-pod")(result.cell):
            yield result.cell.target.name
