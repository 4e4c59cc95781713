"""What the responder is told to answer, and the pods' resolver files."""

from __future__ import annotations

import json
from dataclasses import replace

from netns_intents import cluster

from lab.providers.netns.resolvers import text
from lab.providers.netns.responding import configuration
from lab.topology.intent import Resolver, Service


def test_pods_nodes_and_client_answer_and_the_router_does_not() -> None:
    told = json.loads(configuration(cluster(linux=1, windows=0, pods=1)))
    assert [one["namespace"] for one in told] == ["worker1", "worker1-p1", "client"]
    assert told[0] == {
        "namespace": "worker1",
        "name": "worker1",
        "tcp": [8080],
        "udp": [8080],
        "dns": None,
    }


def test_the_dns_pod_serves_every_services_name() -> None:
    intent = cluster(linux=1, windows=0, pods=1)
    node = intent.machines[0]
    assert node.translation
    dns = Service("kube-dns", "10.96.0.10", 53, None, ())
    services = (*node.translation.services, dns)
    node = replace(
        node,
        pods=(replace(node.pods[0], role="dns"),),
        translation=replace(node.translation, services=services),
    )
    told = json.loads(configuration(replace(intent, machines=(node, *intent.machines[1:]))))
    assert told[1]["tcp"] == told[1]["udp"] == []
    assert told[1]["dns"] == {
        "to-worker1-p1.default.svc.cluster.local.": "10.96.0.20",
        "shared.default.svc.cluster.local.": "10.96.200.1",
        "empty.default.svc.cluster.local.": "10.96.200.2",
        "kube-dns.kube-system.svc.cluster.local.": "10.96.0.10",
    }


def test_a_resolver_file() -> None:
    assert text(Resolver("10.96.0.10", ("a.b", "b"), 5)) == (
        "nameserver 10.96.0.10\nsearch a.b b\noptions ndots:5\n"
    )
    assert text(Resolver("10.96.0.10", (), 1)) == "nameserver 10.96.0.10\noptions ndots:1\n"
