"""What rules do, read from what nft and iptables say of them.

``kube-proxy-*`` were listed where kube-proxy 1.36.3 ran in a network namespace against an API
server of five Services (nft 1.0.6, iptables 1.8.9, its nf_tables backend). ``flannel-*`` were
written after the source of flannel 0.28.10, loaded, and listed.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from lab.facts import iptables, nftables
from lab.facts.translations import End, Masquerade, RuleEffects, Translated

CASES = Path(__file__).parents[2] / "cases/observers"
NOTHING = frozenset[tuple[str, str]]()


def nft(name: str, but: frozenset[tuple[str, str]] = NOTHING) -> RuleEffects:
    document = json.loads((CASES / name).read_text())
    return nftables.read(document["nftables"], but=but)


def saved(name: str) -> RuleEffects:
    return iptables.read((CASES / name).read_text())


def services(rules: RuleEffects) -> dict[str, tuple[str, ...]]:
    return {
        f"{service.protocol} {service.address or 'node'}:{service.port}": tuple(
            f"{end.address}:{end.port}" for end in service.backends
        )
        for service in rules.translations.services
    }


EVERYONE = ("10.244.0.4:8080", "10.244.1.4:8080", "10.244.3.4:8080")
KUBE_PROXY = {
    "tcp 10.96.0.10:53": ("10.244.0.2:53",),
    "udp 10.96.0.10:53": ("10.244.0.2:53",),
    "tcp 10.96.0.10:9153": ("10.244.0.2:9153",),
    "tcp 10.96.0.22:80": ("10.244.1.4:8080",),
    "udp 10.96.0.22:80": ("10.244.1.4:8080",),
    "tcp 10.96.0.30:80": EVERYONE,
    "udp 10.96.0.30:80": EVERYONE,
    "tcp 10.96.0.31:80": (),
    "tcp 10.96.0.32:80": ("10.244.1.5:8080",),
    "tcp node:30000": ("10.244.1.4:8080",),
    "udp node:30000": ("10.244.1.4:8080",),
    "tcp node:30001": EVERYONE,
    "udp node:30001": EVERYONE,
    "tcp node:30009": (),
}


@pytest.mark.parametrize(
    ("rules", "by"),
    [
        (nft("kube-proxy-nftables.json"), "nftables"),
        (saved("kube-proxy-iptables.txt"), "iptables"),
    ],
    ids=["nftables", "iptables"],
)
def test_services_of_a_real_kube_proxy_are_the_same_in_both_its_modes(
    rules: RuleEffects, by: str
) -> None:
    assert services(rules) == KUBE_PROXY
    assert len(rules.translations.services) == len(KUBE_PROXY)
    assert rules.translations.by == by
    assert rules.translations.marked
    assert rules.barriers == ()


@pytest.mark.parametrize(
    "rules",
    [nft("kube-proxy-nftables.json"), saved("kube-proxy-iptables.txt")],
    ids=["nftables", "iptables"],
)
def test_what_a_real_kube_proxy_remembers_keeps_and_loses(rules: RuleEffects) -> None:
    found = {(service.address, service.port): service for service in rules.translations.services}
    assert [service.port for service in found.values() if service.kept and service.backends] == []
    assert [service.address for service in found.values() if service.affinity] == ["10.96.0.32"]
    assert found["10.96.0.32", 80].affinity == 10800
    assert not any(service.lost for service in found.values())
    assert {service.own for service in found.values()} == {None}


def test_protocols_are_known_by_their_numbers() -> None:
    """nft lists these where there is no /etc/protocols."""
    text = (CASES / "kube-proxy-nftables.json").read_text()
    for name, number in (("tcp", 6), ("udp", 17)):
        text = re.sub(rf'"{name}"(?=[,\s]*[\]}}\d])', str(number), text)
    assert ", 6, 80]" in text
    numbered = nftables.read(json.loads(text)["nftables"], but=NOTHING)
    assert numbered == nft("kube-proxy-nftables.json")


def test_chains_that_nothing_leads_to_are_seen_where_kube_proxy_has_emptied_its_map() -> None:
    said = json.loads((CASES / "kube-proxy-nftables.json").read_text())["nftables"]
    for entry in said:
        if entry.get("map", {}).get("name") in {"service-ips", "service-nodeports"}:
            entry["map"].pop("elem", None)
    emptied = nftables.read(said, but=NOTHING).translations
    assert (emptied.stranded, [service for service in emptied.services if service.backends]) == (
        True,
        [],
    )
    assert not nft("kube-proxy-nftables.json").translations.stranded


HOME, AWAY, WIN = (End(address, 8080) for address in ("10.244.1.4", "10.244.2.4", "10.244.3.4"))
MASTER = End("10.244.0.4", 8080)


def test_policies_affinity_and_ports_of_the_labs_own_rules() -> None:
    """As scenario "services" has them on a node with a backend, and on one without."""
    with_one, without = (
        {
            (service.protocol, service.address, service.port): service
            for service in nft(f"services-{node}.json").translations.services
        }
        for node in ("worker1", "worker2")
    )
    sticky = with_one["tcp", "10.96.0.31", 80]
    assert (set(sticky.backends), sticky.affinity) == ({MASTER, HOME, WIN}, 10800)
    near = with_one["tcp", None, 30012]
    assert (near.backends, near.own, near.kept, near.lost) == ((HOME,), (HOME,), True, False)
    far = without["tcp", None, 30012]
    assert (far.backends, far.own, far.kept, far.lost) == ((), (HOME,), True, True)
    assert with_one["udp", "10.96.0.34", 80].backends == (HOME,)
    assert without["udp", "10.96.0.34", 80].backends == ()
    assert without["udp", "10.96.0.34", 80].lost
    assert with_one["tcp", "10.96.0.35", 8443].backends == (End("10.244.2.4", 8081),)
    assert ("udp", "10.96.0.35", 8443) not in with_one
    for nobody in (with_one["tcp", "10.96.0.36", 80], with_one["udp", None, 30017]):
        assert (nobody.backends, nobody.lost) == ((), False)


IPTABLES_LOCAL = """*nat
:PREROUTING ACCEPT [0:0]
:KUBE-SERVICES - [0:0]
:KUBE-NODEPORTS - [0:0]
-A PREROUTING -j KUBE-SERVICES
-A KUBE-SERVICES -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS
-A KUBE-NODEPORTS -p tcp -m tcp --dport 30012 -j KUBE-EXT-A
-A KUBE-NODEPORTS -p tcp -m tcp --dport 30013 -j KUBE-EXT-B
-A KUBE-EXT-A -s 10.244.1.0/24 -m comment --comment "pod traffic" -j KUBE-SVC-A
-A KUBE-EXT-A -m addrtype --src-type LOCAL -j KUBE-MARK-MASQ
-A KUBE-EXT-A -m addrtype --src-type LOCAL -j KUBE-SVC-A
-A KUBE-EXT-A -j KUBE-SVL-A
-A KUBE-EXT-B -s 10.244.1.0/24 -j KUBE-SVC-A
-A KUBE-SVC-A -j KUBE-SEP-1
-A KUBE-SVC-A -j KUBE-SEP-2
-A KUBE-SVL-A -j KUBE-SEP-1
-A KUBE-SEP-1 -s 10.244.1.4/32 -j KUBE-MARK-MASQ
-A KUBE-SEP-1 -p tcp -j DNAT --to-destination 10.244.1.4:8080
-A KUBE-SEP-2 -s 10.244.2.4/32 -j KUBE-MARK-MASQ
-A KUBE-SEP-2 -p tcp -j DNAT --to-destination 10.244.2.4:8080
COMMIT
*filter
:KUBE-EXTERNAL-SERVICES - [0:0]
-A KUBE-EXTERNAL-SERVICES -p tcp -m addrtype --dst-type LOCAL -m tcp --dport 30013 -j DROP
COMMIT
"""


def test_policies_in_iptables_written_after_kube_proxys_source() -> None:
    near, far = iptables.read(IPTABLES_LOCAL).translations.services
    assert (near.backends, near.own, near.kept, near.lost) == ((HOME,), (HOME, AWAY), True, False)
    assert (far.backends, far.own, far.kept, far.lost) == ((), (HOME, AWAY), True, True)


def test_tables_listed_by_iptables_are_not_listed_again_by_nft() -> None:
    text = (CASES / "kube-proxy-iptables.txt").read_text()
    rules = nft("kube-proxy-iptables-as-nft.json", iptables.tables(text))
    assert rules.barriers == ()
    assert rules.translations.services == ()


def test_kube_proxys_rules_that_nothing_leads_to_translate_nothing() -> None:
    said = json.loads((CASES / "kube-proxy-nftables.json").read_text())["nftables"]
    hooks = {"nat-prerouting", "nat-output", "filter-input", "filter-forward", "filter-output"}
    cut = [
        one
        for one in said
        if not (one.get("rule", {}).get("chain") in hooks and one["rule"]["family"] == "ip")
    ]
    assert nftables.read(cut, but=NOTHING).translations.services == ()


@pytest.mark.parametrize("name", ["flannel-nftables.json", "flannel-iptables.txt"])
def test_flannels_masquerade_spares_its_own_network(name: str) -> None:
    rules = nft(name) if name.endswith("json") else saved(name)
    (masquerade,) = rules.translations.masquerades
    assert isinstance(masquerade, Masquerade)
    assert masquerade.source == "10.244.0.0/16"
    assert {"10.244.0.0/16", "224.0.0.0/4"} <= set(masquerade.spared)


def test_barriers_are_reported_with_the_command_that_removes_them() -> None:
    tunnel, pod = saved("flannel-iptables.txt").barriers[::-1]
    first, second = sorted((tunnel, pod), key=lambda barrier: str(barrier.subject))
    assert str(first.subject) == "iptables table filter, chain FORWARD"
    assert first.prefixes == ("10.244.2.4/32",)
    assert second.ports == (4789, 4789)
    assert second.protocol == "udp"
    assert second.mends == "iptables -t filter -D INPUT -p udp -m udp --dport 4789 -j DROP"
    assert (first.hook, second.hook) == ("forward", "input")


@pytest.mark.parametrize(
    ("hooks", "hook"),
    [(["input"], "input"), (["input", "forward"], ""), (["prerouting"], "")],
)
def test_the_hook_of_a_rule_is_the_one_from_which_it_is_reached(
    hooks: list[str], hook: str
) -> None:
    bases = [
        {"chain": {"family": "ip", "table": "mine", "name": hook, "hook": hook}} for hook in hooks
    ]
    jumps = [_rule(hook, {"jump": {"target": "inner"}}, table="mine") for hook in hooks]
    inner = {"chain": {"family": "ip", "table": "mine", "name": "inner"}}
    entries = [*bases, inner, *jumps, _rule("inner", _l4("udp"), {"drop": None}, table="mine")]
    (barrier,) = nftables.read(entries, but=NOTHING).barriers
    assert barrier.hook == hook


@pytest.mark.parametrize(("field", "bits"), [("flags", ["syn", "ack"]), ("dport", 1)])
def test_a_rule_for_some_bits_of_a_header_is_for_its_protocol(field: str, bits: object) -> None:
    masked = {"&": [{"payload": {"protocol": "tcp", "field": field}}, bits]}
    match = {"match": {"op": "==", "left": masked, "right": "syn" if field == "flags" else 1}}
    base = {"chain": {"family": "ip", "table": "mine", "name": "c", "hook": "postrouting"}}
    rule = _rule("c", match, {"drop": None}, table="mine")
    (barrier,) = nftables.read([base, rule], but=NOTHING).barriers
    assert (barrier.protocol, barrier.ports) == ("tcp", None)


def test_packets_of_no_connection_may_be_lost() -> None:
    assert not [
        barrier for barrier in saved("flannel-iptables.txt").barriers if "INVALID" in barrier.rule
    ]


def test_a_backend_of_a_lab_without_kubernetes_is_read_the_same() -> None:
    entries = [
        {"chain": {"family": "ip", "table": "kube-proxy", "name": "nat", "hook": "prerouting"}},
        {"chain": {"family": "ip", "table": "kube-proxy", "name": "services"}},
        {"chain": {"family": "ip", "table": "kube-proxy", "name": "mark-for-masquerade"}},
        {
            "map": {
                "family": "ip",
                "name": "service-ips",
                "table": "kube-proxy",
                "elem": [[{"concat": ["10.96.0.20", "udp", 80]}, {"goto": {"target": "one"}}]],
            }
        },
        _rule("nat", {"jump": {"target": "services"}}),
        _rule("services", {"vmap": {"data": "@service-ips"}}),
        _rule("one", _l4("tcp"), {"dnat": {"addr": "10.244.0.9", "port": 1}}),
        _rule("one", _l4("udp"), {"dnat": {"addr": "10.244.0.4", "port": 8080}}),
    ]
    rules = nftables.read(entries, but=NOTHING)
    assert rules.translations.by == "lab"
    assert rules.translations.services == (
        Translated("udp", "10.96.0.20", 80, (End("10.244.0.4", 8080),)),
    )


def _rule(chain: str, *parts: dict[str, object], table: str = "kube-proxy") -> dict[str, object]:
    return {"rule": {"family": "ip", "table": table, "chain": chain, "expr": list(parts)}}


def _l4(protocol: str) -> dict[str, object]:
    return {"match": {"op": "==", "left": {"meta": {"key": "l4proto"}}, "right": protocol}}


LISTED = """table ip t {
	chain c {
		type filter hook input priority filter; policy accept;
		@ih,0,32 0x504f5354 drop # handle 3
		update @flood { ip saddr limit rate over 5/second } drop # handle 4
		ct original packets > 6 drop # handle 5
	}
}
"""


def test_a_rule_is_shown_as_nft_lists_it() -> None:
    """Recorded from nft 1.0.6."""
    parts: list[object] = [
        {
            "match": {
                "op": "==",
                "left": {"payload": {"base": "ih", "offset": 0, "len": 32}},
                "right": 1347375956,
            }
        },
        {"set": {"op": "update", "elem": {"payload": {"protocol": "ip", "field": "saddr"}},
                 "set": "@flood", "stmt": [{"limit": {"rate": 5, "per": "second", "inv": True}}]}},
        {"match": {"op": ">", "left": {"ct": {"key": "packets", "dir": "original"}}, "right": 6}},
    ]  # fmt: skip
    chain = {"family": "ip", "table": "t", "name": "c", "handle": 1, "type": "filter",
             "hook": "input", "prio": 0, "policy": "accept"}  # fmt: skip
    entries = [
        {"chain": chain},
        *(
            {"rule": {"family": "ip", "table": "t", "chain": "c", "handle": handle,
                      "expr": [part, {"drop": None}]}}
            for handle, part in enumerate(parts, start=3)
        ),
    ]  # fmt: skip
    rules = nftables.read(entries, but=NOTHING, listing=LISTED)
    assert [barrier.rule for barrier in rules.barriers] == [
        "@ih,0,32 0x504f5354 drop",
        "update @flood { ip saddr limit rate over 5/second } drop",
        "ct original packets > 6 drop",
    ]
