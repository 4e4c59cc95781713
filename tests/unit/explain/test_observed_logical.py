"""What Open vSwitch and OVN write, read: dumps of ovsdb-client, flows, neighbours."""

from __future__ import annotations

import json

from lab.facts.linux import read_facts
from lab.facts.ovn import databases, switching
from lab.facts.translations import End, Translated

EMPTY = ["set", []]


def uuid(text: str) -> list[str]:
    return ["uuid", text]


def dump(**tables: list[dict[str, object]]) -> str:
    """As ovsdb-client 3.1 writes it: a line a table, columns apart from rows."""
    return "".join(
        json.dumps(
            {
                "caption": f"{name} table",
                "headings": list(rows[0]) if rows else ["_uuid"],
                "data": [list(row.values()) for row in rows],
            }
        )
        + "\n"
        for name, rows in tables.items()
    )


INTERFACES = (
    ("i1", "eth0", "", [], []),
    ("i2", "veth1", "", [["iface-id", "worker1-p1"]], []),
    ("i3", "ovn-win1-0", "geneve", [], [["remote_ip", "10.20.0.13"], ["key", "flow"]]),
)
SWITCH = dump(
    Open_vSwitch=[
        {"_uuid": uuid("r"), "external_ids": ["map", [["ovn-encap-ip", "10.20.0.11"]]]},
    ],
    Bridge=[
        {"_uuid": uuid("b1"), "name": "br-ex", "ports": uuid("p1")},
        {"_uuid": uuid("b2"), "name": "br-int", "ports": ["set", [uuid("p2"), uuid("p3")]]},
    ],
    Port=[{"_uuid": uuid(f"p{n}"), "interfaces": uuid(f"i{n}")} for n in (1, 2, 3)],
    Interface=[
        {"_uuid": uuid(key), "name": name, "type": kind, "external_ids": ["map", ids],
         "options": ["map", options]}
        for key, name, kind, ids, options in INTERFACES
    ],
)  # fmt: skip
FLOWS = """ priority=100,udp,tp_dst=6081 actions=drop
 priority=0 actions=NORMAL
"""
NEIGHBOURS = """IP                                            MAC                 Bridge
==========================================================================
10.20.0.13                                    0a:58:0a:14:00:0d   br-ex
"""


def test_a_switch_lists_its_ports_and_its_drops() -> None:
    found = switching(SWITCH, {"br-ex": FLOWS}, NEIGHBOURS)
    assert found.settings == {"ovn-encap-ip": "10.20.0.11"}
    assert [(port.name, port.bridge, port.logical, port.remote) for port in found.ports] == [
        ("eth0", "br-ex", "", ""),
        ("veth1", "br-int", "worker1-p1", ""),
        ("ovn-win1-0", "br-int", "", "10.20.0.13"),
    ]
    (flow,) = found.flows
    assert (str(flow.subject), flow.protocol, flow.ports) == ("flows of br-ex", "udp", (6081, 6081))
    assert flow.mends == "ovs-ofctl --strict del-flows br-ex udp,tp_dst=6081,priority=100"
    assert [(neighbour.address, neighbour.mac) for neighbour in found.neighbours] == [
        ("10.20.0.13", "0a:58:0a:14:00:0d")
    ]


FLOWS_OF_OVN = """ table=254, priority=2,recirc_id=0 actions=drop
 table=40, priority=0 actions=drop
 priority=0 actions=drop
 table=39, priority=150,reg10=0x2/0x3 actions=resubmit(,40)
"""


def test_a_foreign_flow_is_distinguished_from_ovns() -> None:
    put_in = " table=8, priority=300,udp,nw_dst=10.244.1.4,tp_dst=8080 actions=drop\n"
    assert switching(SWITCH, {"br-int": FLOWS_OF_OVN}, "").flows == ()
    (flow,) = switching(SWITCH, {"br-int": FLOWS_OF_OVN + put_in}, "").flows
    assert (flow.protocol, flow.ports, flow.prefixes) == ("udp", (8080, 8080), ("10.244.1.4",))
    where = "table=8,udp,nw_dst=10.244.1.4,tp_dst=8080,priority=300"
    assert flow.mends == f"ovs-ofctl --strict del-flows br-int {where}"


def northbound(groups: object, own: object) -> str:
    return dump(
        ACL=[{"_uuid": uuid("a"), "action": "drop", "direction": "from-lport", "priority": 1000,
              "match": "ip4.dst == 10.96.0.10 && udp.dst == 53"}],
        Load_Balancer=[
            {"_uuid": uuid("l1"), "name": "everyone/tcp", "protocol": "tcp",
             "vips": ["map", [["10.96.0.30:80", "10.0.1.4:8080,10.0.2.4:8080"]]]},
            {"_uuid": uuid("l2"), "name": "local/udp", "protocol": "udp",
             "vips": ["map", [["10.96.0.31:80", ""]]]},
        ],
        Load_Balancer_Group=[{"_uuid": uuid("g"), "load_balancer": uuid("l1")}],
        Logical_Router_Static_Route=[
            {"_uuid": uuid("s"), "ip_prefix": "10.0.2.0/24", "nexthop": "10.0.2.2",
             "policy": "src-ip"}],
        Logical_Switch_Port=[
            {"_uuid": uuid("p"), "name": "worker1-p1", "addresses": "0a:58:0a:00:02:04 10.0.2.4"}],
        Logical_Switch=[
            {"_uuid": uuid("w"), "name": "worker1", "ports": uuid("p"), "load_balancer": own,
             "load_balancer_group": groups, "acls": uuid("a")}],
    )  # fmt: skip


CHASSIS = dump(Chassis=[{"_uuid": uuid("c"), "name": "worker1"}])
ENCAPS = dump(Encap=[{"_uuid": uuid("e"), "chassis_name": "worker1", "ip": "10.20.0.11"}])
BINDINGS = dump(
    Port_Binding=[
        {"_uuid": uuid("1"), "logical_port": "worker1-p1", "chassis": uuid("c")},
        {"_uuid": uuid("2"), "logical_port": "worker1-p2", "chassis": EMPTY},
    ]
)


def test_databases_list_each_switchs_own_and_group_balancers() -> None:
    found = databases(northbound(uuid("g"), uuid("l2")), CHASSIS, ENCAPS, BINDINGS)
    (switch,) = found.switches
    ends = (End("10.0.1.4", 8080), End("10.0.2.4", 8080))
    assert set(switch.balanced) == {
        Translated("tcp", "10.96.0.30", 80, ends),
        Translated("udp", "10.96.0.31", 80, ()),
    }
    assert switch.ports == {"worker1-p1": ("0a:58:0a:00:02:04 10.0.2.4",)}
    (barrier,) = switch.barriers
    assert (barrier.protocol, barrier.ports, barrier.prefixes) == (
        "udp",
        (53, 53),
        ("10.96.0.10/32",),
    )
    assert found.routes == {"10.0.2.0/24": "10.0.2.2"}
    assert found.chassis == {"worker1": "10.20.0.11"}
    assert found.bindings == {"worker1-p1": "worker1", "worker1-p2": ""}
    without = databases(northbound(EMPTY, EMPTY), CHASSIS, ENCAPS, BINDINGS)
    assert without.switches[0].balanced == ()


def test_what_cannot_be_read_is_absent_with_the_reason() -> None:
    found = read_facts("\n@@@ switch\nnonsense\n\n@@@= 0\n\n@@@ end\n", "")
    assert found.switching is None
    assert "cannot be read" in dict(found.absent)["switch"]
