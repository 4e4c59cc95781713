"""Every fault shows itself on its machine alone, and is undone whatever of it was done."""

from __future__ import annotations

from dataclasses import replace

import pytest
from netns_running import BringUp, Running, scenario_intent
from observed_labs import differences

from lab._deadline import Deadline
from lab.explain.faults import registry
from lab.explain.faults.registry import Fault, FaultCommand, FaultSite
from lab.lifecycle.faults import batches, script
from lab.providers.netns.services import SERVICE_TABLE

pytestmark = pytest.mark.slow

FAULTS = registry.faults()
KINDS = ("overlay", "hard-way")


@pytest.fixture(scope="module", params=KINDS)
def running(request: pytest.FixtureRequest, bring_up: BringUp) -> Running:
    return bring_up(replace(scenario_intent(request.param), kubernetes=None), name=request.param)


@pytest.fixture(scope="module")
def services(bring_up: BringUp) -> Running:
    return bring_up(replace(scenario_intent("services"), kubernetes=None), name="services")


def run(running: Running, commands: tuple[FaultCommand, ...]) -> None:
    for place, lines in batches(commands):
        machine = running.provider.machine(running.lab, running.intent, place)
        done = machine.run(("sh", "-c", script(lines)), Deadline(30))
        assert done.code == 0, done


def concerned(fault: Fault, site: FaultSite) -> tuple[str, ...]:
    """The machines that may show it: its own, and a peer that is a node."""
    return (site.node, *site.peers[-1:]) if fault.peer == "node" else (site.node,)


def nodes_of(running: Running, peers: tuple[str, ...]) -> tuple[str, ...]:
    """The machines on which those pods stand."""
    return tuple(
        machine.name
        for machine in running.intent.machines
        if {pod.name for pod in machine.pods} & set(peers)
    )


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_shows_itself_and_is_undone_however_far_it_got(running: Running, name: str) -> None:
    fault = FAULTS[name]
    sites = registry.sites(fault, running.intent)
    if not sites:
        pytest.skip(f"it needs {fault.needs}")
    site = sites[-1]
    peer = site.peers[-1] if site.peers else ""
    change = fault.change(running.intent, site.node, peer)
    machines = dict.fromkeys((*concerned(fault, site), *nodes_of(running, (peer,))))

    run(running, change.undo)  # of nothing
    run(running, change.do)
    found = differences(running, *machines)
    assert site.node in {one.node for one in found}
    run(running, change.undo)
    run(running, change.undo)
    run(running, change.do[: len(change.do) // 2])
    run(running, change.undo)
    assert [str(one) for one in differences(running, *machines)] == []


def rules(running: Running, node: str) -> list[str]:
    """What the node translates, as it is listed; sets and maps keep no order."""
    machine = running.provider.machine(running.lab, running.intent, node)
    listed = machine.run(("nft", "--stateless", "list", "table", "ip", SERVICE_TABLE), Deadline(30))
    assert listed.code == 0, listed
    return sorted(listed.stdout.replace("}", ",").replace("{", ",").replace(",", "\n").split())


@pytest.mark.parametrize("name", ["service-backend-stale", "service-rules-missing"])
def test_every_node_has_its_own_rules_again(services: Running, name: str) -> None:
    fault, made = FAULTS[name], services.provider.realised(services.intent)
    for site in registry.sites(fault, services.intent):
        before = rules(services, site.node)
        for peer in site.peers[-1:] or ("",):
            change = fault.change(made, site.node, peer)
            run(services, change.do)
            assert rules(services, site.node) != before
            run(services, change.undo)
            assert rules(services, site.node) == before


def test_a_pod_whose_link_is_up_again_has_its_route_again(bring_up: BringUp) -> None:
    running = bring_up(scenario_intent("calico-bgp"), name="calico")
    fault = FAULTS["pod-link-down"]
    for site in registry.sites(fault, running.intent):
        change = fault.change(running.intent, site.node, site.peers[-1])
        run(running, change.do)
        run(running, change.undo)
        assert [str(one) for one in differences(running, site.node)] == []
