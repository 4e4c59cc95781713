"""Labs that virtual machines cannot have yet are refused by name, with what can be had."""

from __future__ import annotations

import pytest

from lab._errors import PreflightError
from lab.lifecycle.blueprint import draw
from lab.providers.libvirt.fitness import WITH_CLUSTER, require_fit, unfit
from lab.providers.provider import Pods
from lab.scenario.loader import shipped
from lab.topology.registry import topologies


@pytest.mark.parametrize("pods", ["namespaces", "kubernetes"])
@pytest.mark.parametrize("name", shipped())
def test_topologies_with_daemons_and_clusters_without_an_addon_are_refused(
    name: str, pods: Pods
) -> None:
    intent = draw(name, "linux", None, pods).intent
    daemons = any(machine.daemons for machine in intent.machines)
    no_addon = pods == "kubernetes" and intent.topology not in WITH_CLUSTER
    assert bool(unfit(intent)) == (daemons or no_addon)


def test_the_refusal_says_why_and_what_can_be_had() -> None:
    with pytest.raises(PreflightError) as raised:
        require_fit(draw("calico-bgp").intent)
    assert "topology 'calico-bgp' has bird on its machines" in str(raised.value)
    assert raised.value.cure == "'--provider netns' brings it up in network namespaces"
    with pytest.raises(PreflightError, match="no bundle has the network add-on") as raised:
        require_fit(draw("calico-vxlan", None, None, "kubernetes").intent)
    assert "'--pods namespaces'" in raised.value.cure
    require_fit(draw("calico-vxlan").intent)


def test_every_topology_that_is_said_to_have_clusters_exists() -> None:
    assert set(topologies()) >= WITH_CLUSTER
