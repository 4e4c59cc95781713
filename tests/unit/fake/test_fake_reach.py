"""The provider in memory: what it lets through, and what every provider does."""

from dataclasses import replace
from typing import Any

import pytest
import small_lab
from provider_contract import ProviderContract

from lab.providers.fake.provider import FakeProvider, outcome
from lab.providers.provider import Outcome, Probe
from lab.topology.intent import Drop, Intent, Resolver


def with_windows_rules(intent: Intent) -> Intent:
    """The Intent whose Windows node drops what it sends to Services, and whose pods ask once."""
    node = intent.machine("win1")
    drop = Drop("windows-node-to-service", ("10.96.0.0/12",), None, ("10.96.0.10/32",))
    asks_once = Resolver("10.96.0.10", ("default.svc.cluster.local",), 1)
    pods = tuple(replace(pod, resolver=asks_once) for pod in node.pods)
    ruled = replace(node, drops=(drop,), pods=pods)
    machines = tuple(ruled if one.name == "win1" else one for one in intent.machines)
    return replace(intent, machines=machines)


INTENT = with_windows_rules(small_lab.intent())
VIP = {"worker1-p1": "10.96.0.20", "worker1-p2": "10.96.0.21", "win1-p1": "10.96.0.22"}
WORKER, WIN, CLIENT = "10.9.176.10", "10.9.176.11", "198.51.100.10"


def tried(asked: Probe, dead: frozenset[str] = frozenset()) -> Outcome:
    return outcome(INTENT, INTENT.places(), asked, dead)


def probe(source: str, address: str = "", port: int = 8080, **more: Any) -> Probe:
    return Probe(1, source, "tcp", "small", address, port, 1450, **more)


@pytest.mark.parametrize(
    ("source", "address", "port", "backend", "seen"),
    [
        pytest.param("worker1-p1", "10.244.0.5", 8080, "worker1-p2", "10.244.0.4", id="same-node"),
        pytest.param("worker1-p1", "10.244.1.4", 8080, "win1-p1", "10.244.0.4", id="other-node"),
        pytest.param("worker1-p1", VIP["win1-p1"], 80, "win1-p1", "10.244.0.4", id="service"),
        pytest.param("worker1-p1", VIP["worker1-p1"], 80, "worker1-p1", "10.244.0.1", id="hairpin"),
        pytest.param("worker1", VIP["worker1-p1"], 80, "worker1-p1", "10.244.0.1", id="node-local"),
        pytest.param("worker1", VIP["win1-p1"], 80, "win1-p1", "10.244.0.0", id="node-remote"),
        pytest.param("worker1", "10.244.1.4", 8080, "win1-p1", "10.244.0.0", id="node-pod"),
        pytest.param("worker1-p1", WORKER, 8080, "worker1", "10.244.0.4", id="pod-own-node"),
        pytest.param("worker1-p1", WIN, 8080, "win1", WORKER, id="pod-other-node"),
        pytest.param("win1-p1", CLIENT, 8080, "client", WIN, id="pod-external"),
        pytest.param("client", WORKER, 30002, "win1-p1", "10.244.0.0", id="nodeport-outside"),
        pytest.param("win1-p1", WORKER, 30000, "worker1-p1", "10.244.0.1", id="nodeport-pod"),
        pytest.param("worker1-p1", WORKER, 30000, "worker1-p1", "10.244.0.1", id="nodeport-own"),
        pytest.param("worker1", WIN, 8080, "win1", WORKER, id="node-node"),
        pytest.param("worker1", WORKER, 8080, "worker1", WORKER, id="node-itself"),
    ],
)
def test_what_the_intent_lets_through_works_and_shows_its_source(
    source, address, port, backend, seen
):
    found = tried(probe(source, address, port))
    assert (found.status, found.backends, found.source_seen) == ("ok", (backend,), seen)
    assert found.latency_ms > 0


@pytest.mark.parametrize(
    ("source", "address", "port", "status"),
    [
        pytest.param("win1", VIP["worker1-p1"], 80, "timeout", id="dropped-by-the-node"),
        pytest.param("client", VIP["worker1-p1"], 80, "timeout", id="service-from-outside"),
        pytest.param("worker1-p1", "10.244.0.99", 8080, "timeout", id="nobody-there"),
        pytest.param("worker1-p1", "10.244.1.4", 81, "refused", id="nothing-listens"),
        pytest.param("worker1-p1", WIN, 30999, "refused", id="no-such-nodeport"),
        pytest.param("nobody", WIN, 8080, "error", id="no-such-source"),
    ],
)
def test_what_the_intent_does_not_let_through_fails_in_its_own_way(source, address, port, status):
    assert tried(probe(source, address, port)).status == status


def test_what_a_node_drops_spares_the_addresses_it_says_and_its_pods():
    assert tried(probe("win1", "10.96.0.10", 53)).status == "ok"
    assert tried(probe("win1-p1", VIP["win1-p1"], 80)).status == "ok"


@pytest.mark.parametrize("dead", [frozenset({"win1"}), frozenset({"win1-p1"})])
@pytest.mark.parametrize(
    ("source", "address", "port"),
    [
        ("worker1-p1", "10.244.1.4", 8080),
        ("worker1-p1", VIP["win1-p1"], 80),
        ("client", WORKER, 30002),
        ("win1-p1", "10.244.0.4", 8080),
    ],
)
def test_nothing_comes_from_or_gets_to_what_is_switched_off(dead, source, address, port):
    assert tried(probe(source, address, port), dead).status == "timeout"
    assert tried(probe("worker1-p1", "10.244.0.5"), dead).status == "ok"


def test_a_node_that_is_switched_off_lets_nothing_in_for_others():
    through_win1 = probe("client", WIN, 30000)
    assert tried(through_win1, frozenset({"win1"})).status == "timeout"
    assert tried(through_win1).backends == ("worker1-p1",)


def test_a_shared_service_shows_every_backend_in_as_many_tries():
    everyone = ("worker1-p1", "win1-p1", "worker1-p2", "win1-p2")
    shared = probe("client", WIN, 30004, tries=64)
    assert tried(shared).backends == everyone
    two = probe("client", WIN, 30004, tries=2)
    assert tried(two).backends == everyone[:2]


@pytest.mark.parametrize(
    ("source", "name", "answer"),
    [
        ("worker1-p1", "to-win1-p1", VIP["win1-p1"]),
        ("worker1-p1", "to-win1-p1.default", VIP["win1-p1"]),
        ("worker1-p1", "to-win1-p1.default.svc.cluster.local", VIP["win1-p1"]),
        ("worker1-p1", "to-win1-p1.default.svc.cluster.local.", VIP["win1-p1"]),
        ("win1-p1", "to-win1-p1", VIP["win1-p1"]),
        ("win1-p1", "to-win1-p1.default", None),
        ("worker1-p1", "to-nobody", None),
        ("worker1", "to-win1-p1", None),
    ],
)
def test_a_name_is_answered_as_the_sources_own_resolver_asks(source, name, answer):
    found = tried(probe(source, "10.96.0.10", 53, name=name))
    assert (found.answer, found.status) == (answer, "ok" if answer else "no-such-name")


class TestFakeProvider(ProviderContract):
    @pytest.fixture
    def provider(self):
        return FakeProvider()
