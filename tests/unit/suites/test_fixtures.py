from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from paper_lab import PaperLabs
from simulation import silent
from test_plugin_cluster import PaperCluster, clustered

from lab._deadline import Deadline
from lab.matrix.cell import Cell
from lab.providers.provider import Outcome
from lab.remote.shell import Completed

Outer = Callable[..., pytest.RunResult]
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
def outer(pytester):
    def run(text, labs, *arguments):
        pytester.makepyfile(text)
        plugin = ("-p", "lab.suites.plugin", *arguments)
        return pytester.runpytest_inprocess(*plugin, plugins=[machined(labs)])

    return run


def test_probe_is_judged_as_the_matrix_judges_it(outer, tmp_path):
    result = outer(VERDICTS, PaperLabs(tmp_path, silent_once_more), "--lab", "paper")
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines([f"*no reply*lab test paper -k {SILENT}*"])
    assert result.ret == 1


def test_nodes_and_pods_run_commands_and_know_their_addresses(outer, tmp_path):
    text = """
    def test_places(lab, node, pod):
        assert (lab.name, lab.provider, lab.nodes) == ("paper", "netns", ("master", "win1"))
        assert node("win1").os == "windows"
        assert node("win1").run("ipconfig", "/all").stdout == "win1: ipconfig /all, 60 s"
        assert pod("master-p1").run("true", timeout=2).stdout == "master-p1: true, 2 s"
        assert pod("master-p1").address == "10.244.0.4"
        assert "master-p1" in lab.pods
    """
    outer(text, PaperLabs(tmp_path), "--lab", "paper").assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("node('win2')", "looking for machine 'win2' in lab 'paper': there is none"),
        ("pod('master')", "looking for pod 'master' in lab 'paper': there is none"),
        ("probe('master-p1', 'nowhere')", "probing 'nowhere' from 'master-p1' in lab 'paper'"),
    ],
)
def test_unknown_name_is_answered_with_the_nearest(call, said, outer, tmp_path):
    text = f"def test_unknown(node, pod, probe):\n    {call}\n"
    result = outer(text, PaperLabs(tmp_path), "--lab", "paper")
    result.assert_outcomes(failed=1)
    assert said in result.stdout.str()


def test_test_that_asks_for_a_lab_fails_where_none_is_named(outer, tmp_path):
    result = outer("def test_it(node): pass", PaperLabs(tmp_path))
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*try: pytest --lab NAME*"])


def test_lab_is_held_as_long_as_its_tests_run(outer, tmp_path):
    labs = PaperLabs(tmp_path)
    text = "def test_it(lab): assert lab.suite.held == 1"
    outer(text, labs, "--lab", "paper").assert_outcomes(passed=1)
    assert labs.lab.held == 0


def test_lab_that_does_not_run_fails_every_test_that_asks_for_it(outer, tmp_path):
    result = outer(VERDICTS, PaperLabs(tmp_path, running=False), "--lab", "paper")
    result.assert_outcomes(errors=3)


def test_kube_is_a_client_of_the_cluster_and_skipped_where_there_is_none(outer, tmp_path):
    text = "def test_it(kube): assert not kube.closed"
    outer(text, PaperLabs(tmp_path), "--lab", "paper").assert_outcomes(skipped=1)
    labs = clustered(tmp_path, ClientCluster())
    outer(text, labs, "--lab", "paper").assert_outcomes(passed=1)
    assert Client.closed


def test_pods_of_a_cluster_have_the_addresses_that_they_really_have(outer, tmp_path):
    text = "def test_it(lab, pod): assert '10.244.0.99' in {pod(one).address for one in lab.pods}"
    outer(text, clustered(tmp_path, PaperCluster()), "--lab", "paper").assert_outcomes(passed=1)
