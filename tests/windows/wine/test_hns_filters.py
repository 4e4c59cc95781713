"""Access control lists as nftables rules."""

from typing import Any

from lab.windows.wine.hns.filters import rules_of_node, rules_of_pod

POD, OTHER = "10.244.1.5", "10.244.1.6"


def acl(**settings: Any) -> dict[str, Any]:
    return {"Type": "ACL", "Settings": settings}


def verdicts(*policies: dict[str, Any]) -> list[str]:
    """The rules that the policies of a pod became, in order."""
    endpoint = {"Policies": list(policies)}
    lines = [*rules_of_pod(endpoint).splitlines(), *rules_of_node({POD: endpoint}).splitlines()]
    usual = ("table", "chain", "type", "ct state", "iifname", "delete", "}", f"ip saddr {POD} jump")
    return [line.strip() for line in lines if not line.strip().startswith(usual)]


def test_a_rule_has_addresses_protocols_and_ports_of_both_ends() -> None:
    rule = acl(
        Action="Block",
        Direction="Out",
        Protocols="6,17",
        RemoteAddresses="10.0.0.0/8,192.0.2.1",
        RemotePorts="80,8000-8080",
        LocalPorts="1024",
        Priority=100,
    )
    addresses = "ip daddr { 10.0.0.0/8, 192.0.2.1 }"
    ports = "th dport { 80, 8000-8080 } th sport { 1024 }"
    assert verdicts(rule) == [f"{addresses} meta l4proto {{ 6, 17 }} {ports} drop"]


def test_the_lowest_priority_number_is_met_first() -> None:
    last = acl(Action="Block", Direction="In", Priority=1000)
    first = acl(Action="Allow", Direction="In", RemoteAddresses="192.0.2.1", Priority=10)
    assert verdicts(last, first) == ["ip saddr { 192.0.2.1 } accept", "drop"]


def test_a_rule_for_ipv6_alone_blocks_no_ipv4() -> None:
    assert verdicts(acl(Action="Block", Direction="In", RemoteAddresses="fd00::/8")) == []


def test_an_endpoint_without_lists_has_no_rules() -> None:
    assert verdicts({"Type": "OutBoundNAT", "Settings": {}}) == []
    plain = {"Policies": [{"Type": "OutBoundNAT", "Settings": {}}]}
    assert rules_of_pod(plain) == rules_of_node({POD: plain}) == ""


def test_what_a_pod_sends_is_filtered_on_its_node_which_does_not_tell_the_pod() -> None:
    block = {"Policies": [acl(Action="Block", Direction="Out", RemotePorts="53", Protocols="17")]}
    assert rules_of_pod(block) == ""
    script = rules_of_node({POD: block, OTHER: {"Policies": []}})
    assert f"ip saddr {POD} jump" in script
    assert OTHER not in script
