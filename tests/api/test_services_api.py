"""Special Services on a real API server, with the real kube-proxy and the real CoreDNS.

Nodes, scheduler and kubelets are the tests' own; each kube-proxy is alone in a namespace.
"""

import os
from pathlib import Path
from typing import Any

import pytest
from api_names import IMAGES, SAME, SECONDS, clear
from fake_kubelets import CALL
from kubernetes_programs import HOW, image, programs
from proxied_node import ProxiedNode

from lab._deadline import Deadline
from lab.explain.check import Look
from lab.explain.checks.services import ServicesCheck
from lab.lifecycle.compilation import compile_scenario
from lab.machines.addons.bridges import ADDON as BRIDGES
from lab.machines.bundle.manifest import Manifest
from lab.machines.cluster.api import Api, make_namespaced_path
from lab.machines.cluster.cluster import plan_cluster
from lab.machines.cluster.kubeadm import kube_proxy_config
from lab.machines.cluster.probe_manifests import ObjectOwner, backends
from lab.machines.cluster.probe_pods import ProbePods
from lab.matrix.cells import cells, counts
from lab.providers.netns import dialects
from lab.topology.intent import Intent
from lab.topology.observed import NAMESPACE

pytestmark = pytest.mark.slow

BUNDLE = Manifest((("kubernetes", "1.36.3"),), (), ())
OWN = f"/api/v1/namespaces/{NAMESPACE}"


@pytest.fixture(scope="module")
def special():
    return compile_scenario("services", pods="kubernetes")


@pytest.fixture(scope="module")
def bound(special, plane, all_kubelets):
    """The probe pods and Services of the scenario, on the cluster."""
    api = Api(plane.kubeconfig)
    all_kubelets.check()
    pods = ProbePods(api, special.intent, ObjectOwner("overlay", SAME), IMAGES)
    pods.deploy(Deadline(SECONDS))
    yield pods.bound(Deadline(SECONDS))
    clear(api)
    api.close()


def ends(api: Api, name: str) -> dict[str, set[tuple[int | None, str | None]]]:
    """Pods of a Service's EndpointSlices, each with the ports that it is there for."""
    query = {"labelSelector": f"kubernetes.io/service-name={name}"}
    path = make_namespaced_path("endpointslices", NAMESPACE)
    found: dict[str, set[tuple[int | None, str | None]]] = {}
    for one in api.listing(path, Deadline(CALL), query).objects.values():
        ports = one.get("ports") or [{}]
        for end in one.get("endpoints") or ():
            known = found.setdefault(end["targetRef"]["name"], set())
            known.update((port.get("port"), port.get("protocol")) for port in ports)
    return found


def test_the_matrix_of_a_cluster_has_the_cells_that_the_plan_has(special, bound):
    assert counts(cells(special.plan, bound)) == counts(cells(special.plan, special.intent))


def test_endpoint_slices_are_as_the_intent_has_them(api, bound):
    for name, pods in backends(bound).items():
        assert set(ends(api, name)) == pods, name
    assert ends(api, "shop") == {"worker2-p1": {(8080, "TCP"), (8080, "UDP"), (8081, "TCP")}}
    assert ends(api, "nobody") == {}


def test_a_headless_name_is_answered_with_every_pod_by_the_real_coredns(dns, special, bound):
    (service,) = bound.headless
    name = f"{service.name}.{NAMESPACE}.svc.{special.plan.domain}."
    wanted = {backend.address for backend in service.backends}
    assert set(str(dns.once_known(name).address).split(", ")) == wanted
    for backend in service.backends:
        assert dns.once_known(f"{backend.pod}.{name}").address == backend.address
    assert dns.ask(f"worker1-p2.{name}").address is None


@pytest.fixture
def proxied(plane, special, tmp_path):
    folder = programs("kube-proxy")
    if folder is None:
        pytest.skip(f"there is no kube-proxy: {HOW}")
    if os.geteuid() != 0:
        pytest.skip("kube-proxy needs a network namespace of root's")
    started: list[ProxiedNode] = []

    def start(node: str, root: Path | None = None) -> ProxiedNode:
        made: dict[str, Any] = dict(
            kube_proxy_config(plan_cluster("services", special.intent, BUNDLE))
        )
        planned = special.plan.node(node)
        started.append(ProxiedNode(plane, root or folder / "kube-proxy", planned, made, tmp_path))
        return started[-1]

    yield start
    for proxied_node in started:
        proxied_node.end()


_OTHERS = ("packets of ", "Service kube-dns, ")


def different(node: ProxiedNode, name: str, bound: Intent) -> list[str]:
    """What differs of Services; DNS and who masquerades what leaves are of other add-ons."""
    look = Look(bound.machine(name), node.seen(), "kubernetes", BRIDGES.footprint)
    return [
        f"{difference.node}: {difference.object}: {difference.observed}; fix: {difference.mends}"
        for difference in ServicesCheck().on_machine(look)
        if not difference.object.startswith(_OTHERS)
    ]


def wait_for_rules(node: ProxiedNode, name: str, bound: Intent) -> None:
    Deadline(SECONDS).wait(
        f"waiting until kube-proxy of {name} has written its rules",
        lambda: different(node, name, bound)[:3],
        until=lambda left: not left,
        every=0.5,
    )


@pytest.mark.parametrize("name", ["worker1", "worker2"])
def test_the_real_kube_proxy_makes_of_them_what_the_lab_intends(name, proxied, bound):
    node = proxied(name)
    wait_for_rules(node, name, bound)
    found = {
        (service.protocol, service.address, service.port): service
        for service in node.seen().translations.services
    }
    near = found["tcp", None, 30012]
    assert (len(near.backends), near.lost) == ((1, False) if name == "worker1" else (0, True))
    assert (near.kept, len(near.own or ())) == (True, 1)
    question = dialects.health_web("10.9.176.11", 30013)
    reply = question.read(node.asked(30013, question.request))
    assert reply
    assert dialects.health_backends(reply) == ("1" if name == "worker1" else "0")


@pytest.fixture
def root(tmp_path):
    """The files of kube-proxy's image."""
    path = image("kube-proxy", tmp_path / "root")
    if path is None:
        pytest.skip(f"there is no image of kube-proxy: {HOW}")
    return path


def start_again(node: ProxiedNode) -> None:
    """Once it returns, kube-proxy has taken away what it does not know."""
    node.stop()
    stray = "10.111.111.111 . tcp . 9"
    node.nft(
        "add", "element", "ip", "kube-proxy", "service-ips", f"{{ {stray} : goto reject-chain }}"
    )
    node.start_again()
    Deadline(SECONDS).wait(
        "waiting for kube-proxy's first work",
        lambda: [service for service in node.seen().translations.services if service.port == 9],
        until=lambda strays: not strays,
    )


def test_a_kube_proxy_that_starts_again_keeps_every_service(proxied, root, bound):
    node = proxied("worker2", root)
    wait_for_rules(node, "worker2", bound)
    start_again(node)
    assert different(node, "worker2", bound) == []


def test_services_emptied_by_kube_proxy_are_reported_with_the_fix(proxied, root, bound):
    """It does so where it finds no names of protocols."""
    (root / "etc/protocols").unlink(missing_ok=True)
    node = proxied("worker2", root)
    wait_for_rules(node, "worker2", bound)
    start_again(node)
    (said,) = different(node, "worker2", bound)
    assert "worker2: Services: none of them: kube-proxy has chains for them, but" in said
    assert "/etc/protocols" in said
    assert said.endswith("; fix: pkill -x kube-proxy")
    node.stop()
    node.start_again()
    wait_for_rules(node, "worker2", bound)


@pytest.mark.usefixtures("bound")
def test_endpoints_that_come_and_go_are_followed(api, proxied):
    node = proxied("worker2")
    key = ("tcp", "10.96.0.32", 80)

    def told() -> object:
        found = {
            (service.protocol, service.address, service.port): service
            for service in node.seen().translations.services
        }
        return (len(found[key].backends), found[key].lost) if key in found else None

    def wait_for(wanted: tuple[int, bool]) -> None:
        Deadline(SECONDS).wait("waiting for the rules", told, until=lambda now: now == wanted)

    wait_for((1, False))
    label = "service.hybridlab.io/near-linux"
    pod = api.ask("GET", f"{OWN}/pods/worker1-p1", Deadline(CALL))
    (own,) = [label for label in pod["metadata"]["labels"] if label.endswith("/near-linux")]
    assert label.rpartition("/")[2] in own
    for value, wanted in (("gone", (0, False)), ("backend", (1, False))):
        pod = api.ask("GET", f"{OWN}/pods/worker1-p1", Deadline(CALL))
        pod["metadata"]["labels"][own] = value
        api.ask("PUT", f"{OWN}/pods/worker1-p1", Deadline(CALL), pod)
        wait_for(wanted)
