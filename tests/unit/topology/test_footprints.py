"""What network add-ons make on a node, where none is installed."""

from dataclasses import replace

import pytest
from shipped import bare_intent_of

from lab.explain.explainer import Explainer
from lab.topology import footprint as footprints
from lab.topology.footprint import Footprint, find_footprint
from lab.topology.intent import KubernetesIntent


@pytest.fixture
def no_addons(monkeypatch):
    monkeypatch.setattr(footprints, "network_addons", dict)


@pytest.mark.usefixtures("no_addons")
def test_a_topology_without_an_installed_add_on_has_no_footprint():
    assert find_footprint("overlay", "kubernetes") == Footprint()


@pytest.mark.usefixtures("no_addons")
def test_a_cluster_is_explained_without_its_add_on_installed():
    cluster = KubernetesIntent("1.36", "10.244.0.0/16", "10.96.0.0/12", "10.96.0.10")
    intent = replace(bare_intent_of("overlay"), kubernetes=cluster)
    assert Explainer(intent, {}).everything() == ()
