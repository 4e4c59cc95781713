"""Cells of pods that do not run: not sent, and with the obstacle as their cause."""

from dataclasses import replace

import pytest
from shipped import cells_of, intent_of, plan_of
from simulation import Network

from lab.matrix.obstructed import Obstructions
from lab.matrix.run import PACE, run
from lab.topology import registry
from lab.topology.intent import Intent, Obstacle

CORDONED = Obstacle(
    "Node worker1",
    "cordoned, and takes no new pods",
    "kubectl describe node worker1",
    "kubectl uncordon worker1",
)


def obstructed(scenario: str, *pods: str) -> Intent:
    """The Intent of a scenario whose pods with these names do not run."""
    intent = intent_of(scenario)
    return replace(
        intent,
        machines=tuple(
            replace(
                machine,
                pods=tuple(
                    replace(pod, obstacle=CORDONED) if pod.name in pods else pod
                    for pod in machine.pods
                ),
            )
            for machine in intent.machines
        ),
    )


def test_cells_of_a_pod_that_does_not_run_are_probe_errors_and_all_others_are_judged():
    cells, limits = cells_of("overlay"), registry.limits(plan_of("overlay"))
    network = Network(cells, limits)
    obstructions = Obstructions(obstructed("overlay", "worker1-p1"))
    sent = set[int]()

    def send(probes, settings):
        sent.update(probe.key for probe in probes)
        return network.send(probes, settings)

    results = run(
        cells,
        limits,
        send,
        network.clock,
        lambda cell: cell.id,
        pace=replace(PACE, settle=0.0),
        obstacle=obstructions.reason,
    )
    for index, result in enumerate(map(obstructions.add_finding, results)):
        cell = result.cell
        uses = "worker1-p1" in {cell.source.name, cell.target.name, *cell.backends}
        assert (result.verdict == "probe-error") == uses, cell.id
        assert (index not in sent) == uses
        if uses:
            assert "pod 'worker1-p1' cannot run: Node worker1: cordoned" in result.detail
            assert result.finding
            assert result.finding.sentence == CORDONED.sentence
            assert result.finding.mends == "kubectl uncordon worker1"
        else:
            assert result.verdict in {"pass", "known-limit"}
            assert result.finding is None


@pytest.mark.parametrize(
    ("cell", "needs"),
    [
        ("headless/worker2-p1/by-name/", "master-p1"),
        ("headless/worker2-p1/master-p1.by-name.", "master-p1"),
        ("health-check/client/worker1:near-linux:health", "worker1-p1"),
        ("health-check/client/worker2:near-linux:health", None),
        ("pod-service/worker2-p1/everyone/", "master-p1"),
    ],
)
def test_a_cell_needs_the_pods_that_its_answer_counts_or_lists(cell, needs):
    cells = [one for one in cells_of("services") if one.id.startswith(cell)]
    assert cells
    pods = {pod.name for machine in intent_of("services").machines for pod in machine.pods}
    for one in cells:
        if needs is None:
            assert Obstructions(obstructed("services", "worker1-p1")).of(one) is None
        else:
            assert needs in pods
            assert Obstructions(obstructed("services", needs)).of(one) == (needs, CORDONED)


def test_the_running_part_of_an_intent_has_no_trace_of_a_pod_that_does_not_run():
    intent = obstructed("services", "worker1-p1")
    running = intent.running()
    assert intent.obstacles() == {"worker1-p1": CORDONED}
    assert not running.obstacles()
    assert running.running() is running
    backends = [
        backend.pod
        for machine in running.machines
        if machine.translation
        for service in machine.translation.services
        for backend in service.backends
    ]
    headless = [backend.pod for service in running.headless for backend in service.backends]
    names = [pod.name for machine in running.machines for pod in machine.pods]
    for found in (backends, headless, names):
        assert "worker1-p1" not in found
        assert "master-p1" in found
