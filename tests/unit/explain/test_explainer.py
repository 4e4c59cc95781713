"""From what was seen to the first thing that is wrong on a path, and nothing beside the path."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from seen_machines import lab, neighbour, whole

import lab as lab_package
from lab._errors import BrokenError
from lab.explain.causes import of_failures
from lab.explain.check import Difference, differs, kinds
from lab.explain.explainer import Explainer, _causes
from lab.explain.faults import registry
from lab.explain.question import asked, flow_of
from lab.facts.node import NodeFacts, Unit
from lab.facts.translations import Barrier
from lab.matrix.cell import Cell
from lab.matrix.verdict import Finding
from lab.topology.intent import Intent
from lab.topology.walk import walk

Seen = dict[str, NodeFacts]
KINDS = ("overlay", "host-gateway", "upstream-tor", "hard-way", "ovn")


def cell(name: str, id_: str) -> Cell:
    _, _, matrix = lab(name)
    found = matrix.find(id_)
    assert found is not None, id_
    return found


def findings(intent: Intent, seen: Seen, asked_for: Cell) -> tuple[Finding, ...]:
    return Explainer(intent, seen).explain(flow_of(asked_for)).findings


def broken(seen: Seen, node: str, **what: object) -> Seen:
    return {**seen, node: replace(seen[node], **what)}  # type: ignore[arg-type]


def test_a_node_without_its_card_cannot_ask_even_for_its_own_backend() -> None:
    """The Service's address has no route then, wherever the backend is."""
    _, intent, _ = lab("overlay")
    seen = down(whole(intent), "worker1", "eth0")
    own, pods = (
        "node-service/worker1/to-worker1-p1/tcp-small",
        "pod-service/worker1-p1/to-worker1-p2/tcp-small",
    )
    assert [one.kind for one in findings(intent, seen, cell("overlay", own))] == ["link-down"]
    assert findings(intent, seen, cell("overlay", pods)) == ()


# what is wrong on hypervisor-02, and the kind that is told, of packets from controller-01
ON_A_HYPERVISOR = [
    (lambda seen: down(seen, "hypervisor-02", "eth0"), "link-down"),
    (lambda seen: down(seen, "hypervisor-02", "vnet0"), "link-down"),
    (lambda seen: down(seen, "hypervisor-02", "br-nodes"), "bridge-down"),
    (lambda seen: down(seen, "hypervisor-02", "vxlan-nodes"), "tunnel-down"),
    (lambda seen: unplugged(seen, "hypervisor-02", "vxlan-nodes"), "unplugged"),
    (lambda seen: unplugged(seen, "hypervisor-02", "vnet0"), "unplugged"),
    (lambda seen: broken(seen, "hypervisor-02", forwarding=()), "entry-missing"),
]
BETWEEN_HYPERVISORS = "pod-pod/controller-01-p1/compute-01-p1/tcp-small"
ON_ONE = "pod-pod/controller-01-p1/controller-02-p1/tcp-small"


@pytest.mark.parametrize(("harm", "kind"), ON_A_HYPERVISOR)
def test_what_is_wrong_between_hypervisors_is_told_of_what_goes_there(
    harm: Callable[[Seen], Seen], kind: str
) -> None:
    _, intent, _ = lab("kubeinit")
    seen = whole(intent)
    assert findings(intent, seen, cell("kubeinit", BETWEEN_HYPERVISORS)) == ()
    harmed = harm(seen)
    found = findings(intent, harmed, cell("kubeinit", BETWEEN_HYPERVISORS))
    assert [(one.kind, one.node) for one in found][:1] == [(kind, "hypervisor-02")]
    assert findings(intent, harmed, cell("kubeinit", ON_ONE)) == ()


def unplugged(seen: Seen, node: str, device: str) -> Seen:
    links = tuple(
        replace(one, master=None) if one.name == device else one for one in seen[node].links
    )
    return broken(seen, node, links=links)


def test_a_card_that_is_down_goes_before_the_port_that_hears_nothing() -> None:
    _, intent, _ = lab("kubeinit")
    seen = down(whole(intent), "compute-01", "eth0")
    links = tuple(
        replace(one, carrier=False) if one.name == "vnet0" else one
        for one in seen["hypervisor-02"].links
    )
    seen = broken(seen, "hypervisor-02", links=links)
    found = findings(intent, seen, cell("kubeinit", BETWEEN_HYPERVISORS))
    assert [one.node for one in found if one.kind == "link-down"] == ["compute-01", "hypervisor-02"]


@pytest.mark.parametrize("name", KINDS)
def test_of_a_lab_as_intended_nothing_is_said(name: str) -> None:
    _, intent, matrix = lab(name)
    explainer = Explainer(intent, whole(intent))
    assert explainer.elsewhere() == ()
    for grid in matrix.grids:
        for one in list(grid.cells())[::7]:
            assert explainer.explain(flow_of(one)).findings == (), one.id


def down(seen: Seen, node: str, device: str) -> Seen:
    links = tuple(
        replace(one, up=False, carrier=False) if one.name == device else one
        for one in seen[node].links
    )
    return broken(seen, node, links=links)


def barred(seen: Seen, node: str, **what: object) -> Seen:
    rule = Barrier("table ip x, chain y", "a rule", **what)  # type: ignore[arg-type]
    return broken(seen, node, barriers=(rule,))


def without_route(seen: Seen, node: str, to: str) -> Seen:
    kept = tuple(one for one in seen[node].routes if one.destination != to)
    assert len(kept) < len(seen[node].routes)
    return broken(seen, node, routes=kept)


def other_tunnel(seen: Seen, node: str, **what: object) -> Seen:
    (tunnel,) = seen[node].tunnels
    return broken(seen, node, tunnels=(replace(tunnel, **what),))  # type: ignore[arg-type]


def wrong_neighbour(seen: Seen, node: str, address: str, device: str) -> Seen:
    there = [one for one in seen[node].neighbours if one.neighbour.address != address]
    wrong = neighbour(address, "02:00:00:00:00:01", device)
    return broken(seen, node, neighbours=(*there, wrong))


TO_W1 = "pod-pod/master-p1/worker1-p1/tcp-small"
TO_W2 = "pod-pod/master-p1/worker2-p1/tcp-small"
IN_POD = "pod-pod/master-p1/master-p2/tcp-small"
SERVICE = "pod-service/master-p1/to-worker1-p1/tcp-small"
NODEPORT = "nodeport/client/worker1:to-worker1-p1/tcp-small"
OUT = "pod-external/worker1-p1/client/tcp-small"

WAYS: dict[str, tuple[Callable[[Seen], Seen], str, str, str, str]] = {
    # what is broken, the kind and node that are named, of which cell, and a cell beside it
    "a card": (lambda seen: down(seen, "worker1", "eth0"), "link-down", "worker1", TO_W1, TO_W2),
    "a bridge": (
        lambda seen: down(seen, "worker1", "cni0"),
        "bridge-down",
        "worker1",
        TO_W1,
        TO_W2,
    ),
    "a pod's port": (
        lambda seen: down(seen, "worker1", "veth1"),
        "pod-link-down",
        "worker1",
        TO_W1,
        "pod-pod/master-p1/worker1-p2/tcp-small",
    ),
    "a route": (
        lambda seen: without_route(seen, "master", "10.244.1.0/24"),
        "route-missing",
        "master",
        TO_W1,
        TO_W2,
    ),
    "a route back": (
        lambda seen: without_route(seen, "worker1", "10.244.0.0/24"),
        "route-missing",
        "worker1",
        TO_W1,
        "pod-pod/worker2-p1/worker1-p1/tcp-small",
    ),
    "VNI": (
        lambda seen: other_tunnel(seen, "worker1", vni=4097),
        "wrong-vni",
        "worker1",
        TO_W1,
        TO_W2,
    ),
    "port": (
        lambda seen: other_tunnel(seen, "master", port=8472),
        "wrong-port",
        "master",
        TO_W1,
        IN_POD,
    ),
    "a neighbour": (
        lambda seen: wrong_neighbour(seen, "master", "10.244.1.0", "flannel.4096"),
        "stale-neighbour",
        "master",
        TO_W1,
        TO_W2,
    ),
    "an entry": (
        lambda seen: broken(
            seen,
            "master",
            forwarding=tuple(
                one for one in seen["master"].forwarding if one.remote != "10.9.176.11"
            ),
        ),
        "entry-missing",
        "master",
        TO_W1,
        TO_W2,
    ),
    "forwarding": (
        lambda seen: broken(seen, "worker1", forwards=False),
        "forwarding-off",
        "worker1",
        TO_W1,
        "pod-pod/worker1-p1/worker1-p2/tcp-small",
    ),
    "the tunnel's port dropped": (
        lambda seen: barred(seen, "worker1", protocol="udp", ports=(4789, 4789)),
        "tunnel-port-dropped",
        "worker1",
        TO_W1,
        TO_W2,
    ),
    "the tunnel's port rejected": (
        lambda seen: barred(seen, "worker1", protocol="udp", ports=(4789, 4789), refuses=True),
        "tunnel-port-rejected",
        "worker1",
        TO_W1,
        TO_W2,
    ),
    "NodePorts": (
        lambda seen: barred(seen, "worker1", protocol="tcp", ports=(30000, 32767)),
        "node-port-barred",
        "worker1",
        NODEPORT,
        "nodeport/client/worker2:to-worker2-p1/tcp-small",
    ),
    "NodePorts of the other protocol": (
        lambda seen: barred(seen, "worker1", protocol="tcp", ports=(30000, 32767)),
        "node-port-barred",
        "worker1",
        NODEPORT,
        "nodeport/client/worker1:to-worker1-p1/udp-small",
    ),
    "some packets of a card": (
        lambda seen: barred(seen, "worker1", by_chance=True, device="eth0"),
        "packets-lost",
        "worker1",
        TO_W1,
        "pod-pod/worker1-p1/worker1-p2/tcp-small",
    ),
    "one pod's packets": (
        lambda seen: barred(seen, "worker1", prefixes=("10.244.0.4/32",)),
        "packets-barred",
        "worker1",
        TO_W1,
        "pod-pod/master-p2/worker1-p1/tcp-small",
    ),
    "a shaper": (
        lambda seen: broken(seen, "worker1", shapers=(Barrier("eth0", "tbf rate 1mbit"),)),
        "slowed",
        "worker1",
        TO_W1,
        TO_W2,
    ),
    "masquerade": (
        lambda seen: broken(
            seen,
            "worker1",
            translations=replace(seen["worker1"].translations, masquerades=()),
        ),
        "masquerade-missing",
        "worker1",
        OUT,
        TO_W1,
    ),
    "an exception of masquerade": (
        lambda seen: broken(
            seen,
            "worker1",
            translations=replace(
                seen["worker1"].translations,
                masquerades=(replace(seen["worker1"].translations.masquerades[0], spared=()),),
            ),
        ),
        "masquerade-exception-missing",
        "worker1",
        "pod-pod/worker1-p1/master-p1/tcp-small",
        OUT,
    ),
    "all Services": (
        lambda seen: broken(
            seen, "master", translations=replace(seen["master"].translations, services=())
        ),
        "service-rules-missing",
        "master",
        SERVICE,
        TO_W1,
    ),
    "a large packet": (
        lambda seen: broken(
            seen,
            "worker1",
            bridges=tuple(replace(one, mtu=1200) for one in seen["worker1"].bridges),
        ),
        "bridge-mtu",
        "worker1",
        TO_W1,
        TO_W2,
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_what_is_broken_is_named_where_it_is_met_and_nowhere_else(way: str) -> None:
    breaks, kind, node, hit, beside = WAYS[way]
    _, intent, _ = lab("overlay")
    seen = breaks(whole(intent))
    first = findings(intent, seen, cell("overlay", hit))[0]
    assert (first.kind, first.node, first.fault) == (kind, node, kinds()[kind].fault)
    assert first.hop >= 0
    assert findings(intent, seen, cell("overlay", beside)) == ()


def stale(seen: Seen, node: str, service: str, gone: str) -> Seen:
    there = seen[node].translations
    services = tuple(
        replace(one, backends=tuple(end._replace(address=gone) for end in one.backends))
        if one.address == service
        else one
        for one in there.services
    )
    return broken(seen, node, translations=replace(there, services=services))


def test_masquerade_without_an_exception_is_met_between_pods_of_one_bridge_too() -> None:
    _, intent, _ = lab("overlay")
    breaks = WAYS["an exception of masquerade"][0]
    same = cell("overlay", "pod-pod/worker1-p1/worker1-p2/tcp-small")
    (found,) = findings(intent, breaks(whole(intent)), same)
    assert (found.kind, found.node) == ("masquerade-exception-missing", "worker1")


def test_a_stale_backend_is_named_for_its_own_service_and_entrance() -> None:
    _, intent, _ = lab("overlay")
    asked_for = cell("overlay", SERVICE)
    seen = stale(whole(intent), "master", asked_for.target.address, "10.244.1.254")
    (first,) = findings(intent, seen, asked_for)
    assert (first.kind, first.node) == ("stale-backend", "master")
    other = cell("overlay", "pod-service/master-p1/to-worker1-p2/tcp-small")
    assert findings(intent, seen, other) == ()
    by_port = cell("overlay", "nodeport/client/master:to-master-p1/tcp-small")
    assert findings(intent, seen, by_port) == ()


def test_the_first_on_the_way_is_the_answer_and_the_rest_follow() -> None:
    _, intent, _ = lab("overlay")
    seen = other_tunnel(whole(intent), "worker1", vni=4097)
    seen = without_route(seen, "master", "10.244.1.0/24")
    kinds = [one.kind for one in findings(intent, seen, cell("overlay", TO_W1))]
    assert kinds == ["route-missing", "wrong-vni"]


def test_what_only_follows_comes_last() -> None:
    _, intent, _ = lab("host-gateway")
    seen = whole(intent)
    nodes = [one for one in intent.machines if one.pods]
    source, target = nodes[0], nodes[1]
    address = target.interfaces[0].addresses[0].partition("/")[0]
    silent = tuple(
        replace(one, neighbour=replace(one.neighbour, mac=""), state="FAILED")
        if one.neighbour.address == address
        else one
        for one in seen[source.name].neighbours
    )
    seen = broken(seen, source.name, neighbours=silent)
    asked_for = cell(
        "host-gateway", f"pod-pod/{source.pods[0].name}/{target.pods[0].name}/tcp-small"
    )
    assert findings(intent, seen, asked_for)[0].kind == "neighbour-silent"
    both = findings(intent, down(seen, target.name, "eth0"), asked_for)
    assert [one.kind for one in both][:2] == ["link-down", "neighbour-silent"]


def test_a_program_that_is_down_is_told_after_what_packets_meet() -> None:
    _, intent, _ = lab("overlay")
    seen = broken(whole(intent), "master", units=(Unit("flanneld", "failed"),))
    asked_for = cell("overlay", TO_W1)
    assert findings(intent, seen, asked_for)[0].kind == "program-down"
    both = findings(intent, without_route(seen, "master", "10.244.1.0/24"), asked_for)
    assert [one.kind for one in both] == ["route-missing", "program-down"]


def test_a_dns_without_pods_is_named_and_not_the_refusals_that_follow_from_it() -> None:
    def one(kind: str, node: str, thing: str) -> Difference:
        return differs(kind, node, thing, "wanted", "seen", "see", "mend")

    scaled = one("dns-scaled-down", "master", "Deployment coredns")
    other = one("backend-missing", "worker1", "Service to-master-p1, 10.96.0.7:8080, tcp")
    refused = one("backend-missing", "worker1", "Service kube-dns, 10.96.0.10:53, tcp and udp")
    assert _causes([refused, scaled, other]) == [scaled, other]
    assert _causes([refused, other]) == [refused, other]


def test_one_mac_twice_is_told_of_the_one_that_should_not_have_it() -> None:
    _, intent, _ = lab("overlay")
    seen = whole(intent)
    taken = seen["worker2"].link("eth0")
    assert taken is not None
    links = tuple(
        replace(one, mac=taken.mac) if one.name == "eth0" else one for one in seen["worker1"].links
    )
    seen = broken(seen, "worker1", links=links)
    for hit in (TO_W1, TO_W2):  # the node that has it, and the one that it belongs to
        found = findings(intent, seen, cell("overlay", hit))
        assert [(one.kind, one.node) for one in found] == [("duplicate-mac", "worker1")]
    assert findings(intent, seen, cell("overlay", IN_POD)) == ()


def test_one_mac_twice_is_told_before_the_virtual_gateways_that_both_then_hold() -> None:
    """Candidates with one MAC do not hear each other."""
    _, intent, _ = lab("upstream-vrrp")
    seen = whole(intent)
    holder = intent.gateways[0].holder
    assert holder is not None
    other = next(one for one in intent.gateways[0].candidates if one != holder)
    held = seen[holder].link("eth1")
    assert held is not None
    copied = tuple(held if one.name == "eth1" else one for one in seen[other].links)
    seen = broken(seen, other, links=copied)
    found = findings(
        intent, seen, cell("upstream-vrrp", f"pod-pod/{holder}-p1/{other}-p1/udp-small")
    )
    assert [one.kind for one in found][:2] == ["duplicate-mac", "duplicate-address"]


def test_a_node_with_anothers_pod_cidr_is_told_so_and_not_of_its_wrong_route() -> None:
    _, intent, _ = lab("overlay")
    seen = whole(intent)
    other = intent.machine("worker2").bridge
    assert other is not None
    links = tuple(
        replace(one, addresses=(*one.addresses, *other.addresses)) if one.name == "cni0" else one
        for one in seen["master"].links
    )
    seen = broken(seen, "master", links=links)
    seen = without_route(seen, "master", "10.244.2.0/24")
    found = findings(intent, seen, cell("overlay", TO_W2))
    assert [(one.kind, one.node) for one in found] == [("duplicate-pod-cidr", "master")]


def test_a_pod_with_anothers_address_is_told_on_its_node() -> None:
    _, intent, _ = lab("overlay")
    seen = whole(intent)
    taken = next(one.address for one in intent.machine("worker1").pods if one.name == "worker1-p1")
    pods = tuple(
        replace(
            one,
            links=tuple(replace(link, addresses=(*link.addresses, taken)) for link in one.links),
        )
        if one.name == "master-p1"
        else one
        for one in seen["master"].pods or ()
    )
    seen = broken(seen, "master", pods=pods)
    found = findings(intent, seen, cell("overlay", TO_W1))
    assert [(one.kind, one.node) for one in found] == [("duplicate-address", "master")]


def test_a_machine_that_does_not_answer_is_named() -> None:
    _, intent, _ = lab("overlay")
    silence = BrokenError("running a command", "no route to host")
    explainer = Explainer(intent, {**whole(intent), "worker1": silence})
    (found,) = explainer.explain(flow_of(cell("overlay", TO_W1))).findings
    assert (found.kind, found.node) == ("machine-silent", "worker1")
    assert "no route to host" in found.sentence


def test_where_the_intent_leads_nowhere_that_is_the_answer() -> None:
    _, intent, _ = lab("overlay")
    machines = tuple(
        replace(one, routes=()) if one.name == "master" else one for one in intent.machines
    )
    changed = replace(intent, machines=machines)
    (found,) = findings(changed, whole(changed), cell("overlay", TO_W1))
    assert (found.kind, found.node) == ("intent-ends", "master")
    assert "has no route" in found.observed


def test_a_service_with_several_backends_is_explained_by_the_one_that_is_broken() -> None:
    _, intent, matrix = lab("overlay")
    shared = next(one for grid in matrix.grids for one in grid.cells() if len(one.backends) > 1)
    seen = whole(intent)
    last = shared.backends[-1]
    node = next(one for one in intent.machines if last in {pod.name for pod in one.pods})
    port = next(pod.port for pod in node.pods if pod.name == last)
    (found,) = findings(intent, down(seen, node.name, port), shared)
    assert (found.kind, found.node) == ("pod-link-down", node.name)


def test_pods_that_were_not_looked_into_are_not_missed() -> None:
    _, intent, _ = lab("overlay")
    asked_for = cell("overlay", TO_W1)
    scope = asked(intent, walk(intent, flow_of(asked_for)))
    assert scope == {"master": ("master-p1",), "worker1": ("worker1-p1",)}
    seen = {
        name: replace(facts, pods=tuple(one for one in facts.pods or () if one.name in scope[name]))
        for name, facts in whole(intent).items()
        if name in scope
    }
    assert findings(intent, seen, asked_for) == ()


def test_of_many_failures_the_machines_they_have_in_common_are_looked_at() -> None:
    _, intent, matrix = lab("overlay")
    every = [one for grid in matrix.grids for one in grid.cells()]
    failed = [one for one in every if one.target.node == "worker1"]
    scope = of_failures(intent, failed)
    assert "worker1" in scope
    assert set(scope["worker1"]) >= {"worker1-p1", "worker1-p2"}


def test_every_fault_of_the_catalogue_is_what_some_kind_looks_like() -> None:
    assert {kind.fault for kind in kinds().values() if kind.fault} == set(registry.faults())


def test_nothing_of_it_knows_what_was_put_in_on_purpose() -> None:
    root = Path(lab_package.__file__).parent
    explaining = [*(root / "explain").glob("*.py"), *(root / "explain/checks").glob("*.py")]
    assert len(explaining) > 15
    for path in (*explaining, root / "lifecycle/explain.py", *(root / "facts").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [one.name for one in getattr(node, "names", ())]
            imported = [f"{getattr(node, 'module', '')}.{name}" for name in names]
            told = [one for one in imported if "faults" in one]
            assert told == [], path


def test_services_that_are_refused_still_do_not_hide_that_none_is_translated() -> None:
    _, intent, _ = lab("services")
    seen = whole(intent)
    there = seen["worker2"].translations
    refused = tuple(one for one in there.services if not one.backends)
    assert refused
    lost = broken(seen, "worker2", translations=replace(there, services=refused))
    said = {one.kind for one in Explainer(intent, lost).elsewhere() if one.node == "worker2"}
    assert {one for one in said if one.startswith("service-")} == {"service-rules-missing"}


def test_a_service_that_is_refused_is_refused_by_a_machine_that_forwards() -> None:
    _, intent, _ = lab("services")
    seen = broken(whole(intent), "worker1", forwards=False)
    refused = cell("services", "no-endpoints/worker1-p1/nobody/tcp-small")
    found = Explainer(intent, seen).explain(flow_of(refused), works=False).findings
    assert [(one.kind, one.node) for one in found] == [("forwarding-off", "worker1")]
