"""Single answers of ip, nft and iptables, and what they mean."""

from __future__ import annotations

import pytest

from lab.facts import nftables
from lab.facts.items import make_route
from lab.facts.linux import read_facts
from lab.facts.node import Unread
from lab.facts.questions import answers, command
from lab.facts.readers import read_items
from lab.facts.translations import Leaving, Masquerade, masquerades

MARK = {"meta": {"key": "mark"}}


def test_the_route_of_the_lowest_metric_counts() -> None:
    lines = (
        "default via 198.18.0.1 dev mgmt0 metric 5000 \n"
        "default via 10.9.176.1 dev eth0 proto static metric 100 \n"
        "default via 192.0.2.1 dev eth0 table 7 \n"
    )
    best = read_items({"route": lines}).route("default")
    assert best is not None
    assert best.words == "through 10.9.176.1 on eth0"


def test_flags_that_the_kernel_adds_are_no_part_of_a_route() -> None:
    line = "10.0.0.0/8 dev eth0 scope link"
    item = read_items({"route": f"{line} dead linkdown \n"}).route("10.0.0.0/8")
    assert item is not None
    assert item.value == line


def test_a_link_without_carrier_is_up_and_carries_nothing() -> None:
    text = '[{"ifname": "eth0", "flags": ["UP", "NO-CARRIER"], "operstate": "DOWN", "mtu": 1500}]'
    link = read_items({"address": text}).link("eth0")
    assert link is not None
    assert (link.up, link.carrier) == (True, False)


@pytest.mark.parametrize(
    ("operator", "left", "right", "marked"),
    [
        ("==", MARK, 0x4000, True),
        ("!=", MARK, 0x4000, False),
        ("==", {"&": [MARK, 0x4000]}, 0, False),
        ("!=", {"&": [MARK, 0x4000]}, 0, True),
        ("==", {"&": [MARK, 0x8000]}, 0, None),
    ],
)
def test_kube_proxys_mark_is_known_in_every_way_to_write_it(
    operator: str, left: object, right: int, marked: bool | None
) -> None:
    rule = {"expr": [{"match": {"op": operator, "left": left, "right": right}}]}
    assert nftables.mark_of(rule) is marked


PODS = "10.244.0.0/16"


@pytest.mark.parametrize(
    ("rules", "spared"),
    [
        ([Leaving("masquerade", PODS, spared=("224.0.0.0/4",))], [("224.0.0.0/4",)]),
        ([Leaving("return", destination="10.0.0.0/8"), Leaving("masquerade", PODS)],
         [("10.0.0.0/8",)]),
        ([Leaving("return", "192.0.2.0/24", destination="10.0.0.0/8"),
          Leaving("masquerade", PODS)], [()]),
        ([Leaving("return", PODS, source_is_not=True, destination="10.0.0.0/8"),
          Leaving("masquerade", PODS)], [()]),
        ([Leaving("return", destination="10.0.0.0/8", marked=True), Leaving("masquerade", PODS)],
         [()]),
        ([Leaving("masquerade", PODS), Leaving("return", destination="10.0.0.0/8")], [()]),
        ([Leaving("masquerade", PODS, source_is_not=True)], []),
        ([Leaving("masquerade", PODS, marked=True)], []),
        ([Leaving("masquerade", PODS, destination="10.0.0.0/8")], []),
        ([Leaving("masquerade")], []),
    ],
)  # fmt: skip
def test_who_leaves_with_the_nodes_address(
    rules: list[Leaving], spared: list[tuple[str, ...]]
) -> None:
    assert masquerades(rules) == tuple(Masquerade(PODS, one) for one in spared)


def test_the_script_asks_less_of_a_namespace_and_least_of_a_pod() -> None:
    texts = [command(what)[2] for what in ("computer", "namespace", "pod")]
    assert "crictl" in texts[0]
    assert "crictl" not in texts[1]
    assert "nft" in texts[1]
    assert "nft" not in texts[2]


def test_answers_are_parted_and_each_has_its_own_trouble() -> None:
    text = "noise\n@@@ one\n[1]\n\n@@@= 0\n\n@@@ two\n@@@= absent nft\n\n@@@ three\nhalf\n@@@ end\n"
    replies = answers(text, "\n@@@ one\na warning\n")
    assert replies["one"].text == "[1]"
    assert not replies["one"].trouble
    assert replies["two"].trouble == "there is no 'nft'"
    assert replies["three"].trouble == "it was cut off"


COMPUTER = """
@@@ units
Id=kubelet.service
LoadState=loaded
ActiveState=activating
NRestarts=7

Id=etcd.service
LoadState=not-found
ActiveState=inactive

Id=containerd.service
LoadState=loaded
UnitFileState=enabled
ActiveState=active
NRestarts=0

Id=haproxy.service
LoadState=loaded
UnitFileState=disabled
ActiveState=inactive
NRestarts=0

@@@= 0

@@@ sandboxes
{"items": [{"metadata": {"name": "a", "namespace": "b"}, "state": "SANDBOX_NOTREADY"}]}

@@@= 0

@@@ pod cni-1 address
[{"ifname": "eth0", "flags": ["UP", "LOWER_UP"], "mtu": 1450, "address": "0A:00:00:00:00:01",
"addr_info": [{"family": "inet", "local": "10.244.1.7", "prefixlen": 24}]}]

@@@= 0

@@@ pod cni-1 sockets
tcp LISTEN 0 4096 *:8080 *:*
udp UNCONN 0 0 127.0.0.1:323 0.0.0.0:*

@@@= 0

@@@ end
"""


def test_a_computers_facts_include_its_programs_and_pods() -> None:
    found = read_facts(COMPUTER, "")
    assert [(unit.name, unit.state) for unit in found.units] == [
        ("kubelet", "activating, restarted 7 times"),
        ("containerd", "active"),
    ]
    assert found.sandboxes == (("b/a", "notready"),)
    (pod,) = found.pods or ()
    assert pod.addresses() == ("10.244.1.7/24",)
    assert pod.listening == (("tcp", 8080),)


def test_a_node_s_resolver_file_is_not_that_of_its_pods() -> None:
    file = "@@@ file /etc/resolv.conf\nnameserver 10.0.0.253\n\n@@@= 0\n\n"
    (pod,) = read_facts(COMPUTER.replace("@@@ sandboxes", f"{file}@@@ sandboxes"), "").pods or ()
    assert pod.resolver is None


def test_a_node_that_is_no_computer_has_not_looked_at_its_pods() -> None:
    assert read_facts("\n@@@ address\n[]\n\n@@@= 0\n\n@@@ end\n", "").pods is None


def test_of_a_pod_that_did_not_answer_nothing_is_known() -> None:
    text = COMPUTER.replace("127.0.0.1:323 0.0.0.0:*\n", "").replace(
        "@@@= 0\n\n@@@ pod cni-1 sockets", "@@@= 1\n\n@@@ pod cni-1 sockets"
    )
    found = read_facts(text, "\n@@@ pod cni-1 address\nout of memory\n")
    assert found.pods == ()
    why = "exit code 1: out of memory"
    assert found.unread == (Unread("pod cni-1 address", why, "cni-1"),)
    gone = text.replace("@@@ end", "@@@ pod cni-1 gone\n\n@@@= 0\n\n@@@ end")
    assert read_facts(gone, "").unread == ()


def test_a_route_with_several_next_hops_names_them() -> None:
    """Recorded from iproute2 6.1, of a route to a group of nexthops."""
    hops = "\tnexthop via 10.1.0.2 dev a weight 1 \n\tnexthop via 10.1.0.3 dev a weight 1 \n"
    item = read_items({"route": f"10.5.0.0/16 nhid 10 proto static \n{hops}"}).route("10.5.0.0/16")
    assert item is not None
    assert item.words == "through 10.1.0.2, 10.1.0.3 on a"


def test_a_route_to_one_address_has_the_key_of_the_intended_one() -> None:
    wanted = make_route("10.5.0.7/32 dev veth1")
    assert read_items({"route": "10.5.0.7 dev veth1 scope link \n"}).keys() == {wanted.key}


def test_a_device_whose_name_has_spaces_is_read_whole() -> None:
    item = make_route("default via 10.0.0.1 dev 'Ethernet 2' onlink")
    assert item.words == "through 10.0.0.1 on Ethernet 2"
