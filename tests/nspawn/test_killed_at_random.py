"""``lab up`` and the holder of a lab, killed at moments that nobody chose: what cleans, cleans all.

A seed that failed shows the same again, as far as the machine is as quick as it was.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest
from bundle.made_bundle import missing_bundle
from container_labs import ContainerLabs
from real_lab import SMALL
from whole_cluster import SCENARIO

from lab.providers.netns.holders import list_holders
from lab.providers.nspawn.holder import KIND
from lab.state.store import FILE

SEEDS = range(20)
SCENARIOS = {
    "small": (str(SMALL), "--provider", "nspawn", "--pods", "namespaces"),
    "cluster": (str(SCENARIO), "--provider", "nspawn", "--pods", "kubernetes"),
}
ENOUGH_SECONDS = 600
"""For a command whose holder is gone to see that, and end."""


@pytest.fixture(scope="module")
def seconds(labs: ContainerLabs) -> dict[str, float]:
    """How long ``lab up`` of each scenario takes here, as far as it was asked for."""
    del labs
    return {}


def whole(labs: ContainerLabs, name: str, known: dict[str, float]) -> float:
    if name not in known:
        began = time.monotonic()
        labs.run("up", *SCENARIOS[name])
        known[name] = time.monotonic() - began
        labs.run("down", name)
    return known[name]


def kill_holder(labs: ContainerLabs) -> bool:
    """Kill the holder of the lab; whether there was one."""
    found = [one.pid for one in list_holders(KIND) if labs.state in one.directory.parents]
    for pid in found:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return bool(found)


def killed(labs: ContainerLabs, name: str, victim: str, after: float) -> str:
    """Bring the lab up, and kill that many seconds later; what was said."""
    process = subprocess.Popen(
        labs.command("up", *SCENARIOS[name]),
        env=labs.environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        with suppress(subprocess.TimeoutExpired):
            process.wait(after)
        if victim in {"lab up", "both"}:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        if victim in {"holder", "both"}:
            kill_holder(labs)
        said = process.communicate(timeout=ENOUGH_SECONDS)[1]
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    assert process.returncode in {0, 3, -signal.SIGKILL}, said
    assert "Traceback" not in said
    return said


def clean(labs: ContainerLabs, name: str, how: str) -> None:
    """Take away what there is of the lab, whether its journal knows it or not."""
    if how == "gc without the journal":
        for path in labs.state.glob(f"{FILE}*"):
            path.unlink()
        labs.run("gc", "--yes")
    elif how == "gc":
        labs.run("gc", "--yes", "--older-than", "0s")
    elif Path(labs.state, "labs", name).is_dir():
        labs.run("down", name)


@pytest.mark.drill
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", ["small", "cluster"])
def test_a_kill_at_any_moment_leaves_nothing_that_is_not_cleaned(
    labs: ContainerLabs, seconds: dict[str, float], name: str, seed: int
) -> None:
    why = missing_bundle() if name == "cluster" else ""
    if why:
        pytest.skip(why)
    chance = random.Random(seed)
    victim = chance.choice(["lab up", "holder", "both"])
    how = chance.choice(["down", "gc", "gc without the journal"])
    if victim != "lab up" and how == "gc without the journal":
        how = "gc"  # without holder and journal nobody knows the lab
    said = killed(labs, name, victim, chance.uniform(0, 1.1) * whole(labs, name, seconds))
    clean(labs, name, how)
    assert labs.left() == set(), f"{victim}, {how}:\n{said}"
