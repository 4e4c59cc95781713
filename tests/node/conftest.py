"""Labs on guests of namespaces, and a check that each leaves nothing behind."""

from collections.abc import Callable, Collection
from pathlib import Path

import pytest
from guest_world import World
from node_lab import NodeLab

from lab.lifecycle.compilation import compile_scenario
from lab.providers.netns import preflight
from lab.topology.intent import Interface


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = [item for item in items if item.path.parent == Path(__file__).parent]
    tried = preflight.try_abilities(tunnels=True) if here else ()
    missing = [one for one in tried if one.level != "ok"]
    for item in here if missing else []:
        why = f"this machine has no {missing[0].check}, {missing[0].seen}; {missing[0].hint}"
        item.add_marker(pytest.mark.skip(reason=why))


@pytest.fixture(scope="module")
def new_lab(mounts):
    mounted = mounts()
    worlds: list[World] = []

    def make(
        scenario: str,
        names: Callable[[Interface], str] = lambda one: one.name,
        only: Collection[str] | None = None,
    ) -> NodeLab:
        world = World()
        worlds.append(world)
        drawn = compile_scenario(scenario, only="linux", real=True)
        world.plug(drawn.intent, names, only)
        return NodeLab(drawn, world)

    yield make
    for world in worlds:
        world.end()
    assert not mounts() - mounted


@pytest.fixture(scope="module")
def overlay(new_lab):
    lab = new_lab("overlay")
    lab.up()
    return lab


@pytest.fixture
def lab(new_lab):
    return new_lab("overlay")


@pytest.fixture
def lone(new_lab):
    """One machine of the lab, for tests that need no other."""
    return new_lab("overlay", only={"worker1"})
