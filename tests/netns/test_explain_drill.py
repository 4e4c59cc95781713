"""Every fault, put in by itself at a random node of a real lab, is named with its node.

The seed is printed; ``HYBRIDLAB_SEED`` sets it. ``make explain-drill`` does the same for every
scenario.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from explain_drill import (
    HEALTHY,
    applicable,
    brought_up,
    choose,
    drilled,
    drilled_pair,
    explain_cell,
    failures,
    false_alarms,
    sample,
    through,
)

from lab._deadline import Deadline
from lab.lifecycle.faults import FaultRequest, heal, present, put_in
from lab.lifecycle.session import OpenLab
from lab.matrix.explain.finding import Finding, by_hand
from lab.matrix.faults import registry
from lab.providers.netns import responding

SEED = os.environ.get("HYBRIDLAB_SEED") or str(random.SystemRandom().randrange(10**6))
FAULTS = registry.faults()
WORDS = {"service-backend-stale", "service-rules-missing"}
"""Those that no one command mends."""


@pytest.fixture(scope="module")
def opened(tokens: set[str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenLab]:
    with pytest.MonkeyPatch.context() as patch:
        program = Path(responding.__file__).with_name("responder.py")
        patch.setattr(responding, "PROGRAM", program)
        with brought_up("overlay", tmp_path_factory.mktemp("drill")) as made:
            tokens.add(made.handle.token)
            yield made


@pytest.fixture(autouse=True)
def _healed(opened: OpenLab) -> Iterator[None]:
    """A test that fails leaves its fault to nobody."""
    yield
    heal(opened, lambda _: None)
    assert present(opened) == ()


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_named_with_its_node(opened: OpenLab, name: str) -> None:
    rng = random.Random(f"{SEED} {name}")
    score = drilled(opened, FAULTS[name], rng)
    assert score.named, f"seed {SEED}: {score}"
    assert score.healed, f"seed {SEED}: {score}"


@pytest.mark.parametrize("number", range(3))
def test_of_two_at_once_one_is_named(opened: OpenLab, number: int) -> None:
    rng = random.Random(f"{SEED} pair {number}")
    score = drilled_pair(opened, applicable(opened), rng)
    assert score.good, f"seed {SEED}: {score}"


def test_of_a_healthy_lab_nothing_is_said(opened: OpenLab) -> None:
    assert false_alarms(opened, HEALTHY, random.Random(SEED)) == [], f"seed {SEED}"


@pytest.mark.parametrize("name", sorted(set(FAULTS) - WORDS))
def test_what_it_says_mends_it(opened: OpenLab, name: str) -> None:
    rng = random.Random(f"{SEED} mend {name}")
    put = choose(FAULTS[name], opened, rng)
    put_in(opened, FaultRequest(name, put.node, put.peer), lambda _: None)
    cell = rng.choice(failures(opened, sample(opened, [put], rng)) or through(opened, put))
    found = explain_cell(opened, cell).finding
    assert found is not None, f"seed {SEED}: {put}, {cell.id}"
    for text in (found.shows, found.mends):
        done(opened, found, text)
    assert explain_cell(opened, cell).well, f"seed {SEED}: {put}, {cell.id}, {found.mends}"


def done(opened: OpenLab, found: Finding, text: str) -> None:
    assert by_hand(opened.name, found.place, text).startswith("lab exec "), text
    machine = opened.provider.machine(opened.handle, opened.intent, found.place)
    line = text.removeprefix("in the pod: ")
    ran = machine.run(("sh", "-c", line), Deadline(30))
    assert ran.code == 0, (text, ran)
