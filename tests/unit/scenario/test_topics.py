"""What the field has and a lab does not is answered by name; typing mistakes are not."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from lab.matrix.cells import families
from lab.scenario import validation
from lab.scenario.findings import did_you_mean
from lab.scenario.topics import TOPICS, topic_of, words
from lab.topology.registry import schemas

WRITTEN = {
    "calico-ipip": "IP-in-IP",
    "IPIPCrossSubnet": "IP-in-IP",
    "ip_in_ip": "IP-in-IP",
    "ipvs": "IPVS",
    "kube-proxy-IPVS": "IPVS",
    "WireGuard": "encryption between nodes",
    "ip_pools": "a second pod range",
    "ipPools": "a second pod range",
    "routeReflectors": "a BGP route reflector",
    "route-reflector": "a BGP route reflector",
    "externalEtcd": "external etcd",
    "racks": "a routed underlay",
    "LoadBalancer": "a Service of type LoadBalancer",
    "load_balancer_ip": "a Service of type LoadBalancer",
    "metallb": "a Service of type LoadBalancer",
    "externalIPs": "a Service with externalIPs",
    "external_ips": "a Service with externalIPs",
    "hostNetwork": "a pod on the host's network",
    "hostPort": "a pod on the host's network",
    "NodeLocalDNS": "NodeLocal DNSCache",
    "network_policies": "NetworkPolicy",
    "networkPolicy": "NetworkPolicy",
    "dualStack": "IPv6 or dual stack",
    "ipFamilies": "IPv6 or dual stack",
    "enable_ipv6": "IPv6 or dual stack",
    "conntrack": "",
    "host-gateway": "",
}


@pytest.mark.parametrize(("word", "name"), WRITTEN.items())
def test_a_word_of_the_field_has_its_topic(word, name):
    topic = topic_of(word)
    assert (topic.name if topic else "") == name


def known_words() -> Iterator[str]:
    """Every key and every word among the values of the schema of scenario files."""
    pending: list[object] = [validation.schema(schemas())]
    while pending:
        node = pending.pop()
        if isinstance(node, list):
            pending += node
        elif isinstance(node, dict):
            yield from node.get("properties", {})
            yield from (str(word) for word in (*node.get("enum", ()), node.get("const", "")))
            pending += node.values()


def mistyped(word: str) -> Iterator[str]:
    """The word with one letter left out, doubled, or exchanged with the next."""
    for place in range(len(word)):
        yield word[:place] + word[place + 1 :]
        yield word[:place] + word[place] + word[place:]
        yield word[:place] + word[place : place + 2][::-1] + word[place + 2 :]


def test_a_known_word_mistyped_is_no_topic():
    known = {word for word in known_words() if word}
    assert {"pod_cidr", "calico-vxlan", "nftables", "cluster-ip-local"} <= known
    topics = {
        written: topic.name
        for word in known
        for written in (word, *mistyped(word))
        if (topic := topic_of(written))
    }
    assert topics == {}


def test_words_are_recognised_however_they_are_joined():
    forms = ("externalIPs", "external_ips", "external-ips", "External IPs")
    assert {words(form) for form in forms} == {"external-ips"}


@pytest.mark.parametrize("topic", TOPICS, ids=lambda topic: topic.name)
def test_what_is_nearest_exists(topic):
    known = {*known_words(), *families()}
    for written in re.findall(r'"([^"]+)"', topic.nearest):
        key, *value = re.findall(r"[a-z_-]+", written.rpartition(".")[2])
        assert {key, *value} - {"true"} <= known, written


def test_a_topic_goes_before_what_is_spelt_alike():
    assert "IP-in-IP" in did_you_mean("calico-ipip", ("calico-bgp",), "")
    assert did_you_mean("calico-bpg", ("calico-bgp",), "") == 'did you mean "calico-bgp"?'
    assert "LoadBalancer" in did_you_mean("type", (), "", "LoadBalancer")
