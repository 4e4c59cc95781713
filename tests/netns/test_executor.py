"""What the executor and libnftables say when the kernel refuses."""

from __future__ import annotations

import socket

import pytest

from lab._deadline import Deadline
from lab._errors import BrokenError, LabError
from lab.providers.netns import namespaces, netlink
from lab.providers.netns.child_calls import call_isolated
from lab.providers.netns.operations import (
    AddressAdd,
    BridgeAdd,
    LinkUp,
    NamespaceOperations,
    NeighbourSet,
    Operation,
    RouteSet,
    SysctlSet,
)

MAC = "0e:00:00:00:00:09"


def _apply(*operations: Operation) -> None:
    one = NamespaceOperations("node", (("lo", 1), ("br", 9), ("ghost", 77)), operations)

    def work() -> None:
        namespaces.create(["node"])
        netlink.apply_operations([one])

    call_isolated("applying", work, Deadline(10))


BRIDGE = BridgeAdd("br", 9, MAC)


@pytest.mark.parametrize(
    ("operations", "says"),
    [
        (
            (BRIDGE, LinkUp("ghost")),
            r"setting link 'ghost' up in namespace 'node'.*No such device \(ENODEV\)",
        ),
        ((BRIDGE, RouteSet("10.0.0.0/8", "br", "192.0.2.1", False)), "Nexthop has invalid gateway"),
        ((AddressAdd("ghost", "192.0.2.1/24"), LinkUp("ghost")), "'192.0.2.1/24' to 'ghost'"),
        (
            (SysctlSet("net/none/such", "1"),),
            "'net/none/such' to '1' in namespace 'node'.*no such setting",
        ),
        ((SysctlSet("net/ipv4/ip_forward", "maybe"),), "Invalid argument"),
    ],
    ids=["object and errno", "the kernel's words", "the first of two", "no setting", "bad setting"],
)
def test_a_refused_operation_is_named_with_the_reason(operations, says):
    with pytest.raises(BrokenError, match=says):
        _apply(*operations)


def test_an_optional_setting_may_be_missing():
    _apply(SysctlSet("net/none/such", "1", optional=True))


def test_more_operations_than_one_batch_holds_are_all_done():
    many = [NeighbourSet(f"10.1.{n // 250}.{n % 250}", MAC, "br") for n in range(3000)]

    def work() -> int:
        operations = NamespaceOperations(
            "n", (("lo", 1), ("br", 9)), (BridgeAdd("br", 9, MAC), *many)
        )
        namespaces.create(["n"])
        netlink.apply_operations([operations])
        with namespaces.inside("n"), netlink.Socket("n") as channel:
            bodies = channel.dump(netlink.GET_NEIGHBOUR, bytes([socket.AF_INET]) + bytes(11))
            found = {netlink.attributes(body[12:])[1] for body in bodies}
            return len({address for address in found if address.startswith(b"\x0a\x01")})

    assert call_isolated("applying", work, Deadline(20), int) == 3000


def test_going_into_a_namespace_that_is_not_there():
    def work() -> None:
        with namespaces.inside("nowhere"):
            pass

    with pytest.raises(BrokenError, match="entering namespace 'nowhere'"):
        call_isolated("entering", work, Deadline(10))


def test_rules_that_do_not_parse_show_the_librarys_words_and_the_line():
    def work() -> None:
        namespaces.load_ruleset("table ip a {\n  chain b {\n    nonsense here\n  }\n}\n", "node")

    with pytest.raises(LabError) as raised:
        call_isolated("loading", work, Deadline(10))
    text = str(raised.value)
    assert "in namespace 'node'" in text
    assert "line:3:" in text
    assert "nonsense here" in text


def test_an_error_in_one_of_many_scripts_comes_out():
    def work() -> None:
        namespaces.create(["a", "b", "c"])
        good = "flush ruleset\ntable ip t {\n}\n"
        namespaces.load_rulesets((("a", good), ("b", good), ("c", "table ip {\n")))

    with pytest.raises(BrokenError, match="in namespace 'c'"):
        call_isolated("loading", work, Deadline(10))


def test_loading_rules_twice_leaves_them_once():
    def work() -> None:
        text = "flush ruleset\ntable ip t {\n chain c { counter\n }\n}\n"
        namespaces.create(["a"])
        namespaces.load_rulesets((("a", text), ("a", text)))

    call_isolated("loading", work, Deadline(10))
