import subprocess

import pytest
from api_names import IMAGES, SAME, SECONDS, clear
from control_plane import ControlPlane, free_ports
from dns_server import Dns
from fake_kubelets import FakeKubelets, make_nodes
from kubernetes_programs import HOW, programs

from lab._deadline import Deadline
from lab.lifecycle.compilation import compile_scenario
from lab.machines.cluster.api import Api
from lab.machines.cluster.dns import corefile
from lab.machines.cluster.probe_manifests import ObjectOwner
from lab.machines.cluster.probe_pods import ProbePods


@pytest.fixture(scope="session")
def drawn():
    """Two Linux nodes and two Windows ones, a pod or two on each."""
    return compile_scenario("overlay")


@pytest.fixture(scope="session")
def plane(drawn, tmp_path_factory):
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
def api(plane):
    api = Api(plane.kubeconfig)
    yield api
    api.close()


@pytest.fixture(scope="module")
def all_kubelets(plane, drawn):
    """Fake kubelets for one module: other tests in this process count threads and descriptors."""
    own = Api(plane.kubeconfig)
    kubelets = FakeKubelets(own, drawn.intent)
    kubelets.start()
    yield kubelets
    kubelets.end()
    own.close()


@pytest.fixture
def kubelets(all_kubelets):
    """The kubelets, reset after each test."""
    yield all_kubelets
    all_kubelets.behave()
    all_kubelets.check()


@pytest.fixture
def new_pods(api, drawn, kubelets):
    """Creates the probe pods of a run; pods and Services are deleted after the test."""

    def new(lab: str = "overlay", token: str = SAME) -> ProbePods:
        return ProbePods(api, drawn.intent, ObjectOwner(lab, token), IMAGES)

    yield new
    kubelets.idle.clear()
    clear(api)


@pytest.fixture(scope="module")
def deployed(plane, drawn, all_kubelets):
    """Probe pods that the tests of a module do not change."""
    api = Api(plane.kubeconfig)
    all_kubelets.check()
    pods = ProbePods(api, drawn.intent, ObjectOwner("overlay", SAME), IMAGES)
    pods.deploy(Deadline(SECONDS))
    yield pods
    clear(api)
    api.close()


@pytest.fixture
def dns(plane, drawn, tmp_path):
    found = programs("coredns")
    if found is None:
        pytest.skip(f"there is no CoreDNS: {HOW}")
    port, health = free_ports(2)
    text = corefile(drawn.plan.domain)
    for written, here in (
        (":53", f":{port}"),
        ("health {", f"health 127.0.0.1:{health} {{"),
        ("ready", "ready 127.0.0.1:0"),
        ("pods insecure", f"pods insecure\n        kubeconfig {plane.kubeconfig} it"),
    ):
        assert written in text
        text = text.replace(written, here)
    (tmp_path / "Corefile").write_text(text)
    log = tmp_path / "log"
    with log.open("ab") as output:
        process = subprocess.Popen(
            [str(found / "coredns"), "-conf", str(tmp_path / "Corefile")],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    yield Dns(port, log)
    process.kill()
    process.wait()
