from __future__ import annotations

from collections.abc import Iterator

import pytest
from api_names import IMAGES, SAME, NewPods
from control_plane import ControlPlane
from fake_kubelets import CALL, FakeKubelets, make_nodes
from kubernetes_programs import HOW, programs

from lab._deadline import Deadline
from lab.cluster.api import Api, namespaced
from lab.cluster.labels import NAMESPACE
from lab.cluster.probe_manifests import Owner
from lab.cluster.probe_pods import ProbePods
from lab.lifecycle.blueprint import Blueprint, draw


@pytest.fixture(scope="session")
def drawn() -> Blueprint:
    """Two Linux nodes and two Windows ones, a pod or two on each."""
    return draw("overlay")


@pytest.fixture(scope="session")
def plane(drawn: Blueprint, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    pytest.importorskip("kubernetes")
    found = programs("etcd", "kube-apiserver", "kube-controller-manager")
    if found is None:
        pytest.skip(f"there is no kube-apiserver: {HOW}")
    plane = ControlPlane(tmp_path_factory.mktemp("plane"), found)
    try:
        plane.start()
        api = Api(plane.kubeconfig)
        make_nodes(api, drawn.intent)
        api.close()
        yield plane
    finally:
        plane.end()


@pytest.fixture
def api(plane: ControlPlane) -> Iterator[Api]:
    api = Api(plane.kubeconfig)
    yield api
    api.close()


@pytest.fixture
def kubelets(plane: ControlPlane, drawn: Blueprint) -> Iterator[FakeKubelets]:
    own = Api(plane.kubeconfig)
    kubelets = FakeKubelets(own, drawn.intent)
    kubelets.start()
    yield kubelets
    kubelets.end()
    own.close()


@pytest.fixture
def new_pods(api: Api, drawn: Blueprint, kubelets: FakeKubelets) -> Iterator[NewPods]:
    """Makes the probe pods of a run; pods and Services are gone when the test ends."""

    def new(lab: str = "overlay", token: str = SAME) -> ProbePods:
        return ProbePods(api, drawn.intent, Owner(lab, token), IMAGES)

    yield new
    kubelets.idle.clear()
    for kind in ("pods", "services"):
        path = namespaced(kind, NAMESPACE)
        for name in api.listing(path, Deadline(CALL)).objects:
            api.remove(f"{path}/{name}", Deadline(CALL))
