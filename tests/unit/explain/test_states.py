"""The whole state of a namespace, compared with the same one as the lab makes it."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from recorded_answers import asks

from lab._errors import BrokenError
from lab.facts.churn import churn
from lab.facts.difference import NOT_ASKED, SILENT, Difference
from lab.facts.questions import MARK, STATE_COMMAND, WITH_CALICO
from lab.facts.state import (
    _NEEDED,
    _ORDER,
    _SECTIONS,
    State,
    compare_states,
    is_same_space,
    read_state,
)
from lab.topology.subject import device_of

RULESET = """table ip filter { # handle 1
\tset blocked { # handle 3
\t\ttype ipv4_addr
\t\telements = { 10.0.0.1, 10.0.0.2 }
\t}

\tchain forward { # handle 2
\t\ttype filter hook forward priority filter; policy accept;
\t\tip saddr @blocked drop # handle 4
\t\ttcp dport 80 accept # handle 5
\t}
}
"""
REMADE = (
    "table ip filter { set blocked { type ipv4_addr; elements = { 10.0.0.1, 10.0.0.2 }; }; "
    "chain forward { type filter hook forward priority filter; policy accept; "
    "ip saddr @blocked drop; tcp dport 80 accept; }; }"
)
OTHER = """table inet other {{ # handle 8
\tchain c {{ # handle 9
\t\ttype filter hook input priority filter; policy {};
\t}}
}}
"""
ADDRESS = {"family": "inet", "local": "10.1.0.2", "prefixlen": 24, "scope": "global"}
LINK = {
    "ifname": "veth1",
    "flags": ["UP", "LOWER_UP"],
    "mtu": 1500,
    "linkinfo": {"info_kind": "veth", "info_slave_data": {"isolated": False}},
    "addr_info": [ADDRESS],
}
OWN = "local 10.1.0.2 dev veth1 table local proto kernel scope host src 10.1.0.2"
ROUTES = f"default via 10.1.0.1 dev veth1 \n{OWN} \n"


def state(**answers: str) -> State:
    asked = {
        "address": json.dumps([LINK]),
        "route": ROUTES,
        "xfrm-default": "Default policies:\n in:  accept\n fwd: accept\n out: accept\n",
        "rules": "0:\tfrom all lookup local\n32766:\tfrom all lookup main\n",
        "settings": "ipv4/ip_default_ttl:64\nipv4/conf/veth1/rp_filter:0\n",
        "ruleset": RULESET,
        "file /etc/resolv.conf": "nameserver 10.96.0.10\noptions ndots:5\n",
        "sockets": 'tcp LISTEN 0 128 10.1.0.2:8080 0.0.0.0:* users:(("python3",pid=7,fd=3))\n',
    } | answers
    return read_state(
        "".join(f"\n{MARK} {name}\n{text}\n{MARK}= 0\n" for name, text in asked.items())
        + f"\n{MARK} end\n"
    )


def differences(**answers: str) -> tuple[Difference, ...]:
    return compare_states(state(), state(**answers))


def test_a_rule_that_was_added_is_deleted_by_its_handle() -> None:
    changed = RULESET.replace("\t\ttcp dport", "\t\tudp dport 53 drop # handle 9\n\t\ttcp dport")
    (found,) = differences(ruleset=changed)
    assert found.object == "chain ip filter forward"
    assert found.observed == "rule 'udp dport 53 drop' (handle 9)"
    assert found.mends == "nft delete rule ip filter forward handle 9"


def address(local: str, length: int) -> str:
    there = {"family": "inet", "local": local, "prefixlen": length, "scope": "global"}
    return json.dumps([LINK | {"addr_info": [there]}])


ENDS = "src 0.0.0.0/0 dst 0.0.0.0/0 proto udp dport 53 "
FIXED = {
    # what differs: the answer, and the commands that undo it
    "a state and itself do not": ({}, []),
    "other handles alone are no difference": (
        {"ruleset": RULESET.replace("handle 5", "handle 50")}, []),
    "a rule that is missing is put back where it was": (
        {"ruleset": RULESET.replace("\t\tip saddr @blocked drop # handle 4\n", "")},
        ["nft insert rule ip filter forward handle 5 'ip saddr @blocked drop'"]),
    "a policy": (
        {"ruleset": RULESET.replace("policy accept", "policy drop")},
        ["nft chain ip filter forward '{ policy accept; }'"]),
    "an element of a set": (
        {"ruleset": RULESET.replace("10.0.0.2 }", "10.0.0.2, 10.0.0.3 }")},
        ["nft delete element ip filter blocked '{ 10.0.0.3 }'"]),
    "a stray table": (
        {"ruleset": RULESET + OTHER.format("drop")}, ["nft delete table inet other"]),
    "one with chains that do nothing, as iptables makes them to list them, is no difference": (
        {"ruleset": RULESET + OTHER.format("accept")}, []),
    "a setting": (
        {"settings": "ipv4/ip_default_ttl:1\nipv4/conf/veth1/rp_filter:0\n"},
        ["sysctl -w net/ipv4/ip_default_ttl=64"]),
    "a policy rule, and a route of another table": (
        {"rules": "0:\tfrom all lookup local\n100:\tfrom 10.1.0.2 lookup 77\n"
                  "32766:\tfrom all lookup main",
         "route": f"{ROUTES}blackhole default table 77 \n"},
        ["ip rule delete priority 100 from 10.1.0.2 lookup 77",
         "ip route delete blackhole default table 77"]),
    "another prefix length is one difference, and the wrong one goes": (
        {"address": address("10.1.0.2", 8)},
        ["ip address replace 10.1.0.2/24 dev veth1; ip address delete 10.1.0.2/8 dev veth1"]),
    "routes that follow from an address do not differ beside it": (
        {"address": address("10.1.0.2", 8),
         "route": "default via 10.1.0.1 dev veth1 \n"
                   "10.0.0.0/8 dev veth1 proto kernel scope link src 10.1.0.2 \n"},
        ["ip address replace 10.1.0.2/24 dev veth1; ip address delete 10.1.0.2/8 dev veth1"]),
    "an address's own route that is missing": (
        {"route": "default via 10.1.0.1 dev veth1 \n"}, [f"ip route replace {OWN}"]),
    "what is seen of an address, a new one, and the loopback's are no further routes": (
        {"address": address("10.1.0.3", 24),
         "route": "default via 10.1.0.1 dev veth1 \n"
                   + OWN.replace("0.2", "0.3")
                   + "\nlocal 127.0.0.1 dev lo table local proto kernel scope host src 127.0.0.1 "
                   "\nbroadcast 10.1.0.255 dev veth1 table local proto kernel scope link\n"},
        ["ip address replace 10.1.0.2/24 dev veth1", "ip address delete 10.1.0.3/24 dev veth1"]),
    "a route for packets with a TOS beside the lab's own": (
        {"route": f"{ROUTES}default tos 0x10 dev lo scope link \n"},
        ["ip route delete default tos 0x10 dev lo scope link"]),
    "what xfrm does without a policy": (
        {"xfrm-default": "Default policies:\n in:  block\n fwd: accept\n out: block\n"},
        ["ip xfrm policy setdefault in accept fwd accept out accept"]),
    "a device with another name is not deleted": (
        {"address": json.dumps([LINK | {"ifname": "veth9"}])},
        ["ip link set dev veth9 name veth1 up"]),
    "a table that sleeps": (
        {"ruleset": RULESET.replace("{ # handle 1\n", "{ # handle 1\n\tflags dormant\n", 1)},
        ["nft add table ip filter"]),
    "a chain that is gone is loaded again with its whole table or not at all": (
        {"ruleset": re.sub(r"(?s)\n\tchain.*?\n\t\}", "", RULESET)},
        [f"printf '%s\\n' 'delete table ip filter\n{REMADE}' | nft -f -"]),
    "an address with a peer": (
        {"address": json.dumps([LINK | {"addr_info": [
            ADDRESS, ADDRESS | {"local": "10.1.0.8", "address": "10.1.0.9", "prefixlen": 32}]}])},
        ["ip address delete 10.1.0.8 peer 10.1.0.9/32 dev veth1"]),
    "a route with several nexthops": (
        {"route": f"{ROUTES}10.9.0.0/24 metric 9 \n\tnexthop via 10.1.0.8 dev veth1 weight 1 \n"
                   "\tnexthop via 10.1.0.9 dev veth1 weight 5 \n"},
        [("ip route delete 10.9.0.0/24 metric 9 nexthop via 10.1.0.8 dev veth1 weight 1 "
          "nexthop via 10.1.0.9 dev veth1 weight 5")]),
    "a broadcast route that no address has": (
        {"route": "default via 10.1.0.1 dev veth1 \n"
                   "broadcast 10.1.0.5 dev veth1 table local scope link \n"
                   "local 10.1.0.2 dev veth1 table local proto kernel scope host src 10.1.0.2 \n"
                   "broadcast 10.1.0.255 dev veth1 table local proto kernel scope link \n"},
        ["ip route delete broadcast 10.1.0.5 dev veth1 table local scope link"]),
    "a route with a nexthop's number is deleted by it": (
        {"route": f"{ROUTES}blackhole 10.3.0.4 nhid 5 dev lo \n"},
        ["ip route delete 10.3.0.4 nhid 5 table main"]),
    "another address is another difference": (
        {"address": address("10.1.0.3", 24)},
        ["ip address replace 10.1.0.2/24 dev veth1", "ip address delete 10.1.0.3/24 dev veth1"]),
    "an xfrm policy is deleted by its whole selector": (
        {"xfrm-policies": f"{ENDS}\n\tdir fwd action block priority 0 ptype main \n"},
        [f"ip xfrm policy delete {ENDS}dir fwd"]),
    "another program at a port": (
        {"sockets": 'tcp LISTEN 0 9 10.1.0.2:8080 0.0.0.0:* users:(("nc",pid=9,fd=3))\n'}, [""]),
    "a policy of iptables-legacy, and a rule": (
        {"iptables-legacy": "*filter\n:INPUT DROP [0:0]\n:OUTPUT ACCEPT [0:0]\n"
                            "-A OUTPUT -p udp -j DROP\nCOMMIT\n"},
        ["iptables-legacy -t filter -D OUTPUT -p udp -j DROP",
         "iptables-legacy -t filter -P INPUT ACCEPT"]),
    "a class of a queue": (
        {"class veth1": "class htb 1:1 root prio 0 rate 8bit ceil 8bit burst 1600b\n"},
        ["tc class delete dev veth1 classid 1:1"]),
    "path MTUs of ICMP errors are flushed": (
        {"cache": "10.9.0.1 via 10.1.0.1 dev veth1 \n    cache expires 540sec mtu lock 552 \n"
                  "10.9.0.2 via 10.1.0.1 dev veth1 \n    cache expires 541sec mtu 552 \n"
                  "10.9.0.3 via 10.1.0.1 dev veth1 \n    cache \n"},
        ["ip route flush cache"]),
    "another socket is no difference": (
        {"sockets": "tcp LISTEN 0 9 10.1.0.2:8080 0.0.0.0:*\n"
                    "tcp LISTEN 0 9 10.1.0.2:9 0.0.0.0:*\n"}, []),
}  # fmt: skip


@pytest.mark.parametrize(("answers", "fixes"), FIXED.values(), ids=FIXED)
def test_what_differs_is_undone(answers: dict[str, str], fixes: list[str]) -> None:
    assert sorted(difference.mends for difference in differences(**answers)) == sorted(fixes)


def link(kind: str, **data: object) -> str:
    return json.dumps([LINK | {"linkinfo": {"info_kind": kind, "info_data": data}}])


def port(**data: object) -> str:
    info = {"info_kind": "veth", "info_slave_kind": "bridge", "info_slave_data": data}
    return json.dumps([LINK | {"txqlen": 1000, "linkinfo": info}])


UNHIDDEN = {
    # beside what is left out because it changes by itself: both sides, and the object
    "a VNI, beside a port's number": (
        {"address": link("vxlan", id=4096)}, {"address": link("vxlan", id=4097)},
        "veth1 linkinfo.info_data.id"),
    "a VLAN's id": (
        {"address": link("vlan", id=5)}, {"address": link("vlan", id=6)},
        "veth1 linkinfo.info_data.id"),
    "the length of a device's queue": (
        {"address": port()}, {"address": port().replace("1000", "1")}, "veth1 txqlen"),
    "how long a bridge's entries last, beside its timers": (
        {"address": link("bridge", ageing_time=30000)}, {"address": link("bridge", ageing_time=0)},
        "veth1 linkinfo.info_data.ageing_time"),
    "the priority of a bridge, beside its id": (
        {"address": link("bridge", priority=32768)}, {"address": link("bridge", priority=1)},
        "veth1 linkinfo.info_data.priority"),
    "the cost of a port, beside what the spanning tree has found": (
        {"address": port(cost=2)}, {"address": port(cost=9)},
        "veth1 linkinfo.info_slave_data.cost"),
    "the number of entries a tunnel may learn, beside how many it has": (
        {"address": link("bridge", fdb_max_learned=0)},
        {"address": link("bridge", fdb_max_learned=1)},
        "veth1 linkinfo.info_data.fdb_max_learned"),
    "a route that claims to be a daemon's": (
        {}, {"route": f"{ROUTES}10.9.0.0/24 via 10.1.0.9 dev veth1 proto bird \n"},
        "route to 10.9.0.0/24"),
    "a route that claims to be learned": (
        {}, {"route": f"{ROUTES}blackhole 10.9.0.0/24 proto zebra \n"}, "route to 10.9.0.0/24"),
    "a neighbour that is never asked for": (
        {}, {"neighbour": "10.1.0.9 dev veth1 lladdr 02:00:00:00:00:09 NOARP \n"},
        "neighbour 10.1.0.9 dev veth1"),
    "another's MAC as the bridge's own": (
        {}, {"forwarding": "02:00:00:00:00:09 dev veth1 master cni0 permanent \n"},
        "forwarding entry 02:00:00:00:00:09 dev veth1"),
    "a forwarding entry that claims to be learned elsewhere": (
        {}, {"forwarding": "02:00:00:00:00:09 dev veth1 dst 10.9.9.9 self extern_learn \n"},
        "forwarding entry 02:00:00:00:00:09 dev veth1"),
    "a queue below the usual root": (
        {}, {"queues": "qdisc netem 8001: dev veth1 parent :1 limit 1000 loss 50% \n"},
        "queue parent :1 of veth1"),
    "a setting with a number of connections": (
        {"settings": "netfilter/nf_conntrack_max:65536\n"},
        {"settings": "netfilter/nf_conntrack_max:1\n"}, "setting net/netfilter/nf_conntrack_max"),
}  # fmt: skip


@pytest.mark.parametrize(("made", "now", "named"), UNHIDDEN.values(), ids=UNHIDDEN)
def test_what_is_left_out_hides_nothing_else(
    made: dict[str, str], now: dict[str, str], named: str
) -> None:
    differences = compare_states(state(**made), state(**{**made, **now}))
    assert [difference.object for difference in differences] == [named]


def test_an_xdp_program_is_one_difference_and_is_taken_off() -> None:
    program = {"id": 7, "tag": "3b185187f1855c4c", "jited": 1, "load_time": 9}
    there = LINK | {"xdp": {"mode": 2, "prog": program, "attached": [{"mode": 2, "prog": program}]}}
    (found,) = differences(address=json.dumps([there]))
    assert (found.object, found.observed) == ("veth1 xdp", "an XDP program (id 7) is attached")
    assert found.mends == "ip link set dev veth1 xdpgeneric off"


LEFT_OUT = {
    "a bridge's timers and ids": (
        {"address": link("bridge", hello_timer=1.0, gc_timer=9.0, root_id="8000.a", bridge_id="b")},
        {"address": link("bridge", hello_timer=0.5, gc_timer=8, root_id="8000.c", bridge_id="d")}),
    "a port's number, and what the spanning tree has found": (
        {"address": port(id="0x8001", no="0x1", designated_port=1, forward_delay_timer=0.0)},
        {"address": port(id="0x8002", no="0x2", designated_port=2, forward_delay_timer=3.0)}),
    "random settings and the computer's own": (
        {"settings": "ipv4/tcp_fastopen_key:a\nnetfilter/nf_conntrack_count:1\n"},
        {"settings": "ipv4/tcp_fastopen_key:b\nnetfilter/nf_conntrack_count:2\n"}),
    "broadcast addresses, as the kernel knows them": (
        {}, {"neighbour": "10.1.0.255 dev veth1 lladdr ff:ff:ff:ff:ff:ff NOARP \n"}),
}  # fmt: skip


@pytest.mark.parametrize(("made", "now"), LEFT_OUT.values(), ids=LEFT_OUT)
def test_what_changes_by_itself_is_no_difference(made: dict[str, str], now: dict[str, str]) -> None:
    assert compare_states(state(**made), state(**now)) == ()


def test_routes_of_daemons_are_left_out_where_there_are_daemons() -> None:
    now = state(route=f"{ROUTES}10.9.0.0/24 via 10.1.0.9 dev veth1 proto bird \n")
    assert compare_states(state(), now, churn(kubernetes=False, daemons=True)) == ()
    assert compare_states(state(), now, churn(kubernetes=True, daemons=False)) == ()
    assert compare_states(state(), now) != ()


def test_the_fix_of_a_mac_restores_the_neighbours_lost_with_it() -> None:
    there = {"neighbour": "10.1.0.1 dev veth1 lladdr 02:00:00:00:00:07 PERMANENT \n"}
    made, now = (
        state(address=json.dumps([LINK | {"address": mac}]), **neighbours)
        for mac, neighbours in (("02:00:00:00:00:01", there), ("02:00:00:00:00:02", {}))
    )
    first, *_ = compare_states(made, now)
    assert first.mends == (
        "ip link set dev veth1 address 02:00:00:00:00:01; ip neighbour replace 10.1.0.1 "
        "lladdr 02:00:00:00:00:07 dev veth1 nud permanent"
    )


ONLINK = "10.1.0.1 dev veth1 scope link \n"
NEIGHBOUR = "10.1.0.1 dev veth1 lladdr 02:00:00:00:00:07 PERMANENT \n"
RESTORED = (
    "; ip route replace 10.1.0.1 dev veth1 scope link"
    "; ip neighbour replace 10.1.0.1 lladdr 02:00:00:00:00:07 dev veth1 nud permanent"
)


@pytest.mark.parametrize(
    ("link", "fix"),
    [
        (LINK | {"flags": []}, "ip link set dev veth1 up"),
        (LINK | {"addr_info": []}, "ip address replace 10.1.0.2/24 dev veth1"),
    ],
    ids=["set down", "without its address"],
)
def test_what_the_kernel_takes_away_with_a_device_is_restored_with_it(
    link: dict[str, object], fix: str
) -> None:
    routes = f"{ROUTES}{ONLINK}10.9.0.0/24 via 10.1.0.9 dev veth1 proto bird \n"
    now = state(address=json.dumps([link]), route="")
    (difference,) = compare_states(state(route=routes, neighbour=NEIGHBOUR), now)
    assert difference.mends == f"{fix}{RESTORED}; ip route replace default via 10.1.0.1 dev veth1"


def test_a_route_goes_with_the_address_that_is_its_source() -> None:
    other = LINK | {"ifname": "veth2", "addr_info": []}
    route = "10.1.0.7 dev veth2 scope link src 10.1.0.2 \n"
    made, now = (
        state(address=json.dumps([LINK | {"addr_info": there}, other]), route=routes)
        for there, routes in (([ADDRESS], route), ([], ""))
    )
    (difference,) = compare_states(made, now)
    assert difference.mends == (
        f"ip address replace 10.1.0.2/24 dev veth1; ip route replace {route.strip()}"
    )


def test_a_route_that_is_missing_on_a_device_that_works_is_a_difference_of_its_own() -> None:
    (difference,) = differences(route=OWN)
    assert difference.mends == "ip route replace default via 10.1.0.1 dev veth1"


@pytest.mark.parametrize("flag", ["NOARP", "REACHABLE"])
def test_a_neighbour_with_another_mac_is_reported_with_that_mac(flag: str) -> None:
    entry = "10.1.0.1 dev veth1 lladdr 02:00:00:00:00:0{} {} \n"
    now = state(neighbour=entry.format(2, flag))
    (found,) = compare_states(state(neighbour=entry.format(1, "PERMANENT")), now)
    assert found.observed == f"02:00:00:00:00:02 ({flag.lower()})"
    assert found.mends.startswith("ip neighbour replace 10.1.0.1 lladdr 02:00:00:00:00:01")


def test_a_neighbour_that_is_learned_anew_is_no_difference() -> None:
    entry = "10.1.0.1 dev veth1 lladdr 02:00:00:00:00:0{} {} \n"
    learned = state(neighbour=entry.format(1, "STALE"))
    assert not compare_states(learned, state(neighbour=entry.format(2, "REACHABLE")))


def test_an_address_that_is_not_to_be_used_as_a_source_is_found() -> None:
    there = json.loads(address("10.1.0.2", 24))
    there[0]["addr_info"][0]["deprecated"] = True
    (found,) = differences(address=json.dumps(there))
    assert found.observed == "there, deprecated"
    assert found.mends == "ip address replace 10.1.0.2/24 dev veth1"


def test_an_isolated_port_is_found_with_its_device() -> None:
    slave = {"info_kind": "veth", "info_slave_data": {"isolated": True}}
    (found,) = differences(address=json.dumps([LINK | {"linkinfo": slave}]))
    assert device_of(found.subject) == "veth1"
    assert found.mends == "ip link set dev veth1 type bridge_slave isolated off"


def test_a_missing_socket_and_another_resolver_are_found() -> None:
    (difference,) = differences(sockets="")
    assert (difference.section, difference.object) == ("socket", "socket tcp 10.1.0.2:8080")
    (difference,) = differences(
        **{"file /etc/resolv.conf": "nameserver 10.9.9.9\noptions ndots:5\n"}
    )
    assert (difference.intended, difference.observed) == (
        "'nameserver 10.96.0.10'",
        "'nameserver 10.9.9.9'",
    )
    assert difference.object == "file /etc/resolv.conf"
    assert "nameserver 10.96.0.10" in difference.mends


def test_a_file_of_another_network_add_on_is_removed() -> None:
    path = "/etc/cni/net.d/00-podman.conflist"
    (difference,) = differences(**{f"file {path}": "{}"})
    assert (difference.object, difference.observed) == (f"file {path}", "there is one")
    assert difference.mends == f"rm {path}"


def test_a_process_that_a_signal_stops_is_found_and_one_that_comes_or_goes_is_not() -> None:
    made = state(processes="7 (agnhost) S 1 7\n8 (sh) R 1 8\n")
    (difference,) = compare_states(made, state(processes="9 (agnhost) T 1 9\n10 (cat) T 1 10\n"))
    assert (difference.object, difference.observed) == ("process agnhost", "stopped by a signal")
    assert difference.mends == "pkill -CONT -x agnhost"


def test_a_path_mtu_that_has_expired_since_is_no_difference() -> None:
    taught = state(cache="10.9.0.1 via 10.1.0.1 dev veth1 \n    cache expires 9sec mtu 552 \n")
    assert compare_states(taught, state()) == ()


@pytest.mark.parametrize(("mtus", "differences"), [({1450, 552}, 0), ({1450, 1500}, 1)])
def test_a_path_mtu_that_a_device_of_the_lab_has_is_no_difference(
    mtus: set[int], differences: int
) -> None:
    taught = state(cache="10.9.0.1 via 10.1.0.1 dev veth1 \n    cache expires 9sec mtu 552 \n")
    left_out = churn(kubernetes=False, daemons=False, mtus=frozenset(mtus))
    assert len(compare_states(state(), taught, left_out)) == differences


@pytest.mark.parametrize(("within", "tool"), [("", "ipset"), (WITH_CALICO, f"{WITH_CALICO} ipset")])
def test_an_ipset_is_changed_with_the_program_that_there_is(within: str, tool: str) -> None:
    sets = f"in {within}\ncreate blocked hash:net family inet\nadd blocked 10.0.0.0/8\n"
    differences = compare_states(state(ipsets=f"in {within}\n"), state(ipsets=sets))
    assert [difference.mends for difference in differences] == [
        f"{tool} destroy blocked",
        f"{tool} del blocked 10.0.0.0/8",
    ]


KUBE_PROXY = """table ip kube-proxy {{ # handle 1
\tmap service-ips {{ # handle 9
\t\ttype ipv4_addr : verdict
\t\telements = {{ {service} : goto service-A-to-p1/tcp/ }}
\t}}

\tchain service-A-to-p1/tcp/ {{ # handle 2
\t\tip daddr 10.96.0.1 jump mark-for-masquerade # handle 4
\t\tnumgen random mod {count} vmap {{ 0 : goto endpoint-{end} }} # handle 5
\t}}

\tchain service-B-kube-dns/udp/ {{ # handle 10
\t\tmeta l4proto udp dnat ip to numgen random mod 1 map {{ 0 : 10.244.1.{count} . 53 }} # handle 11
\t}}

\tchain endpoint-{end} {{ # handle 6
\t\tdnat to 10.244.1.9:8080 # handle 7
\t}}
}}
"""
CALICO = """table ip calico {{ # handle 20
\tset cali40this-host {{ # handle 21
\t\ttype ipv4_addr
\t\telements = {{ 10.244.0.{end} }}
\t}}

\tmap filter-cali-to-wl-dispatch {{ # handle 22
\t\ttype ifname : verdict
\t\telements = {{ "cali{end}" : goto filter-cali-tw-cali{end} }}
\t}}

\tchain filter-cali-tw-cali{end} {{ # handle 23
\t\tct state established,related counter packets 0 bytes 0 accept # handle 24
\t}}

\tchain filter-cali-pri-kns.{end} {{ # handle 25
\t\tcounter packets 0 bytes 0 meta mark set meta mark | 0x00010000 # handle 26
\t}}
}}
"""
PORTMAP = """table ip cni_hostport {{ # handle 30
\tcomment "CNI portmap plugin"
\tchain hostports {{ # handle 1
\t\ttcp dport 8088 {verdict} comment "{id}" # handle 12
\t}}

\tchain hostip_hostports {{ # handle 2
\t}}

\tchain hostports_all {{ # handle 3
\t\tjump hostip_hostports # handle 7
\t\tjump hostports # handle 8
\t}}

\tchain prerouting {{ # handle 4
\t\ttype nat hook prerouting priority dstnat; policy accept;
\t\tfib daddr type local jump hostports_all # handle 9
\t}}

\tchain masquerading {{ # handle 6
\t\ttype nat hook postrouting priority srcnat; policy accept;
\t\tip saddr 127.0.0.1 ip daddr 10.244.1.9 masquerade comment "{id}" # handle 14
\t}}
}}
"""
"""Of a pod that asks for a port of its host."""
POD_ID = "0878ad68c48a816c4f6153e8e125165153421622ad938071dd7eda9f41299d72"
HOST_PORT = PORTMAP.format(verdict="dnat to 10.244.1.9:8080", id=POD_ID)
VETH = LINK | {"ifname": "veth0a1b2c3d"}
CLUSTER = {
    "ruleset": KUBE_PROXY.format(service="10.96.0.9", count=1, end="B") + CALICO.format(end=64),
    "address": json.dumps([LINK, VETH]),
    "route": "10.244.1.9 dev veth0a1b2c3d scope link \n",
    "neighbour": "10.244.2.0 dev flannel.1 lladdr 02:00:00:00:00:07 PERMANENT \n",
    "sockets": "tcp LISTEN 0 9 127.0.0.1:10248 0.0.0.0:*\n"
    "tcp LISTEN 0 9 127.0.0.1:41003 0.0.0.0:*\n",
}
"""A node's state, and what changes by itself there."""


def on_a_cluster(**answers: str) -> list[str]:
    made, now = state(**CLUSTER), state(**CLUSTER | answers)
    differences = compare_states(made, now, churn(kubernetes=True, daemons=False))
    return [f"{difference.change} {difference.object}" for difference in differences]


@pytest.mark.parametrize(
    "answers",
    [
        {"ruleset": KUBE_PROXY.format(service="10.96.0.8", count=2, end="C")
         + CALICO.format(end=72)},
        {"ruleset": re.sub(r"\t\tmeta l4proto.*\n", "", CLUSTER["ruleset"])},
        {"ruleset": CLUSTER["ruleset"] + HOST_PORT},
        {"address": json.dumps([LINK]), "route": ""},
        {"address": json.dumps([LINK, VETH, LINK | {"ifname": "veth99999999"}]),
         "queues": "qdisc tbf 1: dev veth99999999 root refcnt 2 rate 1Kbit\n"},
        {"route": f"{CLUSTER['route']}10.244.3.64/26 via 10.244.3.70 dev vxlan.calico onlink \n"},
        {"neighbour": "10.244.2.0 dev flannel.1 lladdr 02:00:00:00:00:08 PERMANENT \n"},
        {"sockets": "tcp LISTEN 0 9 127.0.0.1:10248 0.0.0.0:*\n"},
    ],
)  # fmt: skip
def test_what_kubernetes_changes_by_itself_is_no_difference(answers: dict[str, str]) -> None:
    assert on_a_cluster(**answers) == []
    assert compare_states(state(**CLUSTER), state(**CLUSTER | answers))


CHAIN = "chain ip kube-proxy service-A-to-p1/tcp/"
OF_KUBE_PROXY = CLUSTER["ruleset"]
DONE_TO_A_CLUSTER = {
    "a drop in the chain of a Service": (
        {"ruleset": OF_KUBE_PROXY.replace("\t\tnumgen", "\t\tdrop # handle 8\n\t\tnumgen")},
        [f"changed {CHAIN}"]),
    "its backends are not asked any more": (
        {"ruleset": re.sub(r"\t\tnumgen.*\n", "", OF_KUBE_PROXY)},
        [f"changed {CHAIN}"]),
    "another verdict of a backend that is still there": (
        {"ruleset": OF_KUBE_PROXY.replace("dnat to 10.244.1.9:8080", "drop")},
        ["changed chain ip kube-proxy endpoint-B"]),
    "a drop of the port that a pod asks for": (
        {"ruleset": OF_KUBE_PROXY + PORTMAP.format(verdict="drop", id=POD_ID)},
        ["new table ip cni_hostport"]),
    "the link of a pod that is still there": (
        {"address": json.dumps([LINK, VETH | {"mtu": 500}])}, ["changed veth0a1b2c3d mtu"]),
    "a queue on it": (
        {"queues": "qdisc tbf 1: dev veth0a1b2c3d root refcnt 2 rate 1Kbit\n"},
        ["new queue root of veth0a1b2c3d"]),
    "another link": (
        {"address": json.dumps([LINK, VETH, LINK | {"ifname": "dummy0"}])},
        ["new dummy0", "new 10.1.0.2/24 dev dummy0"]),
    "a socket at a port of its own": ({"sockets": ""}, ["gone socket tcp 127.0.0.1:10248"]),
}  # fmt: skip


@pytest.mark.parametrize(("answers", "found"), DONE_TO_A_CLUSTER.values(), ids=DONE_TO_A_CLUSTER)
def test_what_is_done_to_a_cluster_by_hand_is_a_difference(
    answers: dict[str, str], found: list[str]
) -> None:
    assert on_a_cluster(**answers) == found


def in_space(number: int, end: int | None) -> State:
    card = LINK | {"ifname": "eth0"} | ({} if end is None else {"link_index": end})
    return state(space=f"4f1c-boot\nnet:[{number}]", address=json.dumps([card]))


def test_a_pod_that_is_created_anew_is_another_one_even_in_a_namespace_of_the_same_number() -> None:
    made = in_space(7, 12)
    assert is_same_space(made, in_space(7, 12))
    assert not is_same_space(made, in_space(7, 19))
    assert not is_same_space(made, in_space(8, 12))
    assert not is_same_space(made, state(space=""))


def test_a_pod_whose_card_is_gone_is_still_the_same_one() -> None:
    assert is_same_space(in_space(7, 12), state(space="4f1c-boot\nnet:[7]", address="[]"))


@pytest.mark.parametrize("made", [False, True])
def test_a_query_that_only_one_side_answers_is_unread_and_the_rest_is_compared(made: bool) -> None:
    silent = read_state(
        f"\n{MARK} address\n[]\n{MARK}= 0\n\n{MARK} ruleset\n{MARK}= 1\n\n{MARK} end\n",
        f"\n{MARK} ruleset\nnetlink: out of memory\n",
    )
    other = state(address="[]", settings="ipv4/ip_forward:1\n", ruleset="table ip mine {\n}\n")
    silent = replace(silent, items=state(address="[]", settings="ipv4/ip_forward:0\n").items)
    *compared, unread = compare_states(*((silent, other) if made else (other, silent)))
    assert [difference.object for difference in compared] == ["setting net/ipv4/ip_forward"]
    assert (unread.kind, unread.object) == (SILENT, "the answer to 'ruleset'")
    assert "cannot be read: exit code 1: netlink: out of memory" in unread.observed


@pytest.mark.parametrize("query", ["space", "address"])
def test_without_the_devices_or_the_namespace_nothing_can_be_compared(query: str) -> None:
    with pytest.raises(BrokenError, match=f"reading '{query}' now: exit code 2"):
        compare_states(state(), unanswered(query, "2"))


def test_every_query_of_a_state_says_what_is_not_compared_without_it() -> None:
    queries = {ask.name.partition(" ")[0] for ask in asks(STATE_COMMAND[-1])} - {"filter"}
    assert queries - _NEEDED == {*_SECTIONS}
    assert {section for sections in _SECTIONS.values() for section in sections} >= {*_ORDER} - {
        "link",
        "address",
    }


def test_a_nexthop_is_shown_without_the_space_that_ip_prints_after_it() -> None:
    (found,) = differences(nexthops="id 20 group 10,3/11,2 \n")
    assert found.observed == "id 20 group 10,3/11,2"


def unanswered(query: str, end: str) -> State:
    return read_state(f"\n{MARK} {query}\n{MARK}= {end}\n\n{MARK} end\n")


@pytest.mark.parametrize("end", ["1", "127"])
def test_states_are_not_equal_because_neither_side_answers_a_query(end: str) -> None:
    silent = unanswered("ruleset", end)
    (unread,) = compare_states(silent, silent)
    assert (unread.kind, unread.observed) == (SILENT, f"cannot be read: exit code {end} (now)")


@pytest.mark.parametrize(
    ("end", "reason"),
    [("absent tc", "there is no 'tc'"), ("lacking xfrm", "the kernel has no xfrm")],
)
def test_what_neither_side_has_is_not_asked_and_no_error(end: str, reason: str) -> None:
    silent = unanswered("queues", end)
    (found,) = compare_states(silent, silent)
    assert (found.kind, found.object) == (NOT_ASKED, "queues")
    assert found.observed == reason


@pytest.mark.parametrize(("grep_exit_code", "lacks"), [(0, False), (1, True), (2, False)])
def test_a_kernel_without_the_socket_of_xfrm_has_no_xfrm(
    tmp_path: Path, grep_exit_code: int, lacks: bool
) -> None:
    read = read_made_state(tmp_path, {"grep": grep_exit_code})
    queries = {"xfrm-policies", "xfrm-states", "xfrm-default"}
    assert read.lacking & queries == (queries if lacks else set())


@pytest.mark.parametrize(
    ("ip_exit_code", "missing", "lacking"),
    [
        (0, "/proc/net/psched", {"queues"}),
        (0, "/proc/sys/net/ipv4/nexthop_compat_mode", set()),
        (1, "", set()),
        (2, "/proc/sys/net/ipv4/nexthop_compat_mode", {"nexthops", "rules"}),
        (2, "", {"rules"}),
    ],
)
def test_a_part_that_the_kernel_does_not_have_is_not_asked_for(
    tmp_path: Path, ip_exit_code: int, missing: str, lacking: set[str]
) -> None:
    read = read_made_state(tmp_path, {"ip": ip_exit_code, "grep": 0}, missing)
    assert read.lacking == lacking


def read_made_state(folder: Path, exit_codes: Mapping[str, int], missing: str = "") -> State:
    """The state with programs that print nothing, on a kernel without a file of /proc."""
    programs = dict.fromkeys(("ip", "bridge", "nft", "tc", "ss", "find"), 0)
    for name, exit_code in {**programs, **exit_codes}.items():
        program = folder / name
        program.write_text(f"#!/bin/sh\nexit {exit_code}\n")
        program.chmod(0o755)
    command = [
        word.replace(missing, f"{folder}/missing") if missing else word for word in STATE_COMMAND
    ]
    environment = {"PATH": f"{folder}:{os.environ['PATH']}"}
    done = subprocess.run(command, check=False, env=environment, capture_output=True, text=True)
    return read_state(done.stdout, done.stderr)


@pytest.mark.parametrize("other", ["0", "1", "absent ip", "lacking tc"])
def test_what_only_one_side_lacks_cannot_be_read(other: str) -> None:
    lacking, asked = unanswered("queues", "absent tc"), unanswered("queues", other)
    for sides in ((lacking, asked), (asked, lacking)):
        (unread,) = compare_states(*sides)
        assert (unread.kind, unread.object) == (SILENT, "the answer to 'queues'")


@pytest.mark.parametrize("said", ["", f"\n{MARK} links\n[]\n{MARK}= 0\n"])
def test_queries_that_did_not_come_to_their_end_are_no_state(said: str) -> None:
    with pytest.raises(BrokenError, match="cut off: sh: 0: Cannot fork"):
        read_state(said, f"\n{MARK} links\nsh: 0: Cannot fork\n")


def test_on_a_machine_with_daemons_only_what_is_theirs_does_not_differ() -> None:
    theirs = "10.9.0.0/24 via 10.1.0.9 dev veth1 proto bird\n"
    held = "10.7.0.0/24 dev veth1 proto kernel scope link src 10.7.0.1 \n"
    made, more = state(), "10.6.0.0/24 via 10.1.0.9 dev veth1 \nunreachable 10.8.0.0/24 \n"
    now = state(route=f"default via 10.1.0.1 dev veth1 \n{theirs}{held}{more}")
    nowhere, stray = compare_states(made, now, churn(kubernetes=False, daemons=True))[::-1]
    assert [nowhere.object, stray.object] == ["route to 10.8.0.0/24", "route to 10.6.0.0/24"]
    (difference,) = compare_states(made, now, churn(kubernetes=True, daemons=True))
    assert difference.object == nowhere.object  # an add-on's own have no protocol


def test_an_address_that_daemons_do_not_hold_differs_beside_them() -> None:
    there = [
        {"family": "inet", "local": local, "prefixlen": length, "scope": "global"}
        for local, length in (("10.1.0.2", 24), ("10.1.0.9", 24), ("10.1.0.7", 32))
    ]
    now = state(address=json.dumps([LINK | {"addr_info": there}]))
    others = churn(kubernetes=False, daemons=True, held=frozenset({"10.1.0.9"}))
    (difference,) = compare_states(state(), now, others)
    assert difference.mends == "ip address delete 10.1.0.7/32 dev veth1"
