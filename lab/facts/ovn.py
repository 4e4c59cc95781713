"""The state of Open vSwitch and OVN in the Intent's terms. Pure.

A chassis' switch is queried on the chassis, OVN's two databases on their machine.
Sources: ovs-vswitchd.conf.db(5), ovn-nb(5), ovn-sb(5), ovs-fields(7).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from lab.facts.translations import Barrier, End, Translated
from lab.topology.intent import Neighbour
from lab.topology.subject import FlowsSubject, LogicalSubject

Row = Mapping[str, Any]
"""Column to value: sets are lists, maps are dictionaries, references are the rows' UUIDs."""


def tables(text: str) -> Mapping[str, tuple[Row, ...]]:
    """Every table of a dump by name.

    Raises
    ------
    ValueError
        When it is not output of ovsdb-client.

    """
    rows_of = {}
    for line in text.splitlines():
        if line.strip():
            document = json.loads(line)
            name = str(document["caption"]).removesuffix(" table")
            rows_of[name] = tuple(
                {key: _plain(value) for key, value in zip(document["headings"], row, strict=True)}
                for row in document["data"]
            )
    return rows_of


def several(value: Any) -> tuple[Any, ...]:
    """The values of a set column: a set with one element is written as the element."""
    return tuple(value) if isinstance(value, list) else (value,)


def _plain(value: Any) -> Any:
    match value:
        case ["set", list(members)]:
            return [_plain(member) for member in members]
        case ["map", list(pairs)]:
            return {str(_plain(key)): _plain(item) for key, item in pairs}
        case ["uuid", text]:
            return text
    return value


_NEIGHBOUR = re.compile(r"^(\d+\.\d+\.\d+\.\d+)\s+([0-9a-f:]{17})\s+(\S+)$", re.MULTILINE)
_PORT_OF_FLOW = re.compile(r"\b(tcp|udp)\b.*\btp_dst=(\d+)")
_ENDS_OF_FLOW = re.compile(r"\bnw_(?:src|dst)=([\d./]+)")
_OF_OVN = re.compile(r"table=254\b|.*\bpriority=0\b")
"""The drops of ``br-int`` without a cookie that OVN and Open vSwitch make themselves."""
_PORT_OF_MATCH = re.compile(r"\b(tcp|udp)\.dst == (\d+)")
_TARGET_OF_MATCH = re.compile(r"\bip4\.dst == ([\d.]+)(/\d+)?")


@dataclass(frozen=True, slots=True)
class SeenPort:
    """An interface of Open vSwitch."""

    name: str
    bridge: str
    kind: str
    """Empty for a kernel device; ``"internal"``, ``"geneve"``."""
    logical: str
    """Name of its logical port (``iface-id``); empty if it is none."""
    remote: str
    """For a tunnel: the remote address."""


@dataclass(frozen=True, slots=True)
class Switching:
    """Open vSwitch on one machine."""

    settings: Mapping[str, str]
    """Its ``external_ids``, which configure OVN."""
    ports: tuple[SeenPort, ...]
    flows: tuple[Barrier, ...]
    """Flows that drop, but for OVN's own."""
    neighbours: tuple[Neighbour, ...]
    """Neighbours for the tunnels' packets."""

    def port(self, name: str) -> SeenPort | None:
        """The interface with this name."""
        return next((port for port in self.ports if port.name == name), None)


@dataclass(frozen=True, slots=True)
class SeenSwitch:
    """A logical switch of the northbound database."""

    name: str
    ports: Mapping[str, tuple[str, ...]]
    """Name to addresses: ``"0a:58:0a:00:02:04 10.0.2.4"``."""
    balanced: tuple[Translated, ...]
    """From all its load balancers, direct or through a group."""
    barriers: tuple[Barrier, ...]
    """Its ACLs that drop or reject."""


@dataclass(frozen=True, slots=True)
class Databases:
    """The content of OVN's databases."""

    switches: tuple[SeenSwitch, ...]
    routes: Mapping[str, str]
    """By source prefix, the next hop's address."""
    chassis: Mapping[str, str]
    """Registered chassis, and the address of each one's tunnels."""
    bindings: Mapping[str, str]
    """Logical port to its chassis; empty if unbound."""

    def switch(self, name: str) -> SeenSwitch | None:
        """The logical switch with this name."""
        return next((switch for switch in self.switches if switch.name == name), None)


def switching(dump: str, flows: Mapping[str, str], neighbours: str) -> Switching:
    """Parse Open vSwitch's database, each bridge's flows, and the tunnel neighbours.

    Raises
    ------
    ValueError, KeyError
        When the dump cannot be parsed.

    """
    database = tables(dump)
    interfaces = {str(row["_uuid"]): row for row in database["Interface"]}
    ports = {str(row["_uuid"]): row for row in database["Port"]}
    (root,) = database["Open_vSwitch"]
    return Switching(
        settings=root["external_ids"],
        ports=tuple(
            _port(str(bridge["name"]), interfaces[uuid])
            for bridge in database["Bridge"]
            for port in several(bridge["ports"])
            for uuid in several(ports[port]["interfaces"])
        ),
        flows=tuple(it for bridge, text in flows.items() for it in _barring(bridge, text)),
        neighbours=tuple(
            Neighbour(address, mac, device)
            for address, mac, device in _NEIGHBOUR.findall(neighbours)
        ),
    )


def _port(bridge: str, row: Row) -> SeenPort:
    return SeenPort(
        name=str(row["name"]),
        bridge=bridge,
        kind=str(row["type"]),
        logical=str(row["external_ids"].get("iface-id", "")),
        remote=str(row["options"].get("remote_ip", "")),
    )


def _barring(bridge: str, text: str) -> Iterator[Barrier]:
    """Flows that drop; a bridge that switches normally has only one, with ``NORMAL``."""
    for line in text.splitlines():
        flow = line.strip()
        match_of, _, actions = flow.partition(" actions=")
        if actions != "drop" or (bridge == "br-int" and _OF_OVN.match(match_of)):
            continue
        match = _PORT_OF_FLOW.search(match_of)
        where = ",".join(sorted(re.split(r",\s*", match_of), key=_is_priority))
        yield Barrier(
            subject=FlowsSubject(bridge),
            rule=flow,
            protocol=match[1] if match else "",
            ports=(int(match[2]), int(match[2])) if match else None,
            prefixes=tuple(_ENDS_OF_FLOW.findall(match_of)),
            shows=f"ovs-ofctl --no-stats dump-flows {bridge}",
            mends=f"ovs-ofctl --strict del-flows {bridge} {where}",
        )


def _is_priority(part: str) -> bool:
    return part.startswith("priority=")


def databases(northbound: str, chassis: str, encaps: str, bindings: str) -> Databases:
    """Parse dumps of the whole northbound database and of the southbound tables.

    Raises
    ------
    ValueError, KeyError
        When a dump cannot be parsed.

    """
    north = tables(northbound)
    balancers = {str(row["_uuid"]): row for row in north["Load_Balancer"]}
    groups = {str(row["_uuid"]): row for row in north["Load_Balancer_Group"]}
    ports = {str(row["_uuid"]): row for row in north["Logical_Switch_Port"]}
    acls = {str(row["_uuid"]): row for row in north["ACL"]}
    ends = {str(row["chassis_name"]): str(row["ip"]) for row in tables(encaps)["Encap"]}
    registered = {str(row["_uuid"]): str(row["name"]) for row in tables(chassis)["Chassis"]}
    switches = []
    for row in north["Logical_Switch"]:
        group_members = [
            uuid
            for group in several(row["load_balancer_group"])
            for uuid in several(groups[group]["load_balancer"])
        ]
        own = [balancers[uuid] for uuid in (*several(row["load_balancer"]), *group_members)]
        own_ports = [ports[uuid] for uuid in several(row["ports"])]
        barring = [acls[uuid] for uuid in several(row["acls"])]
        name = str(row["name"])
        switches.append(
            SeenSwitch(
                name=name,
                ports={str(port["name"]): several(port["addresses"]) for port in own_ports},
                balanced=tuple(it for balancer in own for it in _balanced(balancer)),
                barriers=tuple(_barrier(name, acl) for acl in barring if acl["action"] in _BARS),
            )
        )
    return Databases(
        switches=tuple(sorted(switches, key=lambda switch: switch.name)),
        routes=dict(_routes(north["Logical_Router_Static_Route"])),
        chassis={name: ends.get(name, "") for name in sorted(registered.values())},
        bindings={
            str(row["logical_port"]): "".join(
                registered.get(str(uuid), "") for uuid in several(row["chassis"])
            )
            for row in tables(bindings)["Port_Binding"]
        },
    )


_BARS = {"drop", "reject"}


def _routes(rows: Iterable[Row]) -> Iterator[tuple[str, str]]:
    for row in rows:
        if "src-ip" in several(row["policy"]):
            yield str(row["ip_prefix"]), str(row["nexthop"])


def _balanced(row: Row) -> Iterator[Translated]:
    protocol = "".join(several(row["protocol"])) or "tcp"
    for address, ends in row["vips"].items():
        yield Translated(
            protocol,
            *_end(address),
            tuple(End(*_end(word)) for word in str(ends).split(",") if word),
        )


def _end(text: str) -> tuple[str, int]:
    address, _, port = text.rpartition(":")
    return address, int(port)


def _barrier(switch: str, row: Row) -> Barrier:
    match = str(row["match"])
    port, target = _PORT_OF_MATCH.search(match), _TARGET_OF_MATCH.search(match)
    return Barrier(
        subject=LogicalSubject("access control list", switch),
        rule=f"{row['direction']} {row['priority']} '{match}' {row['action']}",
        protocol=port[1] if port else "",
        ports=(int(port[2]), int(port[2])) if port else None,
        prefixes=(f"{target[1]}{target[2] or '/32'}",) if target else (),
        shows=f"ovn-nbctl --no-leader-only acl-list {switch}",
        mends=f"ovn-nbctl --no-leader-only acl-del {switch} {row['direction']} "
        f"{row['priority']} '{match}'",
        refuses=row["action"] == "reject",
    )
