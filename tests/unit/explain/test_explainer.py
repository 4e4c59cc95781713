"""From what was seen to the first thing that is wrong on a path, and nothing beside the path."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import made_items
import pytest
from made_items import changed
from seen_machines import (
    Seen,
    broken,
    cell,
    down,
    findings,
    lab,
    whole,
    with_address,
    with_items,
    with_link,
    without_items,
    without_routes,
)

import lab as lab_package
from lab._errors import BrokenError
from lab.explain.causes import of_failures
from lab.explain.check import differs, kinds
from lab.explain.explainer import Explainer, _causes
from lab.explain.faults import registry
from lab.explain.paths import flow_of, select_machines
from lab.facts.difference import Difference
from lab.facts.items import (
    PORT,
    VNI,
    Item,
    make_address,
    make_attribute,
    make_neighbour,
    make_route,
    make_setting,
)
from lab.facts.node import Unit, Unread
from lab.facts.translations import Barrier
from lab.topology.intent import KubernetesIntent
from lab.topology.path import Flow
from lab.topology.subject import (
    FORWARDING,
    AddressSubject,
    ApiSubject,
    ChainSubject,
    EntranceSubject,
    EntrySubject,
    NeighbourSubject,
    QueueSubject,
    RouteSubject,
    Subject,
)
from lab.topology.walk import walk

Harm = Callable[[Seen], Seen]


def told(differences: tuple[Difference, ...]) -> list[tuple[str, str]]:
    return [(difference.kind, difference.node) for difference in differences]


def overlay() -> Seen:
    return whole(lab("overlay")[1])


def test_a_node_without_its_card_cannot_ask_even_for_its_own_backend() -> None:
    """The Service's address has no route then, wherever the backend is."""
    facts = down(overlay(), "worker1", "eth0")
    own = findings("overlay", facts, "node-service/worker1/to-worker1-p1/tcp-small")
    assert told(own) == [("link-down", "worker1")]
    assert findings("overlay", facts, "pod-service/worker1-p1/to-worker1-p2/tcp-small") == ()


ON_A_HYPERVISOR: list[tuple[Harm, str]] = [
    # what is wrong on hypervisor-02, and the kind that is told, of packets from controller-01
    (lambda facts: down(facts, "hypervisor-02", "eth0"), "link-down"),
    (lambda facts: down(facts, "hypervisor-02", "vnet0"), "link-down"),
    (lambda facts: down(facts, "hypervisor-02", "br-nodes"), "bridge-down"),
    (lambda facts: down(facts, "hypervisor-02", "vxlan-nodes"), "tunnel-down"),
    (lambda facts: with_link(facts, "hypervisor-02", "vxlan-nodes", master=""), "unplugged"),
    (lambda facts: with_link(facts, "hypervisor-02", "vnet0", master=""), "unplugged"),
    (lambda facts: without_items(facts, "hypervisor-02", EntrySubject), "entry-missing"),
]
BETWEEN_HYPERVISORS = "pod-pod/controller-01-p1/compute-01-p1/tcp-small"
ON_ONE = "pod-pod/controller-01-p1/controller-02-p1/tcp-small"


@pytest.mark.parametrize(("harm", "kind"), ON_A_HYPERVISOR)
def test_a_difference_between_hypervisors_is_reported_only_for_paths_that_cross_it(
    harm: Harm, kind: str
) -> None:
    facts = whole(lab("kubeinit")[1])
    assert findings("kubeinit", facts, BETWEEN_HYPERVISORS) == ()
    harmed = harm(facts)
    differences = findings("kubeinit", harmed, BETWEEN_HYPERVISORS)
    assert told(differences)[:1] == [(kind, "hypervisor-02")]
    assert findings("kubeinit", harmed, ON_ONE) == ()


def test_a_card_that_is_down_goes_before_the_port_that_hears_nothing() -> None:
    facts = down(whole(lab("kubeinit")[1]), "compute-01", "eth0")
    facts = with_link(facts, "hypervisor-02", "vnet0", carrier=False)
    differences = findings("kubeinit", facts, BETWEEN_HYPERVISORS)
    assert [difference.node for difference in differences if difference.kind == "link-down"] == [
        "compute-01",
        "hypervisor-02",
    ]


@pytest.mark.parametrize(
    "name",
    [
        *("overlay", "host-gateway", "upstream-tor", "hard-way", "ovn"),
        *("calico-bgp", "calico-bgp-tor", "upstream-vrrp", "kubeinit"),
    ],
)
def test_a_lab_as_intended_has_no_findings(name: str) -> None:
    _, intent, matrix = lab(name)
    explainer = Explainer(intent, whole(intent))
    assert explainer.list_elsewhere() == ()
    for grid in matrix.grids:
        for sample in list(grid.cells())[::17]:
            assert explainer.explain(flow_of(sample)).findings == (), sample.id


NOT_FORWARDING = make_setting(FORWARDING.path, "0")
SHAPER = Item("queue", QueueSubject("queue", "root", "eth0"), "tbf rate 1Mbit", "", "tc", "tc")


def barred(node: str, **what: object) -> Harm:
    rule = Barrier(ChainSubject("ip", "x", "y"), "a rule", **what)  # type: ignore[arg-type]
    return lambda facts: broken(facts, node, barriers=(rule,))


def tunnel(node: str, attribute: str, value: str) -> Harm:
    def harm(facts: Seen) -> Seen:
        (name,) = facts[node].items.devices("vxlan")
        return with_items(facts, node, make_attribute(name, attribute, value))

    return harm


def translations(node: str, **what: object) -> Harm:
    return lambda facts: broken(
        facts, node, translations=replace(facts[node].translations, **what)  # type: ignore[arg-type]
    )  # fmt: skip


def wrong_neighbour(facts: Seen) -> Seen:
    wrong = make_neighbour("10.244.1.0", "flannel.4096", "02:00:00:00:00:01")
    return with_items(facts, "master", wrong)


def without_entry(facts: Seen) -> Seen:
    return without_items(facts, "master", EntrySubject, words="10.9.176.11")


def without_exception(facts: Seen) -> Seen:
    (masquerade,) = facts["worker1"].translations.masquerades
    return translations("worker1", masquerades=(replace(masquerade, spared=()),))(facts)


def small_bridge(facts: Seen) -> Seen:
    (name,) = facts["worker1"].items.devices("bridge")
    return with_items(facts, "worker1", make_attribute(name, "mtu", "1200"))


TO_W1 = "pod-pod/master-p1/worker1-p1/tcp-small"
TO_W2 = "pod-pod/master-p1/worker2-p1/tcp-small"
IN_POD = "pod-pod/master-p1/master-p2/tcp-small"
ON_W1 = "pod-pod/worker1-p1/worker1-p2/tcp-small"
OF_NODE = "node-pod/worker1/master-p1/tcp-small"
SERVICE = "pod-service/master-p1/to-worker1-p1/tcp-small"
NODEPORT = "nodeport/client/worker1:to-worker1-p1/tcp-small"
OUT = "pod-external/worker1-p1/client/tcp-small"
VXLAN = {"protocol": "udp", "ports": (4789, 4789)}
PORTS = barred("worker1", protocol="tcp", ports=(30000, 32767))

WAYS: dict[str, tuple[Harm, str, str, str, str]] = {
    # what is broken, the kind and node that are named, of which cell, and a cell beside it
    "a card": (lambda facts: down(facts, "worker1", "eth0"), "link-down", "worker1", TO_W1, TO_W2),
    "a bridge": (lambda facts: down(facts, "worker1", "cni0"),
                 "bridge-down", "worker1", TO_W1, TO_W2),
    "a pod's port": (lambda facts: down(facts, "worker1", "veth1"), "pod-link-down", "worker1",
                     TO_W1, "pod-pod/master-p1/worker1-p2/tcp-small"),
    "a route": (lambda facts: without_routes(facts, "master", "10.244.1.0/24"),
                "route-missing", "master", TO_W1, TO_W2),
    "a route back": (lambda facts: without_routes(facts, "worker1", "10.244.0.0/24"),
                     "route-missing", "worker1", TO_W1,
                     "pod-pod/worker2-p1/worker1-p1/tcp-small"),
    "VNI": (tunnel("worker1", VNI, "4097"), "wrong-vni", "worker1", TO_W1, TO_W2),
    "port": (tunnel("master", PORT, "8472"), "wrong-port", "master", TO_W1, IN_POD),
    "a neighbour": (wrong_neighbour, "stale-neighbour", "master", TO_W1, TO_W2),
    "an entry": (without_entry, "entry-missing", "master", TO_W1, TO_W2),
    "forwarding": (lambda facts: with_items(facts, "worker1", NOT_FORWARDING),
                   "forwarding-off", "worker1", TO_W1, ON_W1),
    "the tunnel's port dropped": (barred("worker1", **VXLAN),
                                  "tunnel-port-dropped", "worker1", TO_W1, TO_W2),
    "the tunnel's port rejected": (barred("worker1", **VXLAN, refuses=True),
                                   "tunnel-port-rejected", "worker1", TO_W1, TO_W2),
    "NodePorts": (PORTS, "node-port-barred", "worker1", NODEPORT,
                  "nodeport/client/worker2:to-worker2-p1/tcp-small"),
    "NodePorts of the other protocol": (PORTS, "node-port-barred", "worker1", NODEPORT,
                                        "nodeport/client/worker1:to-worker1-p1/udp-small"),
    "some packets of a card": (barred("worker1", by_chance=True, device="eth0"),
                               "packets-lost", "worker1", TO_W1, ON_W1),
    "one pod's packets": (barred("worker1", prefixes=("10.244.0.4/32",)), "packets-barred",
                          "worker1", TO_W1, "pod-pod/master-p2/worker1-p1/tcp-small"),
    "what it passes on": (barred("worker1", hook="forward", prefixes=("10.244.0.4/32",)),
                          "packets-barred", "worker1", TO_W1, OF_NODE),
    "what is for the node": (barred("worker1", hook="input", prefixes=("10.244.0.4/32",)),
                             "packets-barred", "worker1", OF_NODE, TO_W1),
    "a tunnel that is for the node": (barred("worker1", **VXLAN, hook="input"),
                                      "tunnel-port-dropped", "worker1", TO_W1, TO_W2),
    "a shaper": (lambda facts: with_items(facts, "worker1", SHAPER),
                 "slowed", "worker1", TO_W1, TO_W2),
    "masquerade": (translations("worker1", masquerades=()),
                   "masquerade-missing", "worker1", OUT, TO_W1),
    "an exception of masquerade": (without_exception, "masquerade-exception-missing", "worker1",
                                   "pod-pod/worker1-p1/master-p1/tcp-small", OUT),
    "an exception, between pods of one bridge": (
        without_exception, "masquerade-exception-missing", "worker1", ON_W1, OUT),
    "all Services": (translations("master", services=()),
                     "service-rules-missing", "master", SERVICE, TO_W1),
    "a large packet": (small_bridge, "bridge-mtu", "worker1", TO_W1, TO_W2),
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_what_is_broken_is_named_where_it_is_met_and_nowhere_else(way: str) -> None:
    breaks, kind, node, hit, beside = WAYS[way]
    facts = breaks(overlay())
    first = findings("overlay", facts, hit)[0]
    assert (first.kind, first.node, first.fault) == (kind, node, kinds()[kind].fault)
    assert first.hop >= 0
    assert findings("overlay", facts, beside) == ()


def test_a_stale_backend_is_named_for_its_own_service_and_entrance() -> None:
    address, facts = cell("overlay", SERVICE).target.address, overlay()
    services = tuple(
        replace(
            service,
            backends=tuple(end._replace(address="10.244.1.254") for end in service.backends),
        )
        if service.address == address
        else service
        for service in facts["master"].translations.services
    )
    facts = translations("master", services=services)(facts)
    assert told(findings("overlay", facts, SERVICE)) == [("stale-backend", "master")]
    assert findings("overlay", facts, "pod-service/master-p1/to-worker1-p2/tcp-small") == ()
    assert findings("overlay", facts, "nodeport/client/master:to-master-p1/tcp-small") == ()


def test_the_first_on_the_way_is_the_answer_and_the_rest_follow() -> None:
    facts = tunnel("worker1", VNI, "4097")(overlay())
    facts = without_routes(facts, "master", "10.244.1.0/24")
    kinds = [finding.kind for finding in findings("overlay", facts, TO_W1)]
    assert kinds == ["route-missing", "wrong-vni"]


def test_a_card_without_its_address_comes_without_the_routes_that_went_with_it() -> None:
    facts = without_items(whole(lab("calico-bgp-tor")[1]), "worker2", AddressSubject)
    facts = without_items(facts, "worker2", RouteSubject)
    id_ = "pod-pod/worker1-p1/worker2-p1/tcp-small"
    (first, *_) = findings("calico-bgp-tor", facts, id_)
    assert (first.kind, first.node) == ("link-address", "worker2")
    for command in (
        "ip address replace 10.30.0.12/24 dev eth0",
        "ip route replace default via 10.30.0.1 dev eth0",
        "ip route replace 10.244.0.132/32 dev veth1 src 10.30.0.12",
    ):
        assert command in first.mends.split(" && ")


LOST_WITH_IT = {
    "veth1": {
        "ip route replace 10.244.0.132/32 dev veth1 src 10.30.0.12",
        "ip neighbour replace 10.244.0.132 lladdr 0a:58:0a:f4:00:84 dev veth1 nud permanent",
    },
    "eth0": {"ip route replace default via 10.30.0.1 dev eth0"},
}


@pytest.mark.parametrize("device", LOST_WITH_IT)
def test_the_fix_of_a_device_that_is_down_restores_what_is_lost_with_it(device: str) -> None:
    facts = down(whole(lab("calico-bgp-tor")[1]), "worker2", device)
    (first, *_) = findings("calico-bgp-tor", facts, "pod-pod/worker1-p1/worker2-p1/tcp-small")
    commands = first.mends.split(" && ")
    assert commands[0] == f"ip link set dev {device} up"
    assert LOST_WITH_IT[device] <= {*commands}


def test_the_fix_of_a_pods_own_card_restores_its_way_out() -> None:
    facts = whole(lab("calico-bgp-tor")[1])
    pods = facts["worker2"].pods or ()
    card = replace(pods[0].links[0], up=False)
    broken_pod = replace(pods[0], items=made_items.with_link(pods[0].items, card))
    facts = broken(facts, "worker2", pods=(broken_pod, *pods[1:]))
    (first, *_) = findings("calico-bgp-tor", facts, f"pod-pod/{pods[0].name}/worker1-p1/tcp-small")
    assert first.mends == (
        "in the pod: ip link set dev eth0 up && ip route replace default via 169.254.1.1 dev eth0 "
        "onlink && ip neighbour replace 169.254.1.1 lladdr ee:ee:ee:ee:ee:ee dev eth0 nud permanent"
    )


def test_a_machines_rule_is_met_where_a_packet_comes_to_it_from_its_pod() -> None:
    facts = barred("worker1", protocol="tcp")(overlay())
    (first,) = findings("overlay", facts, "pod-pod/worker1-p1/worker1-p2/tcp-small")
    path = walk(
        lab("overlay")[1], flow_of(cell("overlay", "pod-pod/worker1-p1/worker1-p2/tcp-small"))
    )[0]
    assert path.hops[first.hop].place == "worker1"


def test_the_fix_of_a_pods_blackhole_route_names_its_card() -> None:
    facts = overlay()
    pods = facts["win1"].pods or ()
    ended = changed(pods[0].items, make_route("blackhole default"))
    facts = broken(facts, "win1", pods=(replace(pods[0], items=ended), *pods[1:]))
    (first, *_) = findings("overlay", facts, f"pod-pod/{pods[0].name}/worker1-p1/tcp-small")
    assert first.mends == "in the pod: ip route replace default via 10.244.3.1 dev eth0"


def test_the_fix_of_a_tunnels_mac_restores_the_neighbours_lost_with_it() -> None:
    facts = with_link(overlay(), "win2", "flannel.4096", mac="02:00:00:00:00:77")
    (first, *_) = findings("overlay", facts, "pod-pod/win2-p1/worker1-p1/tcp-small")
    commands = first.mends.split(" && ")
    assert commands[0] == "ip link set dev flannel.4096 address 0a:58:0a:f4:04:00"
    neighbour = "ip neighbour replace 10.244.1.0 lladdr 0a:58:0a:f4:01:00 dev flannel.4096"
    assert f"{neighbour} nud permanent" in commands


def test_what_only_follows_comes_last() -> None:
    _, intent, _ = lab("host-gateway")
    source, target = [machine for machine in intent.machines if machine.pods][:2]
    facts = whole(intent)
    facts = without_items(facts, source.name, NeighbourSubject, words=f"{target.address()} ")
    card = source.interfaces[0].name
    facts = with_items(facts, source.name, make_neighbour(target.address(), card, "", "FAILED"))
    hit = f"pod-pod/{source.pods[0].name}/{target.pods[0].name}/tcp-small"
    assert findings("host-gateway", facts, hit)[0].kind == "neighbour-silent"
    both = findings("host-gateway", down(facts, target.name, "eth0"), hit)
    assert [difference.kind for difference in both][:2] == ["link-down", "neighbour-silent"]
    facts = broken(overlay(), "master", units=(Unit("flanneld", "failed"),))
    assert findings("overlay", facts, TO_W1)[0].kind == "flannel-down"
    differences = findings("overlay", without_routes(facts, "master", "10.244.1.0/24"), TO_W1)
    assert [difference.kind for difference in differences] == ["route-missing", "flannel-down"]


@pytest.mark.room
def test_a_dns_without_pods_is_named_and_not_the_refusals_that_follow_from_it() -> None:
    def one(kind: str, node: str, thing: Subject) -> Difference:
        return differs(kind, node, thing, "wanted", "seen", "see", "mend")

    scaled = one("dns-scaled-down", "master", ApiSubject("Deployment", "", "coredns"))
    other = one(
        "backend-missing", "worker1", EntranceSubject("to-master-p1", "10.96.0.7", 80, ("tcp",))
    )
    refused = one(
        "backend-missing", "worker1", EntranceSubject("kube-dns", "10.96.0.10", 53, ("udp",))
    )
    assert _causes([refused, scaled, other]) == [scaled, other]
    assert _causes([refused, other]) == [refused, other]


@pytest.mark.room
def test_routes_that_felix_makes_by_a_wrong_pool_are_no_causes_beside_it() -> None:
    pool, block, default = (
        differs(kind, node, thing, "wanted", "seen", "see", "mend")
        for kind, node, thing in (
            ("wrong-encapsulation", "worker1", ApiSubject("IPPool", "", "of-worker1")),
            ("route-missing", "master", RouteSubject("10.244.0.64/26")),
            ("route-missing", "master", RouteSubject("default")),
        )
    )
    assert _causes([block, pool, default]) == [pool, default]
    assert _causes([block, default]) == [block, default]


def test_a_duplicate_mac_is_reported_for_the_machine_that_should_not_have_it() -> None:
    facts = overlay()
    taken = facts["worker2"].link("eth0")
    assert taken is not None
    facts = with_link(facts, "worker1", "eth0", mac=taken.mac)
    for hit in (TO_W1, TO_W2):  # the node that has it, and the one that it belongs to
        assert told(findings("overlay", facts, hit)) == [("duplicate-mac", "worker1")]
        (twin,) = findings("overlay", facts, hit)
        # worker2 answers this, so that switches send its frames to it again
        assert "ip neighbour replace 10.9.176.12 dev eth0 use" in twin.mends.split(" && ")
    assert findings("overlay", facts, IN_POD) == ()


def test_a_duplicate_mac_ranks_before_the_gateways_that_both_machines_hold() -> None:
    """Candidates with one MAC do not hear each other."""
    _, intent, _ = lab("upstream-vrrp")
    facts = whole(intent)
    holder = intent.gateways[0].holder
    assert holder is not None
    other = next(candidate for candidate in intent.gateways[0].candidates if candidate != holder)
    held = facts[holder].link("eth1")
    assert held is not None
    facts = with_link(facts, other, "eth1", mac=held.mac, addresses=held.addresses)
    differences = findings("upstream-vrrp", facts, f"pod-pod/{holder}-p1/{other}-p1/udp-small")
    assert [difference.kind for difference in differences][:2] == [
        "duplicate-mac",
        "duplicate-address",
    ]


def test_a_duplicate_pod_cidr_is_reported_and_the_wrong_route_it_causes_is_not() -> None:
    other = lab("overlay")[1].machine("worker2").bridge
    assert other is not None
    facts = with_address(overlay(), "master", "cni0", *other.addresses)
    facts = without_routes(facts, "master", "10.244.2.0/24")
    assert told(findings("overlay", facts, TO_W2)) == [("duplicate-pod-cidr", "master")]


def test_a_duplicate_pod_address_is_reported_on_its_node() -> None:
    pods = lab("overlay")[1].machine("worker1").pods
    taken, facts = next(pod.address for pod in pods if pod.name == "worker1-p1"), overlay()
    first, *others = facts["master"].pods or ()
    (link,) = first.links
    thief = replace(first, items=changed(first.items, make_address(taken, link.name)))
    facts = broken(facts, "master", pods=(thief, *others))
    assert told(findings("overlay", facts, TO_W1)) == [("duplicate-address", "master")]


def test_a_machine_that_does_not_answer_is_named() -> None:
    silence = BrokenError("running a command", "no route to host")
    explainer = Explainer(lab("overlay")[1], {**overlay(), "worker1": silence})
    (difference,) = explainer.explain(flow_of(cell("overlay", TO_W1))).findings
    assert (difference.kind, difference.node) == ("machine-silent", "worker1")
    assert "no route to host" in difference.sentence


@pytest.mark.parametrize(
    ("unread", "named", "fix"),
    [
        (Unread("nftables", "exit code 137"), "the answer to 'nftables'", "start processes"),
        (Unread("state", "cannot fork", "worker1-p1"), "pod worker1-p1", "start processes"),
        (Unread("nftables", "no 'nft'", "", False), "the answer to 'nftables'", "install the"),
    ],
)
def test_a_part_of_a_machine_that_could_not_be_read_is_named(
    unread: Unread, named: str, fix: str
) -> None:
    facts = overlay()
    pods = tuple(pod for pod in facts["worker1"].pods or () if pod.name != unread.pod)
    facts = broken(facts, "worker1", unread=(unread,), pods=pods)
    explainer = Explainer(lab("overlay")[1], facts)
    (difference,) = explainer.explain(flow_of(cell("overlay", TO_W1))).findings
    assert (difference.kind, difference.node, difference.object) == (
        "machine-silent",
        "worker1",
        named,
    )
    assert unread.reason in difference.sentence
    assert fix in difference.mends
    assert [one.kind for one in explainer.everything()] == ["machine-silent"]


def test_where_the_intent_leads_nowhere_that_is_the_answer() -> None:
    _, intent, _ = lab("overlay")
    machines = tuple(
        replace(machine, routes=()) if machine.name == "master" else machine
        for machine in intent.machines
    )
    changed = replace(intent, machines=machines)
    (difference,) = (
        Explainer(changed, whole(changed)).explain(flow_of(cell("overlay", TO_W1))).findings
    )
    assert (difference.kind, difference.node) == ("intent-ends", "master")
    assert "has no route" in difference.observed


@pytest.mark.room
def test_a_pod_that_its_node_has_no_way_to_is_named_if_its_network_is_gone() -> None:
    """A pod of a cluster whose device was deleted: its route went with it."""
    intent = lab("calico-vxlan")[1]
    gone = intent.machine("worker1").pods[0]
    machines = tuple(
        replace(
            machine, routes=tuple(way for way in machine.routes if way.destination != gone.address)
        )
        for machine in intent.machines
    )
    facts = whole(intent)
    pods = tuple(pod for pod in facts["worker1"].pods or () if pod.name != gone.name)
    facts["worker1"] = replace(facts["worker1"], pods=pods)
    bound = replace(
        intent, machines=machines, kubernetes=KubernetesIntent("1.36", "", "", "10.96.0.10")
    )
    flow = Flow("master-p1", gone.address.partition("/")[0], 8080, "tcp")
    differences = Explainer(bound, facts).explain(flow).findings
    kinds = [
        difference.kind
        for difference in differences
        if difference.kind in {"pod-missing", "intent-ends"}
    ]
    assert kinds == ["pod-missing", "intent-ends"]


def test_a_service_with_several_backends_is_explained_by_the_one_that_is_broken() -> None:
    _, intent, matrix = lab("overlay")
    shared = next(cell for grid in matrix.grids for cell in grid.cells() if len(cell.backends) > 1)
    node, port = next(
        (machine.name, pod.port)
        for machine in intent.machines
        for pod in machine.pods
        if pod.name == shared.backends[-1]
    )
    facts = down(whole(intent), node, port)
    assert told(findings("overlay", facts, shared.id)) == [("pod-link-down", node)]


def test_pods_that_were_not_looked_into_are_not_missed() -> None:
    _, intent, _ = lab("overlay")
    scope = select_machines(intent, walk(intent, flow_of(cell("overlay", TO_W1))))
    assert scope == {"master": ("master-p1",), "worker1": ("worker1-p1",)}
    facts = {
        name: replace(facts, pods=tuple(pod for pod in facts.pods or () if pod.name in scope[name]))
        for name, facts in whole(intent).items()
        if name in scope
    }
    assert findings("overlay", facts, TO_W1) == ()


def test_of_many_failures_the_machines_they_have_in_common_are_looked_at() -> None:
    _, intent, matrix = lab("overlay")
    failed = [cell for cell in matrix.cells() if cell.target.node == "worker1"]
    scope = of_failures(intent, failed)
    assert set(scope["worker1"]) >= {"worker1-p1", "worker1-p2"}


@pytest.mark.room
def test_every_fault_of_the_catalogue_is_what_some_kind_looks_like() -> None:
    by_kind = {name for name, fault in registry.faults().items() if not fault.kind}
    assert {each.kind for each in registry.faults().values() if each.kind} <= set(kinds())
    windows = [kind for kind in kinds().values() if kind.windows and kind.windows.fault]
    named = {kind.windows.fault: kind.name for kind in windows if kind.windows}
    assert {name: registry.faults()[name].kind for name in named} == named
    assert {kind.fault for kind in kinds().values() if kind.fault} == by_kind


def test_nothing_of_it_knows_what_was_put_in_on_purpose() -> None:
    root = Path(lab_package.__file__).parent
    explaining = [*(root / "explain").glob("*.py"), *(root / "explain/checks").glob("*.py")]
    assert len(explaining) > 15
    for path in (*explaining, root / "lifecycle/explain.py", *(root / "facts").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [one.name for one in getattr(node, "names", ())]
            imported = [f"{getattr(node, 'module', '')}.{name}" for name in names]
            assert [one for one in imported if "faults" in one] == [], path


def test_services_that_are_refused_still_do_not_hide_that_none_is_translated() -> None:
    _, intent, _ = lab("services")
    facts = whole(intent)
    refused = tuple(
        service for service in facts["worker2"].translations.services if not service.backends
    )
    assert refused
    lost = translations("worker2", services=refused)(facts)
    kinds = {
        difference.kind
        for difference in Explainer(intent, lost).list_elsewhere()
        if difference.node == "worker2"
    }
    assert {one for one in kinds if one.startswith("service-")} == {"service-rules-missing"}


def test_a_service_that_is_refused_is_refused_by_a_machine_that_forwards() -> None:
    _, intent, _ = lab("services")
    facts = with_items(whole(intent), "worker1", NOT_FORWARDING)
    refused = flow_of(cell("services", "no-endpoints/worker1-p1/nobody/tcp-small"))
    differences = Explainer(intent, facts).explain(refused, works=False).findings
    assert told(differences) == [("forwarding-off", "worker1")]
