"""Labs of system containers, killed at every step and at random: ``up`` goes on, ``down`` cleans.

That a cluster comes up however often that is killed is in test_container_cluster.py. A random seed
that failed shows the same again, as far as the machine is as quick as it was.
"""

import os
import random
import re
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest
from container_labs import CLUSTER_UP, UP, ContainerLabs, need_bundle, room_for
from real_lab import SMALL
from whole_cluster import SCENARIO

STEPS = tuple(
    f"  step {number} of 5: {name}"
    for number, name in enumerate(("images", "networks", "machines", "network", "states"), start=1)
)
SEEDS = range(20)
SCENARIOS = {"small": UP, "cluster": CLUSTER_UP}
ENOUGH_SECONDS = 600
"""For a command whose holder is gone to see that, and end."""


@pytest.mark.parametrize("step", STEPS)
def test_up_goes_on_after_a_kill(labs, step):
    labs.killed_after(UP, step)
    labs.up()
    labs.green("small", "-k", "pod-pod")
    labs.run("down", "small")
    assert labs.left() == set()


@pytest.mark.parametrize("step", STEPS)
def test_down_after_a_kill_leaves_nothing(labs, step):
    labs.killed_after(UP, step)
    labs.run("down", "small")
    assert labs.left() == set()


def test_down_of_a_suspended_lab_leaves_nothing(labs):
    labs.up()
    labs.run("suspend", "small")
    labs.run("down", "small")
    assert labs.left() == set()


def test_down_removes_a_cable_that_the_kernel_keeps(labs):
    labs.up()
    holder = labs.holder()
    with Path(f"/proc/{holder}/ns/net").open("rb"):  # keeps the namespace when its processes end
        labs.run("down", "small")
        assert labs.left() == set()


def test_up_replaces_a_cable_that_the_kernel_keeps(labs):
    labs.up()
    holder = labs.holder()
    with Path(f"/proc/{holder}/ns/net").open("rb"):
        os.kill(holder, signal.SIGKILL)
        labs.up()
        labs.green("small", "-k", "pod-pod")
    labs.run("down", "small")
    assert labs.left() == set()


def test_gc_ends_a_lab_that_no_journal_knows(labs):
    labs.up()
    labs.forget()
    assert re.search(r"removing lab 'small'", labs.run("gc", "--yes").stderr)
    assert labs.left() == set()


def test_two_labs_of_one_scenario_live_side_by_side(labs):
    labs.up()
    labs.up(SMALL, "--name", "other")
    for name in ("small", "other"):
        labs.green(name)
    labs.run("down", "small")
    labs.green("other", "-k", "pod-pod")
    labs.run("down", "other")
    assert labs.left() == set()


def test_ten_labs_in_turn_leave_nothing(labs):
    for _ in range(10):
        labs.up()
        labs.run("down", "small")
    assert labs.left() == set()


@pytest.mark.clusters
@pytest.mark.parametrize("moment", ["master: kubeadm init", "worker: kubeadm join"])
def test_down_after_a_kill_within_kubeadm_leaves_nothing(labs, moment):
    need_bundle()
    with room_for(SCENARIO):
        labs.killed_after(CLUSTER_UP, moment)
        labs.run("down", "cluster")
    assert labs.left() == set()


@pytest.fixture(scope="module")
def seconds(labs):
    """How long ``lab up`` of each scenario takes here, as far as it was asked for."""
    del labs
    return {}


def whole(labs: ContainerLabs, name: str, known: dict[str, float]) -> float:
    if name not in known:
        began = time.monotonic()
        labs.run(*SCENARIOS[name])
        known[name] = time.monotonic() - began
        labs.run("down", name)
    return known[name]


def killed(labs: ContainerLabs, name: str, victim: str, after: float) -> str:
    """Bring the lab up, and kill that many seconds later; what was said."""
    with labs.started(*SCENARIOS[name]) as process:
        with suppress(subprocess.TimeoutExpired):
            process.wait(after)
        with suppress(ProcessLookupError):
            if victim in {"lab up", "both"}:
                os.killpg(process.pid, signal.SIGKILL)
        for pid in labs.holders() if victim in {"holder", "both"} else ():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        said = process.communicate(timeout=ENOUGH_SECONDS)[1]
    assert process.returncode in {0, 3, -signal.SIGKILL}, said
    assert "Traceback" not in said
    return said


def clean(labs: ContainerLabs, name: str, how: str) -> None:
    """Take away what there is of the lab, whether its journal knows it or not."""
    if how == "gc without the journal":
        labs.forget()
        labs.run("gc", "--yes")
    elif how == "gc":
        labs.run("gc", "--yes", "--older-than", "0s")
    elif Path(labs.state, "labs", name).is_dir():
        labs.run("down", name)


@pytest.mark.drill
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", ["small", "cluster"])
def test_a_kill_at_any_moment_leaves_nothing_that_is_not_cleaned(labs, seconds, name, seed):
    if name == "cluster":
        need_bundle()
    chance = random.Random(seed)
    victim = chance.choice(["lab up", "holder", "both"])
    how = chance.choice(["down", "gc", "gc without the journal"])
    said = killed(labs, name, victim, chance.uniform(0, 1.1) * whole(labs, name, seconds))
    clean(labs, name, how)
    assert labs.left() == set(), f"{victim}, {how}:\n{said}"
