"""Commands on labs of system containers, killed at every step: ``up`` goes on, ``down`` cleans."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest
from container_labs import ContainerLabs
from real_lab import SMALL

from lab.state.store import FILE

STEPS = tuple(
    f"  step {number} of 4: {name}"
    for number, name in enumerate(("images", "networks", "machines", "network"), start=1)
)
UP = ("up", str(SMALL), "--provider", "nspawn", "--pods", "namespaces")


@pytest.mark.parametrize("step", STEPS)
def test_up_goes_on_after_a_kill(labs: ContainerLabs, step: str) -> None:
    labs.killed_after(UP, step)
    labs.up()
    labs.green("small", "-k", "pod-pod")
    labs.run("down", "small")
    assert labs.left() == set()


@pytest.mark.parametrize("step", STEPS)
def test_down_after_a_kill_leaves_nothing(labs: ContainerLabs, step: str) -> None:
    labs.killed_after(UP, step)
    labs.run("down", "small")
    assert labs.left() == set()


def test_down_of_a_suspended_lab_leaves_nothing(labs: ContainerLabs) -> None:
    labs.up()
    labs.run("suspend", "small")
    labs.run("down", "small")
    assert labs.left() == set()


def test_down_removes_a_cable_that_the_kernel_keeps(labs: ContainerLabs) -> None:
    labs.up()
    holder = labs.holder()
    with Path(f"/proc/{holder}/ns/net").open("rb"):  # keeps the namespace when its processes end
        labs.run("down", "small")
        assert labs.left() == set()


def test_up_replaces_a_cable_that_the_kernel_keeps(labs: ContainerLabs) -> None:
    labs.up()
    holder = labs.holder()
    with Path(f"/proc/{holder}/ns/net").open("rb"):
        os.kill(holder, signal.SIGKILL)
        labs.up()
        labs.green("small", "-k", "pod-pod")
    labs.run("down", "small")
    assert labs.left() == set()


def test_gc_ends_a_lab_that_no_journal_knows(labs: ContainerLabs) -> None:
    labs.up()
    for path in labs.state.glob(f"{FILE}*"):
        path.unlink()
    assert re.search(r"removing lab 'small'", labs.run("gc", "--yes").stderr)
    assert labs.left() == set()


def test_two_labs_of_one_scenario_live_side_by_side(labs: ContainerLabs) -> None:
    labs.up()
    labs.up(SMALL, "--name", "other")
    for name in ("small", "other"):
        labs.green(name)
    labs.run("down", "small")
    labs.green("other", "-k", "pod-pod")
    labs.run("down", "other")
    assert labs.left() == set()


def test_ten_labs_in_turn_leave_nothing(labs: ContainerLabs) -> None:
    for _ in range(10):
        labs.up()
        labs.run("down", "small")
    assert labs.left() == set()
