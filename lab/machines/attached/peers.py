"""What is wrong on the nodes of an existing cluster, by comparing them with each other. Pure.

Nobody knows how these nodes were made. What one node has otherwise than all that it is compared
with is wrong there; what a node has of its own (addresses, MACs, its pods' range) is left out. And
flannel's annotations of the nodes say what each node must have of the others.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from ipaddress import IPv4Network
from typing import Any

from lab._errors import BrokenError, LabError
from lab._log import listed
from lab.facts.churn import churn
from lab.facts.difference import (
    DEVIATION,
    NOT_ASKED,
    SILENT,
    Difference,
    make_not_asked,
    make_unread,
)
from lab.facts.items import (
    KIND,
    PORT,
    VNI,
    Item,
    make_attribute,
    make_entry,
    make_neighbour,
)
from lab.facts.state import State, compare_states
from lab.machines.attached.record import NodeFound
from lab.topology.routing import bare
from lab.topology.subject import MachineSubject, SettingSubject, TableSubject, device_of

ENTER = ("nsenter", "-t", "1", "-m", "-n", "--")
"""Prefix of a command in a debug pod: runs it with the node's own files and network."""
_MOST_PEERS = 3
"""Nodes that each node is compared with."""
_FEWEST = 2
"""Of one other node alone nobody knows which of the two is wrong."""
_OWN = frozenset({"address", "file", "learned", "process", "socket", "cache"})
"""Parts of a state that nodes have of their own, or by what happens to run there."""
_ADDED = frozenset({"queue", "filter"})
_OF_DEVICES = frozenset({"mtu", "up", "noarp", "carrier", VNI, PORT})
_SETTINGS = re.compile(
    r"ipv4/(?:ip_forward|conf/[^/]+/(?:forwarding|rp_filter|proxy_arp|route_localnet))"
    r"|bridge/bridge-nf-call-(?:ip|arp)tables"
)
"""Those that decide whether packets pass; others depend on a node's memory and processors."""
_FORWARD = SettingSubject("ipv4/ip_forward")
_OF_FORWARD = re.compile(r"ipv4/conf/[^/]+/forwarding")
"""What the kernel sets with it."""
_SHAPERS = ("netem", "tbf")
_WORDS = re.compile(r"[\w.:]+")
_FLANNEL = "flannel.alpha.coreos.com"


def compare_nodes(
    nodes: Sequence[NodeFound], read: Mapping[str, State | LabError]
) -> Iterator[Difference]:
    """What each node has otherwise than the others, of the same role if there are enough.

    ``read``: the whole state of the nodes, or why there is none.
    """
    for name, error in read.items():
        if isinstance(error, LabError):
            yield make_unread("the node's own state", error.cause, name)
    states = {name: state for name, state in read.items() if isinstance(state, State)}
    roles = {node.name: node.role for node in nodes}
    marks = {
        node.name: _list_marks(node, states[node.name]) for node in nodes if node.name in states
    }
    for name in states:
        others = [peer for peer in states if peer != name]
        alike = [peer for peer in others if roles[peer] == roles[name]]
        peers = (alike if len(alike) >= _FEWEST else others)[:_MOST_PEERS]
        if len(peers) < _FEWEST:
            yield make_not_asked("the node's own state", "no two other nodes to compare with", name)
            continue
        for difference in _compare_node(name, peers, states, marks):
            yield _place(difference, name)


def _list_marks(node: NodeFound, state: State) -> frozenset[str]:
    """What is a node's own: its addresses, MACs and the first address of its pods' range."""
    macs = (state.items.attribute(device, "address") for device in state.items.devices())
    marks = {*node.addresses, *state.items.held(), *macs, bare(node.pod_cidr), node.name}
    return frozenset(mark for mark in marks if mark and not mark.startswith("127."))


def _compare_node(
    name: str,
    peers: Sequence[str],
    states: Mapping[str, State],
    marks: Mapping[str, frozenset[str]],
) -> Iterator[Difference]:
    by_key: dict[tuple[object, ...], dict[str, Difference]] = {}
    unread: dict[str, Difference] = {}
    for peer in peers:
        try:
            differences = compare_states(
                states[peer], states[name], churn(kubernetes=True, daemons=False)
            )
        except BrokenError as error:
            unread[error.cause] = make_unread("the node's own state", error.cause, name)
            continue
        for difference in differences:
            if difference.kind == SILENT:
                unread[difference.object] = replace(difference, node=name, place=name)
            elif _matters(difference, states[peer]):
                values = (difference.change, difference.intended, difference.observed)
                key = (difference.subject, difference.attribute, *values)
                by_key.setdefault(key, {})[peer] = difference
    yield from unread.values()
    forwards = not any(key[0] == _FORWARD for key in by_key)
    for by_peer in by_key.values():
        first = next(iter(by_peer.values()))
        # a peer itself needs no route to its own pods
        judges = [peer for peer in peers if not _mentions(first, marks[peer])]
        enough = len(judges) >= _FEWEST or first.change == "gone"
        follows = not forwards and _OF_FORWARD.fullmatch(getattr(first.subject, "path", ""))
        if judges and enough and not follows and all(peer in by_peer for peer in judges):
            yield replace(first, intended=f"{first.intended}, as on {listed(judges)}")


def _matters(difference: Difference, peer: State) -> bool:
    """Whether nodes have it alike; one has rules and routes of its own for the pods on it."""
    section, path = difference.section, getattr(difference.subject, "path", "")
    if difference.kind == NOT_ASKED or section in _OWN:
        return False
    if difference.change == "new" and section not in _ADDED:
        return isinstance(difference.subject, TableSubject)
    if section == "link" and not difference.attribute:  # names of cards differ
        made = bool(peer.items.attribute(device_of(difference.subject), KIND))
        return made and difference.change == "gone"
    return (
        (section != "link" or difference.attribute in _OF_DEVICES)
        and (section != "setting" or bool(_SETTINGS.fullmatch(path)))
        and (section != "queue" or difference.observed.startswith(_SHAPERS))
    )


def _mentions(difference: Difference, marks: frozenset[str]) -> bool:
    texts = (difference.object, difference.intended, difference.observed, *difference.values)
    return not marks.isdisjoint(_WORDS.findall(" ".join(texts)))


def _place(difference: Difference, node: str) -> Difference:
    """The difference of a node; it concerns all paths of the node."""
    if difference.kind in {SILENT, NOT_ASKED}:
        return difference
    shows, mends = difference.shows, difference.mends
    return replace(
        difference,
        node=node,
        shows=f"on {node}: {shows}",
        mends=f"on {node}: {mends}" if mends else f"make it on {node} as it is on the others",
        concerns=(("", MachineSubject(node)),),
    )


@dataclass(frozen=True, slots=True)
class _FlannelNode:
    """What flannel notes on a Node object."""

    name: str
    device: str
    mac: str
    address: str
    """Where the others send packets for it."""
    subnet: str


def compare_flannel(
    nodes: Iterable[Mapping[str, Any]], read: Mapping[str, State | LabError]
) -> Iterator[Difference]:
    """What nodes have otherwise than flannel's annotations say, if it makes VXLAN tunnels.

    ``nodes``: the Node objects.
    """
    noted = [node for each in nodes if (node := _read_flannel(each))]
    for name, state in read.items():
        if isinstance(state, LabError):
            continue
        for node in noted:
            own = node.name == name
            wrong = _compare_own(node, state) if own else _compare_other(node, state)
            yield from (_place(difference, name) for difference in wrong)


def _read_flannel(node: Mapping[str, Any]) -> _FlannelNode | None:
    notes = node["metadata"].get("annotations") or {}
    subnet = (node.get("spec") or {}).get("podCIDR")
    if notes.get(f"{_FLANNEL}/backend-type") != "vxlan" or not subnet:
        return None
    try:
        data = json.loads(notes.get(f"{_FLANNEL}/backend-data", ""))
        address, name = notes[f"{_FLANNEL}/public-ip"], node["metadata"]["name"]
        mac = str(data["VtepMAC"]).lower()
        return _FlannelNode(name, f"flannel.{int(data.get('VNI', 1))}", mac, address, subnet)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _compare_own(node: _FlannelNode, state: State) -> Iterator[Difference]:
    has = state.items.attribute(node.device, "address")
    if has != node.mac:
        wanted = make_attribute(node.device, "address", node.mac)
        yield _differ(wanted, f"{node.mac}, as Node {node.name} says", has)


def _compare_other(node: _FlannelNode, state: State) -> Iterator[Difference]:
    """What a node must have to reach another one."""
    if node.device not in state.items.devices():
        return  # the device is what is wrong
    via = str(IPv4Network(node.subnet).network_address)
    for end, wanted in (
        (node.mac, make_neighbour(via, node.device, node.mac)),
        (node.address, make_entry(node.mac, node.device, node.address)),
    ):
        item = state.items.get(wanted.key)
        has = item.value if item else ""
        if end not in _WORDS.findall(has):
            yield _differ(wanted, f"{end}, for {node.name}", has)


def _differ(wanted: Item, intended: str, observed: str) -> Difference:
    return Difference(
        *(DEVIATION, "", "", wanted.object, intended, observed or "there is none"),
        *(wanted.shows, wanted.make, ""),
        subject=wanted.subject,
        attribute=wanted.attribute,
        change="changed" if observed else "gone",
        section=wanted.section,
    )
