"""Every fault shows itself on its machine alone, and is undone whatever of it was done."""

from __future__ import annotations

from dataclasses import replace

import pytest
from netns_running import Running, scenario_intent
from observed_labs import differences

from lab.explain.faults import registry
from lab.explain.faults.registry import Fault, FaultSite
from lab.providers.netns.services import SERVICE_TABLE

pytestmark = pytest.mark.slow

FAULTS = registry.faults()
KINDS = ("overlay", "hard-way")


@pytest.fixture(scope="module", params=KINDS)
def running(request, bring_up):
    return bring_up(replace(scenario_intent(request.param), kubernetes=None), name=request.param)


@pytest.fixture(scope="module")
def services(bring_up):
    return bring_up(replace(scenario_intent("services"), kubernetes=None), name="services")


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
def test_a_fault_shows_itself_and_is_undone_however_far_it_got(running, name):
    fault = FAULTS[name]
    sites = registry.sites(fault, running.intent)
    if not sites:
        pytest.skip(f"it needs {fault.needs}")
    site = sites[-1]
    peer = site.peers[-1] if site.peers else ""
    change = fault.change(running.intent, site.node, peer)
    machines = dict.fromkeys((*concerned(fault, site), *nodes_of(running, (peer,))))

    running.run(change.undo)  # of nothing
    running.run(change.do)
    found = differences(running, *machines)
    assert site.node in {difference.node for difference in found}
    running.run(change.undo)
    running.run(change.undo)
    running.run(change.do[: len(change.do) // 2])
    running.run(change.undo)
    assert [str(difference) for difference in differences(running, *machines)] == []


def rules(running: Running, node: str) -> list[str]:
    """What the node translates, as it is listed; sets and maps keep no order."""
    listed = running.shell(node, f"nft --stateless list table ip {SERVICE_TABLE}")
    return sorted(listed.replace("}", ",").replace("{", ",").replace(",", "\n").split())


@pytest.mark.parametrize("name", ["service-backend-stale", "service-rules-missing"])
def test_every_node_has_its_own_rules_again(services, name):
    fault, made = FAULTS[name], services.provider.realised(services.intent)
    for site in registry.sites(fault, services.intent):
        before = rules(services, site.node)
        for peer in site.peers[-1:] or ("",):
            change = fault.change(made, site.node, peer)
            services.run(change.do)
            assert rules(services, site.node) != before
            services.run(change.undo)
            assert rules(services, site.node) == before


def test_a_pod_whose_link_is_up_again_has_its_route_again(bring_up):
    running = bring_up(scenario_intent("calico-bgp"), name="calico")
    fault = FAULTS["pod-link-down"]
    for site in registry.sites(fault, running.intent):
        change = fault.change(running.intent, site.node, site.peers[-1])
        running.run(change.do)
        running.run(change.undo)
        assert [str(difference) for difference in differences(running, site.node)] == []
