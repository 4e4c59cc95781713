"""The whole matrix of every scenario, from agents on guests."""

from __future__ import annotations

import pytest
from node_lab import NewLab, failed, verdicts

SCENARIOS = ("overlay", "host-gateway", "upstream-tor", "hard-way")


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_cell_passes_and_again_after_a_second_up(new_lab: NewLab, scenario: str) -> None:
    lab = new_lab(scenario)
    lab.up()
    assert lab.ailments() == {}
    assert verdicts(lab.matrix()) == {"pass": len(lab.cells())}
    lab.up()
    assert verdicts(lab.matrix()) == {"pass": len(lab.cells())}


def test_a_tunnel_taken_away_fails_the_cells_of_that_node_and_up_mends_it(new_lab: NewLab) -> None:
    lab = new_lab("overlay")
    lab.up()
    lab.guest("worker1").shell("ip link delete flannel.4096")
    results = lab.matrix(broken=True)
    assert failed(results) == {frozenset(("worker1", other)) for other in ("master", "worker2")}
    assert not {"probe-error", "flaky", "unexpected-pass"} & set(verdicts(results))
    assert lab.ailments() == {}, "what packets meet is for the matrix to find"
    lab.up_one("worker1")
    assert verdicts(lab.matrix()) == {"pass": len(lab.cells())}


def test_a_route_taken_away_fails_the_cells_between_two_nodes(new_lab: NewLab) -> None:
    lab = new_lab("host-gateway")
    lab.up()
    route = next(
        route.destination
        for route in lab.intent.machine("worker1").routes
        if route.via == lab.intent.machine("worker2").interfaces[0].addresses[0].partition("/")[0]
    )
    lab.guest("worker1").shell(f"ip route delete {route}")
    assert failed(lab.matrix(broken=True)) == {frozenset(("worker1", "worker2"))}
