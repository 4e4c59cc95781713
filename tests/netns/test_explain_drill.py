"""Every fault, put in by itself at a random node of a real lab, is named with its node.

The same nodes each time, or others with ``HYBRIDLAB_SEED``; ``make explain-drill`` does it for
every scenario.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import explain_drill
import pytest
import random_faults
from explain_drill import (
    HEALTHY,
    applicable,
    as_it_is,
    brought_up,
    choose,
    drilled,
    drilled_pair,
    ends,
    explain_again,
    failures,
    false_alarms,
    sample,
    through,
)

from lab._deadline import Deadline
from lab.explain.explainer import Explainer
from lab.explain.faults import registry
from lab.facts.command_lines import lab_exec_line
from lab.facts.difference import Difference
from lab.lifecycle.compilation import compile_scenario
from lab.lifecycle.faults import FaultRequest, heal, present, put_in
from lab.lifecycle.open_lab import OpenLab

pytestmark = pytest.mark.slow

SEED = os.environ.get("HYBRIDLAB_SEED", "11")
FAULTS = registry.faults()
LEARNED = {"bgp-session-down", "gateway-dead"}
"""Those of daemons, which another lab has."""
OVERLAY = compile_scenario("overlay", None, None, "namespaces").intent
OF_OVERLAY = sorted(name for name, fault in FAULTS.items() if registry.sites(fault, OVERLAY))
WORDS = {"service-backend-stale", "service-rules-missing"}
"""Those that no one command mends."""


@pytest.fixture(scope="module", params=["overlay"])
def lab_of_scenario(request, tokens, tmp_path_factory):
    with brought_up(request.param, tmp_path_factory.mktemp("drill")) as made:
        tokens.add(made.handle.token)
        yield made


@pytest.fixture
def opened(lab_of_scenario):
    """A test that fails leaves its fault to nobody."""
    yield lab_of_scenario
    heal(lab_of_scenario, lambda _: None)
    assert present(lab_of_scenario) == ()


with_daemons = pytest.mark.parametrize("lab_of_scenario", ["upstream-vrrp"], indirect=True)


@pytest.mark.parametrize("name", OF_OVERLAY)
def test_a_fault_is_named_with_its_node(opened, name):
    rng = random.Random(f"{SEED} {name}")
    score = drilled(opened, FAULTS[name], rng)
    assert score.named, f"seed {SEED}: {score}"
    assert score.healed, f"seed {SEED}: {score}"


@pytest.mark.parametrize("number", range(3))
def test_of_two_at_once_one_is_named(opened, number):
    rng = random.Random(f"{SEED} pair {number}")
    score = drilled_pair(opened, applicable(opened), rng)
    assert score.good, f"seed {SEED}: {score}"


def test_a_healthy_lab_is_explained_without_findings(opened):
    assert false_alarms(opened, HEALTHY, random.Random(SEED)) == [], f"seed {SEED}"


@pytest.mark.parametrize("name", sorted(set(OF_OVERLAY) - WORDS))
def test_the_shown_fix_repairs_the_lab(opened, name):
    fixed_by_what_is_said(opened, name)


@with_daemons
@pytest.mark.parametrize("name", sorted(LEARNED))
def test_a_fault_of_daemons_is_named_and_fixed_by_the_shown_command(opened, name):
    rng = random.Random(f"{SEED} {name}")
    score = drilled(opened, FAULTS[name], rng)
    assert score.good, f"seed {SEED}: {score}"
    fixed_by_what_is_said(opened, name)


@with_daemons
def test_heal_ends_when_every_route_is_learned_again(opened):
    put_in(opened, FaultRequest("node-link-down", "master2"), lambda _: None)
    put_in(opened, FaultRequest("wrong-vni", "node001"), lambda _: None)
    heal(opened, lambda _: None)
    assert elsewhere(opened) == ()


def elsewhere(opened: OpenLab) -> tuple[Difference, ...]:
    """What is wrong in the whole lab."""
    intent = as_it_is(opened)
    asked = {machine.name: () for machine in intent.machines}
    seen = opened.provider.observe(opened.handle, intent, asked, Deadline(30))
    return Explainer(intent, seen).list_elsewhere()


def fixed_by_what_is_said(opened: OpenLab, name: str) -> None:
    rng = random.Random(f"{SEED} mend {name}")
    put = choose(FAULTS[name], opened, rng)
    put_in(opened, FaultRequest(name, put.node, put.peer), lambda _: None)
    failing = failures(opened, sample(opened, [put], rng))
    near = [cell for cell in failing if put.node in ends(opened, cell)]
    cell = rng.choice(near or failing or through(opened, put))
    difference = explain_again(opened, cell).finding
    assert difference is not None, f"seed {SEED}: {put}, {cell.id}"
    for text in (difference.shows, difference.mends):
        done(opened, difference, text)
    Deadline(20 if name in LEARNED else 0).wait(
        f"'{difference.mends}' mending {put} (seed {SEED}, {cell.id})",
        lambda: explain_again(opened, cell),
        until=lambda explanation: explanation.well,
    )


def done(opened: OpenLab, difference: Difference, text: str) -> None:
    assert lab_exec_line(opened.name, difference.place, text).startswith("lab exec "), text
    machine = opened.provider.machine(opened.handle, opened.intent, difference.place)
    line = text.removeprefix("in the pod: ")
    ran = machine.run(("sh", "-c", line), Deadline(30))
    assert ran.code == 0, (text, ran)


@pytest.mark.parametrize("told", [signal.SIGTERM, signal.SIGINT])
def test_a_stopped_drill_takes_its_lab_down(monkeypatch, told):
    labs: list[str] = []

    @contextmanager
    def made(name: str, *_: object) -> Iterator[None]:
        labs.append(f"{name} is up")
        try:
            yield
        finally:
            labs.append(f"{name} is down")

    monkeypatch.setattr(explain_drill, "brought_up", made)
    monkeypatch.setattr(explain_drill, "drill", lambda *_: signal.raise_signal(told))
    monkeypatch.setattr(sys, "argv", ["drill", "overlay", "services"])
    assert explain_drill.main() == 130
    assert labs == ["overlay is up", "overlay is down"]


@pytest.mark.parametrize("jobs", ["0", "2"])
def test_a_stopped_drill_of_random_faults_ends_without_a_traceback(monkeypatch, capfd, jobs):
    def stop(*_: object) -> None:
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(random_faults, "drilled", stop)
    monkeypatch.setattr(random_faults, "_every", stop)
    monkeypatch.setattr(sys, "argv", ["drill", "overlay", "services", "--jobs", jobs])
    assert random_faults.main() == 130
    assert "its lab is down" in capfd.readouterr().out


def test_a_stopped_drill_of_random_faults_ends_its_children():
    drill = Path(random_faults.__file__)
    code = (
        "import random_faults, sys; random_faults.__file__ = sys.argv.pop(1); random_faults.main()"
    )
    child = "import time; print('it drills', flush=True); time.sleep(300)"
    with TemporaryDirectory() as folder:
        fake = Path(folder, "drill.py")
        fake.write_text(child)
        command = [sys.executable, "-c", code, str(fake), "overlay", "services", "--jobs", "2"]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        with subprocess.Popen(
            command, cwd=drill.parent, env=environment, stdout=subprocess.PIPE, text=True
        ) as running:
            assert running.stdout is not None
            lines = [next(running.stdout) for _ in range(3)]
            running.terminate()
            left = running.stdout.read()  # to the end: no child holds it open
    assert sum("it drills" in line for line in lines) == 2
    assert "interrupted" in left


@pytest.mark.parametrize("names", ["wrong-vni,no-such-fault", "no-such-fault"])
def test_a_drill_refuses_names_of_no_fault(monkeypatch, capsys, names):
    monkeypatch.setattr(sys, "argv", ["drill", "overlay", "--faults", names])
    with pytest.raises(SystemExit) as ended:
        explain_drill.main()
    assert ended.value.code == 2
    assert "no such fault: no-such-fault" in capsys.readouterr().err


def test_a_drill_of_faults_that_no_scenario_can_have_is_red(monkeypatch, capsys):
    asked: list[object] = []

    def drill_one(name: str, *options: object) -> explain_drill.Drilled:
        asked.append(options[-1])
        return explain_drill.Drilled(f"{name}: 0 of 0 faults named", green=True, faults=0)

    monkeypatch.setattr(explain_drill, "scenario", drill_one)
    faults = "bgp-session-down,gateway-dead"
    monkeypatch.setattr(sys, "argv", ["drill", "overlay", "--faults", faults])
    assert explain_drill.main() == 1
    assert asked == [("bgp-session-down", "gateway-dead")]
    assert "NO fault was put in" in capsys.readouterr().out
