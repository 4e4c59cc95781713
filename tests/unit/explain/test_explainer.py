"""From what was seen to the first thing that is wrong on a path, and nothing beside the path."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from seen_machines import (
    Seen,
    broken,
    cell,
    down,
    findings,
    lab,
    neighbour,
    whole,
    with_address,
    with_link,
    without_routes,
)

import lab as lab_package
from lab._errors import BrokenError
from lab.explain.causes import of_failures
from lab.explain.check import differs, kinds
from lab.explain.explainer import Explainer, _causes
from lab.explain.faults import registry
from lab.explain.question import flow_of, select_machines
from lab.facts.difference import Difference
from lab.facts.node import Unit, Unread
from lab.facts.translations import Barrier
from lab.topology.intent import KubernetesIntent
from lab.topology.path import Flow
from lab.topology.subject import (
    ApiSubject,
    ChainSubject,
    DeviceSubject,
    EntranceSubject,
    RouteSubject,
    Subject,
)
from lab.topology.walk import walk

Harm = Callable[[Seen], Seen]


def told(found: tuple[Difference, ...]) -> list[tuple[str, str]]:
    return [(one.kind, one.node) for one in found]


def overlay() -> Seen:
    return whole(lab("overlay")[1])


def test_a_node_without_its_card_cannot_ask_even_for_its_own_backend() -> None:
    """The Service's address has no route then, wherever the backend is."""
    seen = down(overlay(), "worker1", "eth0")
    own = findings("overlay", seen, "node-service/worker1/to-worker1-p1/tcp-small")
    assert told(own) == [("link-down", "worker1")]
    assert findings("overlay", seen, "pod-service/worker1-p1/to-worker1-p2/tcp-small") == ()


ON_A_HYPERVISOR: list[tuple[Harm, str]] = [
    # what is wrong on hypervisor-02, and the kind that is told, of packets from controller-01
    (lambda seen: down(seen, "hypervisor-02", "eth0"), "link-down"),
    (lambda seen: down(seen, "hypervisor-02", "vnet0"), "link-down"),
    (lambda seen: down(seen, "hypervisor-02", "br-nodes"), "bridge-down"),
    (lambda seen: down(seen, "hypervisor-02", "vxlan-nodes"), "tunnel-down"),
    (lambda seen: with_link(seen, "hypervisor-02", "vxlan-nodes", master=None), "unplugged"),
    (lambda seen: with_link(seen, "hypervisor-02", "vnet0", master=None), "unplugged"),
    (lambda seen: broken(seen, "hypervisor-02", forwarding=()), "entry-missing"),
]
BETWEEN_HYPERVISORS = "pod-pod/controller-01-p1/compute-01-p1/tcp-small"
ON_ONE = "pod-pod/controller-01-p1/controller-02-p1/tcp-small"


@pytest.mark.parametrize(("harm", "kind"), ON_A_HYPERVISOR)
def test_a_difference_between_hypervisors_is_reported_only_for_paths_that_cross_it(
    harm: Harm, kind: str
) -> None:
    seen = whole(lab("kubeinit")[1])
    assert findings("kubeinit", seen, BETWEEN_HYPERVISORS) == ()
    harmed = harm(seen)
    found = findings("kubeinit", harmed, BETWEEN_HYPERVISORS)
    assert told(found)[:1] == [(kind, "hypervisor-02")]
    assert findings("kubeinit", harmed, ON_ONE) == ()


def test_a_card_that_is_down_goes_before_the_port_that_hears_nothing() -> None:
    seen = down(whole(lab("kubeinit")[1]), "compute-01", "eth0")
    seen = with_link(seen, "hypervisor-02", "vnet0", carrier=False)
    found = findings("kubeinit", seen, BETWEEN_HYPERVISORS)
    assert [one.node for one in found if one.kind == "link-down"] == ["compute-01", "hypervisor-02"]


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
    assert explainer.elsewhere() == ()
    for grid in matrix.grids:
        for one in list(grid.cells())[::17]:
            assert explainer.explain(flow_of(one)).findings == (), one.id


SHAPER = Barrier(DeviceSubject("eth0"), "tbf")


def barred(node: str, **what: object) -> Harm:
    rule = Barrier(ChainSubject("ip", "x", "y"), "a rule", **what)  # type: ignore[arg-type]
    return lambda seen: broken(seen, node, barriers=(rule,))


def tunnel(node: str, **what: object) -> Harm:
    def harm(seen: Seen) -> Seen:
        (there,) = seen[node].tunnels
        return broken(seen, node, tunnels=(replace(there, **what),))  # type: ignore[arg-type]

    return harm


def translations(node: str, **what: object) -> Harm:
    return lambda seen: broken(
        seen, node, translations=replace(seen[node].translations, **what)  # type: ignore[arg-type]
    )  # fmt: skip


def wrong_neighbour(seen: Seen) -> Seen:
    address = "10.244.1.0"
    there = [one for one in seen["master"].neighbours if one.neighbour.address != address]
    wrong = neighbour(address, "02:00:00:00:00:01", "flannel.4096")
    return broken(seen, "master", neighbours=(*there, wrong))


def without_entry(seen: Seen) -> Seen:
    left = (one for one in seen["master"].forwarding if one.remote != "10.9.176.11")
    return broken(seen, "master", forwarding=tuple(left))


def without_exception(seen: Seen) -> Seen:
    (there,) = seen["worker1"].translations.masquerades
    return translations("worker1", masquerades=(replace(there, spared=()),))(seen)


def small_bridge(seen: Seen) -> Seen:
    bridges = tuple(replace(bridge, mtu=1200) for bridge in seen["worker1"].bridges)
    return broken(seen, "worker1", bridges=bridges)


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
    "a card": (lambda seen: down(seen, "worker1", "eth0"), "link-down", "worker1", TO_W1, TO_W2),
    "a bridge": (lambda seen: down(seen, "worker1", "cni0"),
                 "bridge-down", "worker1", TO_W1, TO_W2),
    "a pod's port": (lambda seen: down(seen, "worker1", "veth1"), "pod-link-down", "worker1",
                     TO_W1, "pod-pod/master-p1/worker1-p2/tcp-small"),
    "a route": (lambda seen: without_routes(seen, "master", "10.244.1.0/24"),
                "route-missing", "master", TO_W1, TO_W2),
    "a route back": (lambda seen: without_routes(seen, "worker1", "10.244.0.0/24"),
                     "route-missing", "worker1", TO_W1,
                     "pod-pod/worker2-p1/worker1-p1/tcp-small"),
    "VNI": (tunnel("worker1", vni=4097), "wrong-vni", "worker1", TO_W1, TO_W2),
    "port": (tunnel("master", port=8472), "wrong-port", "master", TO_W1, IN_POD),
    "a neighbour": (wrong_neighbour, "stale-neighbour", "master", TO_W1, TO_W2),
    "an entry": (without_entry, "entry-missing", "master", TO_W1, TO_W2),
    "forwarding": (lambda seen: broken(seen, "worker1", forwards=False),
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
    "a shaper": (lambda seen: broken(seen, "worker1", shapers=(SHAPER,)),
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
    seen = breaks(overlay())
    first = findings("overlay", seen, hit)[0]
    assert (first.kind, first.node, first.fault) == (kind, node, kinds()[kind].fault)
    assert first.hop >= 0
    assert findings("overlay", seen, beside) == ()


def test_a_stale_backend_is_named_for_its_own_service_and_entrance() -> None:
    address, seen = cell("overlay", SERVICE).target.address, overlay()
    services = tuple(
        replace(
            service,
            backends=tuple(end._replace(address="10.244.1.254") for end in service.backends),
        )
        if service.address == address
        else service
        for service in seen["master"].translations.services
    )
    seen = translations("master", services=services)(seen)
    assert told(findings("overlay", seen, SERVICE)) == [("stale-backend", "master")]
    assert findings("overlay", seen, "pod-service/master-p1/to-worker1-p2/tcp-small") == ()
    assert findings("overlay", seen, "nodeport/client/master:to-master-p1/tcp-small") == ()


def test_the_first_on_the_way_is_the_answer_and_the_rest_follow() -> None:
    seen = tunnel("worker1", vni=4097)(overlay())
    seen = without_routes(seen, "master", "10.244.1.0/24")
    kinds = [finding.kind for finding in findings("overlay", seen, TO_W1)]
    assert kinds == ["route-missing", "wrong-vni"]


def test_what_only_follows_comes_last() -> None:
    _, intent, _ = lab("host-gateway")
    source, target = [machine for machine in intent.machines if machine.pods][:2]
    seen = whole(intent)
    silent = tuple(
        replace(one, neighbour=replace(one.neighbour, mac=""), state="FAILED")
        if one.neighbour.address == target.address()
        else one
        for one in seen[source.name].neighbours
    )
    seen = broken(seen, source.name, neighbours=silent)
    hit = f"pod-pod/{source.pods[0].name}/{target.pods[0].name}/tcp-small"
    assert findings("host-gateway", seen, hit)[0].kind == "neighbour-silent"
    both = findings("host-gateway", down(seen, target.name, "eth0"), hit)
    assert [one.kind for one in both][:2] == ["link-down", "neighbour-silent"]
    seen = broken(overlay(), "master", units=(Unit("flanneld", "failed"),))
    assert findings("overlay", seen, TO_W1)[0].kind == "program-down"
    found = findings("overlay", without_routes(seen, "master", "10.244.1.0/24"), TO_W1)
    assert [one.kind for one in found] == ["route-missing", "program-down"]


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
    seen = overlay()
    taken = seen["worker2"].link("eth0")
    assert taken is not None
    seen = with_link(seen, "worker1", "eth0", mac=taken.mac)
    for hit in (TO_W1, TO_W2):  # the node that has it, and the one that it belongs to
        assert told(findings("overlay", seen, hit)) == [("duplicate-mac", "worker1")]
    assert findings("overlay", seen, IN_POD) == ()


def test_a_duplicate_mac_ranks_before_the_gateways_that_both_machines_hold() -> None:
    """Candidates with one MAC do not hear each other."""
    _, intent, _ = lab("upstream-vrrp")
    seen = whole(intent)
    holder = intent.gateways[0].holder
    assert holder is not None
    other = next(candidate for candidate in intent.gateways[0].candidates if candidate != holder)
    held = seen[holder].link("eth1")
    assert held is not None
    seen = with_link(seen, other, "eth1", mac=held.mac, addresses=held.addresses)
    found = findings("upstream-vrrp", seen, f"pod-pod/{holder}-p1/{other}-p1/udp-small")
    assert [one.kind for one in found][:2] == ["duplicate-mac", "duplicate-address"]


def test_a_duplicate_pod_cidr_is_reported_and_the_wrong_route_it_causes_is_not() -> None:
    other = lab("overlay")[1].machine("worker2").bridge
    assert other is not None
    seen = with_address(overlay(), "master", "cni0", *other.addresses)
    seen = without_routes(seen, "master", "10.244.2.0/24")
    assert told(findings("overlay", seen, TO_W2)) == [("duplicate-pod-cidr", "master")]


def test_a_duplicate_pod_address_is_reported_on_its_node() -> None:
    pods = lab("overlay")[1].machine("worker1").pods
    taken, seen = next(pod.address for pod in pods if pod.name == "worker1-p1"), overlay()
    first, *others = seen["master"].pods or ()
    (link,) = first.links
    thief = replace(first, links=(replace(link, addresses=(*link.addresses, taken)),))
    seen = broken(seen, "master", pods=(thief, *others))
    assert told(findings("overlay", seen, TO_W1)) == [("duplicate-address", "master")]


def test_a_machine_that_does_not_answer_is_named() -> None:
    silence = BrokenError("running a command", "no route to host")
    explainer = Explainer(lab("overlay")[1], {**overlay(), "worker1": silence})
    (found,) = explainer.explain(flow_of(cell("overlay", TO_W1))).findings
    assert (found.kind, found.node) == ("machine-silent", "worker1")
    assert "no route to host" in found.sentence


@pytest.mark.parametrize(
    ("unread", "named"),
    [
        (Unread("nftables", "exit code 137"), "the answer to 'nftables'"),
        (Unread("state", "cannot fork", "worker1-p1"), "pod worker1-p1"),
    ],
)
def test_a_part_of_a_machine_that_could_not_be_read_is_named(unread: Unread, named: str) -> None:
    seen = overlay()
    pods = tuple(pod for pod in seen["worker1"].pods or () if pod.name != unread.pod)
    seen = broken(seen, "worker1", unread=(unread,), pods=pods)
    explainer = Explainer(lab("overlay")[1], seen)
    (found,) = explainer.explain(flow_of(cell("overlay", TO_W1))).findings
    assert (found.kind, found.node, found.object) == ("machine-silent", "worker1", named)
    assert unread.reason in found.sentence
    assert [one.kind for one in explainer.everything()] == ["machine-silent"]


def test_where_the_intent_leads_nowhere_that_is_the_answer() -> None:
    _, intent, _ = lab("overlay")
    machines = tuple(
        replace(machine, routes=()) if machine.name == "master" else machine
        for machine in intent.machines
    )
    changed = replace(intent, machines=machines)
    (found,) = Explainer(changed, whole(changed)).explain(flow_of(cell("overlay", TO_W1))).findings
    assert (found.kind, found.node) == ("intent-ends", "master")
    assert "has no route" in found.observed


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
    seen = whole(intent)
    pods = tuple(pod for pod in seen["worker1"].pods or () if pod.name != gone.name)
    seen["worker1"] = replace(seen["worker1"], pods=pods)
    bound = replace(
        intent, machines=machines, kubernetes=KubernetesIntent("1.36", "", "", "10.96.0.10")
    )
    flow = Flow("master-p1", gone.address.partition("/")[0], 8080, "tcp")
    found = Explainer(bound, seen).explain(flow).findings
    kinds = [one.kind for one in found if one.kind in {"pod-missing", "intent-ends"}]
    assert kinds == ["pod-missing", "intent-ends"]


def test_a_service_with_several_backends_is_explained_by_the_one_that_is_broken() -> None:
    _, intent, matrix = lab("overlay")
    shared = next(one for grid in matrix.grids for one in grid.cells() if len(one.backends) > 1)
    node, port = next(
        (machine.name, pod.port)
        for machine in intent.machines
        for pod in machine.pods
        if pod.name == shared.backends[-1]
    )
    seen = down(whole(intent), node, port)
    assert told(findings("overlay", seen, shared.id)) == [("pod-link-down", node)]


def test_pods_that_were_not_looked_into_are_not_missed() -> None:
    _, intent, _ = lab("overlay")
    scope = select_machines(intent, walk(intent, flow_of(cell("overlay", TO_W1))))
    assert scope == {"master": ("master-p1",), "worker1": ("worker1-p1",)}
    seen = {
        name: replace(facts, pods=tuple(pod for pod in facts.pods or () if pod.name in scope[name]))
        for name, facts in whole(intent).items()
        if name in scope
    }
    assert findings("overlay", seen, TO_W1) == ()


def test_of_many_failures_the_machines_they_have_in_common_are_looked_at() -> None:
    _, intent, matrix = lab("overlay")
    failed = [one for one in matrix.cells() if one.target.node == "worker1"]
    scope = of_failures(intent, failed)
    assert set(scope["worker1"]) >= {"worker1-p1", "worker1-p2"}


@pytest.mark.room
def test_every_fault_of_the_catalogue_is_what_some_kind_looks_like() -> None:
    by_kind = {name for name, fault in registry.faults().items() if not fault.kind}
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
    seen = whole(intent)
    refused = tuple(
        service for service in seen["worker2"].translations.services if not service.backends
    )
    assert refused
    lost = translations("worker2", services=refused)(seen)
    said = {one.kind for one in Explainer(intent, lost).elsewhere() if one.node == "worker2"}
    assert {one for one in said if one.startswith("service-")} == {"service-rules-missing"}


def test_a_service_that_is_refused_is_refused_by_a_machine_that_forwards() -> None:
    _, intent, _ = lab("services")
    seen = broken(whole(intent), "worker1", forwards=False)
    refused = flow_of(cell("services", "no-endpoints/worker1-p1/nobody/tcp-small"))
    found = Explainer(intent, seen).explain(refused, works=False).findings
    assert told(found) == [("forwarding-off", "worker1")]
