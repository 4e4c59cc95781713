"""What the responder is told to answer, and the pods' resolver files."""

import json
from dataclasses import replace

from netns_intents import cluster

from lab.lifecycle.compilation import compile_scenario
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
    assert served[name] == [one.address for one in behind]
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
    asked = replace(first, ports=(*first.ports, port), health_port=32000)
    return replace(machine, translation=replace(machine.translation, services=(asked,)))


def test_a_resolver_file():
    assert resolver_text(Resolver("10.96.0.10", ("a.b", "b"), 5)) == (
        "nameserver 10.96.0.10\nsearch a.b b\noptions ndots:5\n"
    )
    assert (
        resolver_text(Resolver("10.96.0.10", (), 1)) == "nameserver 10.96.0.10\noptions ndots:1\n"
    )
