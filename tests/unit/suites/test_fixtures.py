"""Fixtures of the plugin, and labs whose pods are Kubernetes own: bound, probed, and checked."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from paper_lab import EchoMachine, PaperLabs, blueprint
from simulation import Network, silent

from lab._deadline import Deadline
from lab._errors import DeadlineError, did_you_mean
from lab.matrix.cell import Cell
from lab.matrix.cells import cells
from lab.providers.provider import Outcome
from lab.providers.workloads import WorkloadResult, wanted
from lab.scenario.assertion import Assertion
from lab.shells.shell import Completed
from lab.suites.running_lab import bind_intent
from lab.topology.bind import foresee
from lab.topology.intent import Intent
from lab.topology.observed import NodeVersion

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
        self.intent = foresee(blueprint()[1])
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
    run = labs.lab.recorded[0]
    targets = {result.cell.target.address for result in run.results}
    assert "10.244.0.99" in targets
    drawn = {pod.address for machine in labs.lab.tested.machines for pod in machine.pods}
    assert "10.244.0.99/24" in drawn  # the report's picture has them, too
    assert run.nodes == (VERSION,)
    assert len(run.workloads) == len(wanted(labs.lab.provider.paper_cluster.intent))


def test_failed_check_fails_the_run_as_an_item_of_its_own(outer, tmp_path):
    labs = clustered(tmp_path, PaperCluster(failing="win1/host-path"))
    result = outer(labs)
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*workloads/win1/host-path: no value"])
    assert not labs.lab.recorded[0].green()


def test_assertions_are_made_while_the_probe_pods_exist(outer, tmp_path, monkeypatch):
    cluster = PaperCluster()
    labs = clustered(tmp_path, cluster)
    labs.lab.assertions = (Assertion(name="name", pod="master-*", command=("echo", "a")),)
    running: list[bool] = []
    provider = labs.lab.provider

    def machine(_lab: object, _intent: Intent, name: str) -> EchoMachine:
        running.append(cluster.there)
        return EchoMachine(name)

    monkeypatch.setattr(provider, "machine", machine)
    assert outer(labs, "-k", "assertions").ret == 0
    assert running == [True, True]
    assert cluster.told == [], "no workload check is made"


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
    with bind_intent(clustered(tmp_path, cluster).lab, cluster) as intent:
        assert intent == moved(cluster.intent)


SILENT = "pod-pod/master-p1/win1-p1/tcp-small"
VERDICTS = """
def test_works(probe):
    assert probe("master-p1", "win1-p2").verdict == "pass"

def test_is_silent(probe):
    found = probe("master-p1", "win1-p1")
    assert found.verdict == "pass", f"{found.detail}; {found.repeat}"

def test_is_a_known_limit(probe):
    assert probe("win1", "to-win1-p1").verdict == "known-limit"
"""


class PaperMachine:
    def __init__(self, name: str) -> None:
        self.name = name

    def run(self, command: tuple[str, ...], deadline: Deadline) -> Completed:
        return Completed(0, f"{self.name}: {' '.join(command)}, {deadline.seconds:g} s", "")


class Client:
    closed = False


class ClientCluster(PaperCluster):
    @contextmanager
    def client(self) -> Iterator[Client]:
        Client.closed = False
        yield Client()
        Client.closed = True


def silent_once_more(cell: Cell, _attempt: int, outcome: Outcome) -> Outcome:
    return silent(outcome) if cell.id == SILENT else outcome


def machined(labs: PaperLabs) -> PaperLabs:
    labs.lab.provider.machine = lambda _lab, _intent, name: PaperMachine(name)  # type: ignore[attr-defined]
    return labs


@pytest.fixture
def run_text(pytester):
    def run(text, labs, *arguments):
        pytester.makepyfile(text)
        plugin = ("-p", "lab.suites.plugin", *arguments)
        return pytester.runpytest_inprocess(*plugin, plugins=[machined(labs)])

    return run


def test_probe_is_judged_as_the_matrix_judges_it(run_text, tmp_path):
    result = run_text(VERDICTS, PaperLabs(tmp_path, silent_once_more), "--lab", "paper")
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines([f"*no reply*lab test paper -k {SILENT}*"])
    assert result.ret == 1


def test_nodes_and_pods_run_commands_and_know_their_addresses(run_text, tmp_path):
    text = """
    def test_places(lab, node, pod):
        assert (lab.name, lab.provider, lab.nodes) == ("paper", "netns", ("master", "win1"))
        assert node("win1").os == "windows"
        assert node("win1").run("ipconfig", "/all").stdout == "win1: ipconfig /all, 60 s"
        assert pod("master-p1").run("true", timeout=2).stdout == "master-p1: true, 2 s"
        assert pod("master-p1").address == "10.244.0.4"
        assert "master-p1" in lab.pods
    """
    run_text(text, PaperLabs(tmp_path), "--lab", "paper").assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("node('win2')", "looking for machine 'win2' in lab 'paper': there is none"),
        ("pod('master')", "looking for pod 'master' in lab 'paper': there is none"),
        ("probe('master-p1', 'nowhere')", "probing 'nowhere' from 'master-p1' in lab 'paper'"),
    ],
)
def test_unknown_name_is_answered_with_the_nearest(call, said, run_text, tmp_path):
    text = f"def test_unknown(node, pod, probe):\n    {call}\n"
    result = run_text(text, PaperLabs(tmp_path), "--lab", "paper")
    result.assert_outcomes(failed=1)
    assert said in result.stdout.str()


@pytest.mark.parametrize(
    ("name", "known", "near"),
    [
        ("wrker", ["master", "worker1", "worker2"], "did you mean 'worker1' or 'worker2'?"),
        ("worker11", ["worker2", "worker10"], "did you mean 'worker10'?"),
        ("node7", ["node10", "node40", "node70"], "did you mean 'node70'?"),
        ("n", [f"n{number}" for number in range(1, 9)], "did you mean 'n1' or 'n2' or 'n3'?"),
        ("client", ["master"], ""),
        ("master", [], ""),
    ],
)
def test_names_that_are_equally_near_are_all_offered(name, known, near):
    assert did_you_mean(name, known) == near


def test_test_that_asks_for_a_lab_fails_where_none_is_named(run_text, tmp_path):
    result = run_text("def test_it(node): pass", PaperLabs(tmp_path))
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*try: pytest --lab NAME*"])


def test_lab_is_held_as_long_as_its_tests_run(run_text, tmp_path):
    labs = PaperLabs(tmp_path)
    text = "def test_it(lab): assert lab.suite.held == 1"
    run_text(text, labs, "--lab", "paper").assert_outcomes(passed=1)
    assert labs.lab.held == 0


def test_lab_that_does_not_run_fails_every_test_that_asks_for_it(run_text, tmp_path):
    result = run_text(VERDICTS, PaperLabs(tmp_path, running=False), "--lab", "paper")
    result.assert_outcomes(errors=3)


def test_kube_is_a_client_of_the_cluster_and_skipped_where_there_is_none(run_text, tmp_path):
    text = "def test_it(kube): assert not kube.closed"
    run_text(text, PaperLabs(tmp_path), "--lab", "paper").assert_outcomes(skipped=1)
    labs = clustered(tmp_path, ClientCluster())
    run_text(text, labs, "--lab", "paper").assert_outcomes(passed=1)
    assert Client.closed


def test_pods_of_a_cluster_have_the_addresses_that_they_really_have(run_text, tmp_path):
    text = "def test_it(lab, pod): assert '10.244.0.99' in {pod(one).address for one in lab.pods}"
    run_text(text, clustered(tmp_path, PaperCluster()), "--lab", "paper").assert_outcomes(passed=1)
