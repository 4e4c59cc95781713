"""Labs that virtual machines cannot have yet are refused by name, with what can be had."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lab._errors import PreflightError
from lab.cluster.addons.addon import addons
from lab.cluster.addons.calico import MOST_POOLS
from lab.cluster.linux.daemons import required_packages
from lab.imaging import recipes
from lab.lifecycle.compilation import compile_scenario
from lab.providers.machines.base import require_fit, require_packages, unfit
from lab.providers.provider import Pods
from lab.scenario.loader import shipped
from lab.topology.registry import topologies


@pytest.mark.parametrize("pods", ["namespaces", "kubernetes"])
@pytest.mark.parametrize("name", shipped())
def test_what_machines_cannot_have_is_ovn_without_a_cluster_and_a_cluster_without_an_add_on(
    name: str, pods: Pods
) -> None:
    intent = compile_scenario(name, "linux", None, pods, real=True).intent
    lacks = intent.topology == "ovn" if pods == "namespaces" else intent.topology not in addons()
    assert bool(unfit(intent)) == lacks


def test_the_refusal_says_why_and_what_can_be_had() -> None:
    with pytest.raises(PreflightError, match="need commands once they are ready") as raised:
        require_fit(compile_scenario("ovn", real=True).intent)
    assert raised.value.hint == "'--provider netns' brings it up in network namespaces"


def test_calico_has_no_more_pools_than_its_operator_takes() -> None:
    intent = compile_scenario("calico-vxlan", None, None, "kubernetes", real=True).intent
    one = intent.machine("worker1")
    many = tuple(replace(one, name=f"more{number}") for number in range(MOST_POOLS - 5))
    require_fit(replace(intent, machines=(*intent.machines, *many)))
    with pytest.raises(PreflightError, match="26 nodes that run pods") as raised:
        require_fit(replace(intent, machines=(*intent.machines, *many, one)))
    assert "'--pods namespaces'" in raised.value.hint


def test_an_image_without_the_daemons_is_named_with_its_packages() -> None:
    intent = compile_scenario("upstream-vrrp", None, None, "kubernetes", real=True).intent
    require_packages(intent, lambda _: ("bird2", "keepalived"))
    require_packages(intent, lambda _: None)  # of a vendor's image nobody knows
    with pytest.raises(PreflightError, match="'debian-12' lacks bird2, keepalived"):
        require_packages(intent, lambda _: ("haproxy",))


def test_a_kube_proxy_that_is_no_pod_asks_for_iptables_in_mode_iptables() -> None:
    for name, wanted in (("hard-way", {"iptables"}), ("overlay", set[str]())):
        intent = compile_scenario(name, "linux", None, "kubernetes", real=True).intent
        assert intent.kubernetes
        other = replace(intent, kubernetes=replace(intent.kubernetes, proxy_mode="iptables"))
        assert set[str]().union(*required_packages(other).values()) == wanted
        assert not required_packages(intent)
    hard_way = compile_scenario("hard-way", "linux", None, "kubernetes", real=True).intent
    assert hard_way.kubernetes
    mode = replace(hard_way.kubernetes, proxy_mode="iptables")
    with pytest.raises(PreflightError, match="'debian-12' lacks iptables"):
        require_packages(replace(hard_way, kubernetes=mode), recipe_packages)


def recipe_packages(image: str) -> tuple[str, ...]:
    bootstrap = recipes.load(image).bootstrap
    assert bootstrap
    return bootstrap.packages


@pytest.mark.parametrize("image", ["debian-12", "debian-13"])
@pytest.mark.parametrize("name", shipped())
def test_the_shipped_images_have_every_daemon_that_is_started_on_machines(
    name: str, image: str
) -> None:
    intent = compile_scenario(name, None, None, "kubernetes", real=True).intent
    recipe = recipes.load(image)
    assert recipe.bootstrap
    if not unfit(intent):
        require_packages(intent, lambda _: recipe.bootstrap.packages)


def test_every_topology_that_is_said_to_have_clusters_exists() -> None:
    assert set(topologies()) >= set(addons())
