"""``lab check`` on a thousand nodes, Linux and Windows: a sample of them, in little memory."""

import json

import pytest
from kubernetes_programs import HOW, programs
from thousand_nodes import BUILDS, NUMBER, thousand_nodes, timed_check

from lab.reports.result import from_json

pytestmark = pytest.mark.slow

CHOSEN = 50
PAIRS = {(a, b) for a in BUILDS for b in BUILDS}
LARGEST_MIB = 600
"""Peak memory of ``lab``."""
MOST_SECONDS = 60.0
"""Of processors; 20 s on a busy machine."""


@pytest.fixture(scope="module")
def plane(tmp_path_factory):
    pytest.importorskip("kubernetes")
    wanted = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok")
    path = programs(*wanted)
    if path is None:
        pytest.skip(f"there is no kube-apiserver or no kwok ('--only server --only kwok'): {HOW}")
    with thousand_nodes(tmp_path_factory.mktemp("thousand"), path) as plane:
        yield plane


def test_a_check_of_a_thousand_nodes_is_green_and_small(plane, tmp_path):
    done = timed_check(plane, tmp_path, "--json")
    assert done.code == 0, done.story
    assert f"left out: {NUMBER - CHOSEN - 6} more" in done.story
    run, _ = from_json(json.loads(done.output))
    assert {(each.cell.source.os, each.cell.target.os) for each in run.results} == PAIRS
    assert {each.verdict for each in run.results} == {"pass", "known-limit"}
    assert run.emulated_nodes == ()
    assert len(run.results) <= 16_000
    assert done.mib < LARGEST_MIB
    assert done.processors < MOST_SECONDS
    print(
        f"{done.beyond:.1f} s after the last pod was Ready; {done.processors:.1f} s of processors, "
        f"{done.mib:.0f} MiB"
    )
