"""Network cards found by their MAC, the management kept apart, and one machine compiled."""

from dataclasses import replace

import pytest

from lab._errors import BrokenError
from lab.lifecycle.compilation import compile_scenario
from lab.machines.agents import files, network
from lab.providers.netns.compile import compile_machine
from lab.providers.netns.netlink import Link
from lab.providers.netns.operations import MtuSet, RouteAdd, RouteSet, RulesetLoad, SysctlSet
from lab.topology.intent import Interface

INTENT = compile_scenario("overlay", only="linux").intent
WORKER = INTENT.machine("worker1")
CARD = WORKER.interfaces[0]
MANAGEMENT = Link("mgmt0", 2, "52:54:00:00:00:01", "", carrier=True)


def link(name: str, mac: str = CARD.mac, kind: str = "", index: int = 3) -> Link:
    return Link(name, index, mac, kind, carrier=True)


@pytest.mark.parametrize(
    ("there", "index"),
    [
        ([MANAGEMENT, link("ens4")], 3),
        ([link("br0", kind="bridge", index=9), link("ens4")], 3),
        ([link("ens4"), link("eth0", index=4)], 4),
    ],
    ids=["by its MAC", "not a bridge with its MAC", "of two, by its name"],
)
def test_a_card_is_found(there, index):
    assert network.find_cards(there, WORKER)["eth0"].index == index


@pytest.mark.parametrize(
    ("there", "says"),
    [
        ([replace(MANAGEMENT, mac=CARD.mac)], "no such card; it has 'mgmt0'"),
        (
            [link("eth0", mac="02:00:00:00:00:01"), link("eth1", index=4)],
            "another device already has this name",
        ),
    ],
)
def test_a_card_of_others_is_never_taken(there, says):
    with pytest.raises(BrokenError, match=says):
        network.find_cards(there, WORKER)


def test_cards_may_have_each_others_names():
    other = Interface("eth1", "outside", "02:00:00:00:00:02", (), 1500)
    both = replace(WORKER, interfaces=(CARD, other))
    links = network.find_cards([link("eth1"), link("eth0", mac=other.mac, index=4)], both)
    assert (links["eth0"].index, links["eth1"].index) == (3, 4)


def test_indexes_are_beyond_all_that_are_there():
    assert network.first_index([MANAGEMENT]) == 1001
    assert network.first_index([link("x", index=5000)]) == 5001


def test_a_management_address_in_the_lab_is_refused_naming_both():
    network.check_apart(["192.168.5.7/24"], ["10.0.0.0/8"])
    with pytest.raises(BrokenError, match=r"10\.1\.2\.3/24, and the lab has 10\.0\.0\.0/8"):
        network.check_apart(["10.1.2.3/24"], ["10.0.0.0/8"])


def test_one_machine_is_compiled_beside_what_others_have_there():
    operations = compile_machine(WORKER, {"eth0": 3}, 1001)
    assert [operation.namespace for operation in operations] == [
        "worker1",
        "worker1-p1",
        "worker1-p2",
    ]
    own = operations[0].operations
    assert own[0] == MtuSet("eth0", CARD.mtu)
    assert not [operation for operation in own if isinstance(operation, RouteSet)]
    assert [operation.destination for operation in own if isinstance(operation, RouteAdd)].count(
        "default"
    ) == 1
    keys = [operation.key for operation in own if isinstance(operation, SysctlSet)]
    assert "net/ipv6/conf/all/disable_ipv6" not in keys, "it would reach the management card"
    assert "net/ipv4/conf/eth0/rp_filter" in keys
    assert not [key for key in keys if "/default/" in key or "mgmt0" in key]
    texts = [operation.text for operation in own if isinstance(operation, RulesetLoad)]
    assert len(texts) == 1
    assert "flush ruleset" not in texts[0]


def test_a_record_under_way_has_all_that_an_older_one_may_have_left():
    older = replace(files.plan_record(WORKER), devices=("cbr0",))
    joined = files.plan_record(WORKER).joined(older)
    assert {"cbr0", "cni0", "flannel.4096", "veth1"} <= set(joined.devices)
