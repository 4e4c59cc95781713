"""The whole matrix of every scenario, from agents on guests."""

import pytest
from node_lab import failed, verdicts

from lab.providers.provider import Probe, ProbeSettings

pytestmark = pytest.mark.slow

SCENARIOS = ("overlay", "host-gateway", "upstream-tor", "hard-way")


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_cell_passes_and_again_after_a_second_up(new_lab, scenario):
    lab = new_lab(scenario)
    lab.up()
    assert lab.ailments() == {}
    assert verdicts(lab.matrix()) == {"pass": len(lab.cells())}
    lab.up()
    assert verdicts(lab.matrix()) == {"pass": len(lab.cells())}


def test_a_removed_tunnel_fails_the_cells_of_its_node_until_up_restores_it(new_lab):
    lab = new_lab("overlay")
    lab.up()
    lab.guest("worker1").shell("ip link delete flannel.4096")
    results = lab.matrix(broken=True)
    assert failed(results) == {frozenset(("worker1", other)) for other in ("master", "worker2")}
    assert not {"probe-error", "flaky", "unexpected-pass"} & set(verdicts(results))
    assert lab.ailments() == {}, "what packets meet is for the matrix to find"
    lab.up_one("worker1")
    assert verdicts(lab.matrix()) == {"pass": len(lab.cells())}


def test_a_route_taken_away_fails_the_cells_between_two_nodes(new_lab):
    lab = new_lab("host-gateway")
    lab.up()
    route = next(
        route.destination
        for route in lab.intent.machine("worker1").routes
        if route.via == lab.intent.machine("worker2").interfaces[0].addresses[0].partition("/")[0]
    )
    lab.guest("worker1").shell(f"ip route delete {route}")
    assert failed(lab.matrix(broken=True)) == {frozenset(("worker1", "worker2"))}


def test_a_node_asks_for_names_as_its_own_resolver_has_it(new_lab):
    """That of the services node: which is not there, so that nobody answers."""
    lab = new_lab("k8s-libvirt-1-1-1,compute.os=linux", only={"compute-01"})
    lab.up_one("compute-01")
    probe = Probe(0, "compute-01", "udp", "small", "192.0.2.1", 53, 1450, "a.test.")
    settings = ProbeSettings(timeout=0.5, in_flight=1)
    (found,) = lab.fleet.probe_all(lab.intent, [probe], settings, lambda _: None).values()
    assert found.status in {"timeout", "unreachable"}, found
    assert "asking 10.0.0.253 for 'a.test.'" in found.detail
