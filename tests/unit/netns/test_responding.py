"""What the responder is told to answer, what it passes on, and the pods' resolver files."""

import json
import socket
from dataclasses import replace

import pytest
from netns_intents import cluster

from lab.lifecycle.compilation import compile_scenario
from lab.providers.netns import dns, protocol, responder, socket_server
from lab.providers.netns.compile import configuration
from lab.providers.netns.namespaces import resolver_text
from lab.scenario.terms import ServicePort
from lab.topology.intent import Backend, HeadlessService, MachineIntent, ProxiedService, Resolver


def test_pods_nodes_and_client_answer_and_the_router_does_not():
    told = json.loads(configuration(cluster(linux=1, windows=0, pods=1)))
    assert [one["namespace"] for one in told] == ["worker1", "worker1-p1", "client"]
    assert told[0] == {
        "namespace": "worker1",
        "name": "worker1",
        "tcp": [8080],
        "udp": [8080],
        "dns": None,
        "health": None,
        "forward": None,
    }


def test_an_api_server_is_answered_for_unless_it_is_kubernetes_own():
    for pods, planes in (("namespaces", 3), ("kubernetes", 0)):
        told = json.loads(configuration(compile_scenario("kubeinit", pods=pods, real=True).intent))
        answers = [one["namespace"] for one in told if 6443 in one["tcp"]]
        assert answers == [f"controller-0{number}" for number in range(1, planes + 1)]


def test_the_dns_pod_serves_every_services_name():
    intent = cluster(linux=1, windows=0, pods=1)
    node = intent.machines[0]
    assert node.translation
    dns = ProxiedService("kube-dns", "10.96.0.10", (), ())
    services = (*node.translation.services, dns)
    node = replace(
        node,
        pods=(replace(node.pods[0], role="dns"),),
        translation=replace(node.translation, services=services),
    )
    told = json.loads(configuration(replace(intent, machines=(node, *intent.machines[1:]))))
    assert told[1]["tcp"] == told[1]["udp"] == []
    assert told[1]["dns"] == {
        "to-worker1-p1.default.svc.cluster.local.": ["10.96.0.20"],
        "shared.default.svc.cluster.local.": ["10.96.200.1"],
        "empty.default.svc.cluster.local.": ["10.96.200.2"],
        "kube-dns.kube-system.svc.cluster.local.": ["10.96.0.10"],
    }


def test_a_headless_name_stands_for_its_pods_and_each_pod_has_a_name_in_it():
    intent = cluster(linux=1, windows=0, pods=2)
    node = intent.machines[0]
    behind = tuple(Backend(pod.name, pod.address.partition("/")[0], "worker1") for pod in node.pods)
    node = replace(node, pods=(*node.pods, replace(node.pods[0], name="dns", role="dns")))
    intent = replace(
        intent,
        machines=(node, *intent.machines[1:]),
        headless=(HeadlessService("by-name", behind),),
    )
    served = json.loads(configuration(intent))[3]["dns"]
    name = "by-name.default.svc.cluster.local."
    assert served[name] == [backend.address for backend in behind]
    assert served[f"worker1-p2.{name}"] == [behind[1].address]


def test_pods_answer_on_a_second_port_and_nodes_for_their_health_where_a_service_asks():
    intent = cluster(linux=2, windows=0, pods=1)
    port = ServicePort("admin", ("tcp",), 8443, 8081, None)
    machines = tuple(_asking(machine, port) for machine in intent.machines)
    told = json.loads(configuration(replace(intent, machines=machines)))
    second = [one for one in told if one["tcp"] == [8081]]
    assert [(one["namespace"], one["name"]) for one in second] == [
        ("worker1-p1", "worker1-p1:8081")
    ]
    assert [one["health"] for one in told if one["health"]] == [
        {"32000": ["to-worker1-p1", 1]},
        {"32000": ["to-worker1-p1", 0]},
    ]


def _asking(machine: MachineIntent, port: ServicePort) -> MachineIntent:
    """With its first Service alone, which has a further port and a health check."""
    if machine.translation is None:
        return machine
    first = machine.translation.services[0]
    service = replace(first, ports=(*first.ports, port), health_port=32000)
    return replace(machine, translation=replace(machine.translation, services=(service,)))


def test_a_resolver_file():
    assert resolver_text(Resolver("10.96.0.10", ("a.b", "b"), 5)) == (
        "nameserver 10.96.0.10\nsearch a.b b\noptions ndots:5\n"
    )
    assert (
        resolver_text(Resolver("10.96.0.10", (), 1)) == "nameserver 10.96.0.10\noptions ndots:1\n"
    )


RECORDS = {"to-a.default.svc.cluster.local.": ["10.96.0.20"]}


@pytest.fixture
def pair():
    """The forwarder's socket, and the other server's."""
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as own,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other,
    ):
        other.bind(("127.0.0.1", 0))
        other.settimeout(5)
        own.connect(other.getsockname())
        yield own, other


def answered(question: bytes, address: str) -> bytes:
    name = dns.asked_name(question)
    assert name
    reply = dns.answer_question(question, {name: [address]})
    assert reply
    return reply


def test_answers_find_their_questions_in_whatever_order_they_come(pair):
    own, other = pair
    forwarder = dns.Forwarder(own)
    heard: dict[str, str | None] = {}
    for name in ("a.lab.", "b.lab."):

        def then(wire: bytes, name: str = name) -> None:
            heard[name] = dns.read_answer(wire, name, 7)

        forwarder.ask(dns.make_question(name, 7), then)
    datagrams = [other.recvfrom(512) for _ in range(2)]
    for wire, sender in reversed(datagrams):
        last = "1" if dns.asked_name(wire) == "a.lab." else "2"
        other.sendto(answered(wire, f"10.0.0.{last}"), sender)
    for _ in datagrams:
        forwarder.hear()
    assert heard == {"a.lab.": "10.0.0.1", "b.lab.": "10.0.0.2"}


def test_a_query_to_a_closed_server_is_answered_with_servfail(pair):
    own, other = pair
    other.close()
    forwarder = dns.Forwarder(own)
    heard: list[bytes] = []
    forwarder.ask(dns.make_question("a.lab.", 7), heard.append)
    forwarder.hear()
    assert len(heard) == 1
    with pytest.raises(protocol.WireError, match="SERVFAIL"):
        dns.read_answer(heard[0], "a.lab.", 7)


def test_the_oldest_question_gives_way_and_its_late_answer_is_dropped(pair, monkeypatch):
    own, other = pair
    monkeypatch.setattr(dns, "WAITING_LIMIT", 1)
    forwarder = dns.Forwarder(own)
    heard: list[str] = []
    forwarder.ask(dns.make_question("a.lab.", 7), lambda _: heard.append("a"))
    forwarder.ask(dns.make_question("b.lab.", 7), lambda _: heard.append("b"))
    for _ in range(2):
        wire, sender = other.recvfrom(512)
        other.sendto(answered(wire, "10.0.0.1"), sender)
        forwarder.hear()
    assert heard == ["b"]


@pytest.mark.parametrize(
    ("name", "elsewhere"),
    [
        ("controller-01.k8scluster.kubeinit.local.", True),
        ("to-a.default.svc.cluster.local.", False),
        ("nothing.cluster.local.", False),
        ("cluster.local.", False),
        ("mycluster.local.", True),
        ("to-a.default.", True),
    ],
)
def test_only_what_is_not_the_clusters_is_asked_elsewhere(name, *, elsewhere):
    asked: list[bytes] = []
    other = responder.Elsewhere(lambda wire, _then: asked.append(wire), "cluster.local.")
    said = responder.dns_datagram(RECORDS, other)(dns.make_question(name, 7), b"10.0.0.1:53")
    assert isinstance(said, socket_server.Later) == elsewhere
    if isinstance(said, socket_server.Later):
        said.begin(lambda _: None)
        assert asked == [dns.make_question(name, 7)]


def test_what_is_no_question_is_asked_nowhere():
    other = responder.Elsewhere(lambda _wire, _then: pytest.fail("asked"), "cluster.local.")
    for wire in (b"", b"\0" * 11, dns.make_question("a.lab.", 7)[:-3], b"\xff" * 40):
        said = responder.dns_datagram(RECORDS, other)(wire, b"10.0.0.1:53")
        assert not isinstance(said, socket_server.Later)
