"""What Services do to real packets: affinity, policies, and endpoints that come and go."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import count

import pytest
from netns_intents import cluster
from netns_running import LOST_SECONDS, Running
from observed_labs import differences

from lab._deadline import Deadline
from lab.scenario.terms import PROTOCOLS, ServicePort
from lab.topology.intent import Backend, Intent, MachineIntent, ProxiedService

pytestmark = pytest.mark.slow

WEB, NODE_PORT = "10.96.201.1", 32100
OWN, OTHER = "10.9.176.1", "10.9.176.2"
LINUX = cluster("overlay", linux=2, windows=0, pods=2)
PODS = [
    Backend(pod.name, pod.address.partition("/")[0], machine.name)
    for machine in LINUX.machines
    for pod in machine.pods
]


def service(*backends: Backend, **more: object) -> ProxiedService:
    port = ServicePort("", PROTOCOLS, 80, 8080, NODE_PORT)
    return replace(ProxiedService("web", WEB, (port,), backends), **more)  # type: ignore[arg-type]


def offering(*services: ProxiedService, intent: Intent = LINUX) -> Intent:
    def one(machine: MachineIntent) -> MachineIntent:
        if machine.translation is None:
            return machine
        return replace(machine, translation=replace(machine.translation, services=services))

    return replace(intent, machines=tuple(one(machine) for machine in intent.machines))


class Changing:
    """A lab whose Services change while everything else stays."""

    def __init__(self, running: Running) -> None:
        self.running = running
        self._ports = count(20_000)
        """A UDP client with the port of an older one would be taken for that."""

    def offer(self, *services: ProxiedService) -> None:
        """What ``lab up`` does after the scenario's Services have changed."""
        before = self.steps(self.running.intent)
        self.running.intent = offering(*services)
        after = self.steps(self.running.intent)
        assert before["network"].digest == after["network"].digest
        after["services"].run()

    def steps(self, intent: Intent):
        return {step.name: step for step in self.running.provider.steps(self.running.lab, intent)}

    def answers(
        self, source: str, times: int = 1, address: str = WEB, port: int = 80, seconds: float = 10.0
    ):
        """Who answers, or what happens instead, over TCP and over UDP."""

        def one(kind: str) -> str:
            own = next(self._ports) if kind == "udp" else 0
            return self.running.ask(source, address, port, kind, own, seconds).split(" ")[0]

        return {kind: {one(kind) for _ in range(times)} for kind in PROTOCOLS}

    def loses(self, source: str, address: str = WEB, port: int = 80) -> bool:
        """True if neither protocol has an answer."""
        return self.answers(source, 1, address, port, LOST_SECONDS) == both("timeout")


@pytest.fixture(scope="module")
def lab(bring_up):
    return Changing(bring_up(offering(service(*PODS))))


def both(*names: str) -> dict[str, set[str]]:
    return {"tcp": set(names), "udp": set(names)}


def test_endpoints_come_and_go_and_clients_see_who_is_there(lab):
    first, second = PODS[0], PODS[3]
    for source in ("worker2-p1", "worker1"):
        lab.offer(service(first))
        assert lab.answers(source, 3) == both(first.pod)
        lab.offer(service(first, second))
        assert lab.answers(source, 40) == both(first.pod, second.pod)
        lab.offer(service(second))
        assert lab.answers(source, 3) == both(second.pod)
        lab.offer(service())
        assert lab.answers(source, 3) == both("refused")
        lab.offer(service(first))
        assert lab.answers(source, 3) == both(first.pod)


@pytest.mark.parametrize(
    ("source", "address", "port"),
    [("worker2-p1", WEB, 80), ("worker2", WEB, 80), ("client", OTHER, NODE_PORT)],
)
def test_a_udp_client_that_keeps_its_port_is_led_to_the_new_backend(lab, source, address, port):
    def answer() -> str:
        return lab.running.ask(source, address, port, "udp", 25_000).split(" ")[0]

    lab.offer(service(PODS[0]))
    assert answer() == PODS[0].pod
    lab.offer(service(PODS[0], PODS[2]))
    assert {answer() for _ in range(8)} == {PODS[0].pod}
    lab.offer(service(PODS[2]))
    assert answer() == PODS[2].pod


def test_node_ports_refuse_while_no_backend_is_left(lab):
    for source in ("client", "worker2", "worker1-p1"):
        lab.offer(service(PODS[0]))
        assert lab.answers(source, 2, OTHER, NODE_PORT) == both(PODS[0].pod)
        lab.offer(service())
        assert lab.answers(source, 2, OTHER, NODE_PORT) == both("refused")


def test_a_client_keeps_its_backend_and_another_may_have_another(lab):
    lab.offer(service(*PODS, affinity=600))
    kept = {}
    for source in ("worker1-p1", "worker1-p2", "worker1", "worker2-p1"):
        answered = lab.answers(source, 16)
        assert {kind: len(names) for kind, names in answered.items()} == {"tcp": 1, "udp": 1}
        kept[source] = answered
    assert all(lab.answers(source, 4) == kept[source] for source in kept)
    # Four clients and two protocols draw from four backends: all alike in one run of 16,384.
    assert len({name for one in kept.values() for names in one.values() for name in names}) > 1


def test_affinity_is_forgotten_after_its_time(lab):
    lab.offer(service(*PODS, affinity=1))
    lab.running.ask("worker1-p1", WEB, 80)
    Deadline(20).wait(
        "waiting until the client is forgotten", lambda: remembered(lab), until=lambda one: not one
    )


def remembered(lab: Changing) -> list[str]:
    """The clients in the sets of worker1."""
    said = json.loads(lab.running.shell("worker1", "nft -j list ruleset"))["nftables"]
    sets = [one["set"] for one in said if "set" in one]
    return [
        str(element)
        for one in sets
        if one["name"].startswith("affinity-")
        for element in one.get("elem", ())
    ]


def test_affinity_ends_with_the_backend(lab):
    lab.offer(service(*PODS[:2], affinity=600))
    (kept,) = lab.answers("worker2-p1", 4)["tcp"]
    left = next(backend for backend in PODS[:2] if backend.pod != kept)
    lab.offer(service(left, affinity=600))
    assert lab.answers("worker2-p1", 4) == both(left.pod)


def test_a_policy_follows_the_backends_from_node_to_node(lab):
    home, away = PODS[0], PODS[2]
    lab.offer(service(home, outside="local", inside="local"))
    assert lab.running.ask("client", OWN, NODE_PORT) == f"{home.pod} 192.0.2.10"
    assert lab.loses("client", OTHER, NODE_PORT)
    assert lab.answers("worker1-p2") == both(home.pod)
    assert lab.loses("worker2-p2")
    lab.offer(service(away, outside="local", inside="local"))
    assert lab.loses("client", OWN, NODE_PORT)
    assert lab.running.ask("client", OTHER, NODE_PORT) == f"{away.pod} 192.0.2.10"
    assert lab.loses("worker1-p2")


FLUSH, RULE = "nft flush chain ip kube-proxy", "nft add rule ip kube-proxy"
NOBODY = "no-endpoint-services"
EVERY = ", ".join(f"{number} : {backend.address} . 8080" for number, backend in enumerate(PODS))
WRONG = [
    # what is offered, what breaks worker1's rules, what is told of which object
    (
        service(*PODS, affinity=600),
        (
            f"{FLUSH} service-web/tcp && {RULE} service-web/tcp meta l4proto tcp "
            f"dnat ip addr . port to numgen random mod 4 map '{{ {EVERY} }}'"
        ),
        {
            ("wrong-affinity", f"Service web, {WEB}:80, tcp"),
            ("wrong-affinity", f"Service web, NodePort {NODE_PORT}, tcp"),
        },
    ),
    (
        service(PODS[0], outside="local"),
        "nft insert rule ip kube-proxy external-web jump mark-for-masquerade",
        {("wrong-policy", f"Service web, NodePort {NODE_PORT}, tcp and udp")},
    ),
    (
        service(PODS[2], outside="local"),
        f"{FLUSH} external-web",
        {("wrong-policy", f"Service web, NodePort {NODE_PORT}, tcp and udp")},
    ),
    (
        service(PODS[2], outside="local"),
        "nft flush map ip kube-proxy no-endpoint-nodeports",
        {("wrong-refusal", f"Service web, NodePort {NODE_PORT}, tcp and udp")},
    ),
    (
        service(),
        (
            f"nft flush map ip kube-proxy {NOBODY} && nft add element ip kube-proxy {NOBODY} "
            f"'{{ {WEB} . tcp . 80 : drop, {WEB} . udp . 80 : drop }}'"
        ),
        {("wrong-refusal", f"Service web, {WEB}:80, tcp and udp")},
    ),
    (
        service(PODS[0], PODS[2], inside="local"),
        f"{FLUSH} local-web && {RULE} local-web goto service-web",
        {("stale-backend", f"Service web, {WEB}:80, tcp and udp")},
    ),
]


@pytest.mark.parametrize(
    ("offered", "breaks", "told"),
    WRONG,
    ids=[
        "affinity gone",
        "source not kept",
        "own packets lost",
        "refused instead of lost",
        "lost instead of refused",
        "remote backend",
    ],
)
def test_rules_that_differ_from_the_intent_are_reported(lab, offered, breaks, told):
    lab.offer(offered)
    assert differences(lab.running, "worker1", "worker2") == ()
    lab.running.shell("worker1", breaks)
    found = differences(lab.running, "worker1", "worker2")
    assert {(difference.kind, difference.object) for difference in found} == told
    assert {difference.node for difference in found} == {"worker1"}
