"""What differs on nodes of an existing cluster, by comparing them with each other."""

import json
from dataclasses import replace

import pytest
from attached_clusters import node, record

from lab._errors import BrokenError
from lab.explain.objects import split_by_path
from lab.facts.difference import DEVIATION, NOT_ASKED, SILENT
from lab.facts.items import (
    Items,
    LinkFacts,
    make_device_items,
    make_entry,
    make_neighbour,
    make_route,
    make_setting,
)
from lab.facts.ruleset import read_ruleset
from lab.facts.state import State
from lab.machines.attached import design
from lab.machines.attached.objects import make_objects
from lab.machines.attached.peers import compare_flannel, compare_nodes
from lab.machines.attached.recognise import Reading
from lab.machines.attached.record import ProbeTerms
from lab.machines.attached.words import summarise
from lab.machines.cluster.probe_manifests import ObjectOwner
from lab.topology.path import Flow
from lab.topology.walk import walk

NAMES = ("plane", "w1", "w2", "w3")
MACS = {name: f"02:00:00:00:00:0{number}" for number, name in enumerate(NAMES)}
OWN = """\
table ip nat {{
	chain post {{
		type nat hook postrouting priority srcnat; policy accept;
		ip daddr 10.244.{}.0/24 return # handle 3
	}}
}}
"""
DROPS = """\
table inet block {
	chain all {
		type filter hook forward priority filter; policy accept;
		meta l4proto udp drop # handle 4
	}
}
"""


def found(*names):
    """The record of a cluster of these nodes, by flannel."""
    made = [
        node(
            name,
            NAMES.index(name),
            annotations={
                "flannel.alpha.coreos.com/backend-type": "vxlan",
                "flannel.alpha.coreos.com/public-ip": f"10.9.0.{10 + NAMES.index(name)}",
                "flannel.alpha.coreos.com/backend-data": json.dumps(
                    {"VNI": 1, "VtepMAC": MACS[name]}
                ),
            },
        )
        for name in names
    ]
    return record(nodes=Reading(tuple(made))).cluster.nodes, made


RIGHT = {"mtu": 1450, "rules": "", "forward": "1", "route": True, "entry": True, "mac": ""}


def state(name, *others, **changed):
    """The state of a node that reaches the others over flannel's tunnel; ``changed``: RIGHT."""
    has = RIGHT | changed
    number = NAMES.index(name)
    card, tunnel = f"0a:{MACS[name][3:]}", has["mac"] or MACS[name]
    links = (
        LinkFacts("eth0", "", card, (f"10.9.0.{10 + number}/24",), 1500, up=True, carrier=True),
        LinkFacts(
            *("flannel.1", "vxlan", tunnel, (f"10.244.{number}.0/32",), has["mtu"]),
            up=True,
            carrier=True,
        ),
    )
    items = [item for link in links for item in make_device_items(link)]
    items += [
        make_setting("ipv4/ip_forward", has["forward"]),
        make_setting("ipv4/conf/eth0/forwarding", has["forward"]),
        make_setting("ipv4/tcp_mem", str(number // 3)),
        make_route(f"10.244.{number}.0/24 dev cni0 proto kernel src 10.244.{number}.1"),
    ]
    for other in (other for other in others if other != name):
        subnet = f"10.244.{NAMES.index(other)}.0"
        items.append(make_neighbour(subnet, "flannel.1", MACS[other]))
        if has["route"]:
            items.append(make_route(f"{subnet}/24 via {subnet} dev flannel.1 onlink"))
        if has["entry"]:
            items.append(make_entry(MACS[other], "flannel.1", f"10.9.0.{10 + NAMES.index(other)}"))
    return State(Items.of(items), read_ruleset(OWN.format(number) + has["rules"]), ("boot", name))


def compare(names=NAMES, **changed):
    nodes, objects = found(*names)
    states = {name: state(name, *names, **changed.get(name, {})) for name in names}
    return (*compare_flannel(objects, states), *compare_nodes(nodes, states))


@pytest.mark.parametrize("names", [NAMES, NAMES[:3]])
def test_nodes_that_differ_only_in_what_is_their_own_are_right(names):
    assert compare(names) == ()


@pytest.mark.parametrize("names", [NAMES, NAMES[:3]])
@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"mtu": 1300}, "on w1, flannel.1 mtu: 1300; it should be: 1450, as on "),
        ({"rules": DROPS}, "on w1, table inet block: "),
        ({"forward": "0"}, "on w1, setting net/ipv4/ip_forward: 0; it should be: 1, as on "),
    ],
)
def test_what_one_node_has_otherwise_than_the_others_is_wrong_there(names, change, sentence):
    (wrong,) = compare(names, w1=change)
    assert wrong.sentence.startswith(sentence)
    assert (wrong.node, wrong.kind) == ("w1", DEVIATION)
    assert wrong.shows.startswith("on w1: ")


@pytest.mark.parametrize("names", [NAMES, NAMES[:3]])
def test_a_route_that_all_others_have_is_missing_though_its_own_node_has_none(names):
    differences = compare(names, w1={"route": False})
    missing = {(each.node, each.object) for each in differences}
    others = (NAMES.index(name) for name in names if name != "w1")
    assert missing == {("w1", f"route to 10.244.{number}.0/24") for number in others}


def test_an_entry_that_flannel_notes_is_missing_in_the_tunnel():
    first, second = compare(NAMES[:3], w1={"entry": False})
    assert (first.node, first.intended) == ("w1", "10.9.0.10, for plane")
    assert second.mends == (
        f"on w1: bridge fdb replace {MACS['w2']} dev flannel.1 dst 10.9.0.12 self permanent"
    )


def test_a_tunnel_has_the_mac_that_its_node_object_says():
    (wrong,) = compare(NAMES[:2], w1={"mac": "02:00:00:00:00:99"})[:1]
    assert wrong.intended == f"{MACS['w1']}, as Node w1 says"


@pytest.mark.parametrize("data", ["", "{", "[]", '{"VNI": "x", "VtepMAC": "y"}'])
def test_annotations_that_cannot_be_read_say_nothing(data):
    _, objects = found("plane", "w1")
    for each in objects:
        each["metadata"]["annotations"]["flannel.alpha.coreos.com/backend-data"] = data
    assert [*compare_flannel(objects, {"plane": state("plane", "w1")})] == []


def test_two_nodes_alone_are_not_compared_and_one_that_does_not_answer_is_named():
    nodes, _ = found("plane", "w1", "w2")
    lost = BrokenError("running sh", "the pod is gone")
    states = {"plane": state("plane", "w1"), "w1": state("w1", "plane", mtu=9), "w2": lost}
    kinds = [(each.kind, each.node) for each in compare_nodes(nodes, states)]
    assert kinds == [(SILENT, "w2"), (NOT_ASKED, "plane"), (NOT_ASKED, "w1")]


def test_a_part_that_a_node_does_not_tell_is_no_difference():
    nodes, _ = found("plane", "w1", "w2")
    names = [each.name for each in nodes]
    states = {name: state(name, *names) for name in names}
    states["w1"] = replace(state("w1", *names, mtu=9), silent={"route": "exit code 1"})
    kinds = {(each.kind, each.node, each.object) for each in compare_nodes(nodes, states)}
    assert (DEVIATION, "w1", "flannel.1 mtu") in kinds
    assert all(node == "w1" or kind == SILENT for kind, node, _ in kinds)


def test_a_node_that_differs_is_the_cause_of_cells_whose_path_passes_it():
    made = record()
    nodes, _ = found(*NAMES[:3])
    states = {name: state(name, *NAMES[:3]) for name in NAMES[:3]}
    (wrong,) = compare_nodes(nodes, states | {"plane": state("plane", *NAMES[:3], mtu=9)})
    (path,) = walk(design.decide(made).intent, Flow("plane-p1", "10.96.0.10", 53, "udp"))
    ((_, near),), others = split_by_path(path, [wrong], "")
    assert (near.node, near.hop, others) == ("plane", 0, [])


def test_a_debug_pod_may_read_all_of_its_node_and_others_may_not():
    made = record(ProbeTerms(debug_pods=True, pull_secrets=("pull",)))
    objects = make_objects(made, design.decide(made).intent, ObjectOwner("prod", "0123"))
    assert objects.namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == (
        "privileged"
    )
    pods = {each["metadata"]["name"]: each for each in objects.pods}
    privileged = {
        name
        for name, pod in pods.items()
        if pod["spec"]["containers"][0]["securityContext"].get("privileged")
    }
    assert privileged == {"plane-debug", "worker-debug"}
    (container,) = pods["plane-debug"]["spec"]["containers"]
    assert container["command"] == ["/agnhost", "pause"], "it listens on nothing"
    assert pods["plane-debug"]["metadata"]["labels"]["hybridlab.io/token"] == "0123"
    assert pods["plane-debug"]["spec"]["imagePullSecrets"] == [{"name": "pull"}]
    assert "will create 6 pods, one on each Linux node privileged" in "".join(summarise(made))
