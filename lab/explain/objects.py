"""Changed objects of a cluster's API as causes of a failed request. Pure.

Any lab may have harmless changes beside a fault, so a changed object is a cause only if something
on the path confirms it: it is the requested Service, and its translation is wrong; or a value of it
appears in what is wrong, such as a policy's name in a chain that drops the packet, an address, a
port or an MTU; or it configures BGP, and learned routes are missing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from lab.explain.bracket import Bracket
from lab.explain.check import kind_of
from lab.facts.difference import DEVIATION, Concern, Difference
from lab.facts.objects import EVERY_POD, EVERY_SERVICE, READY
from lab.topology.path import Path
from lab.topology.subject import (
    ApiSubject,
    ChainSubject,
    DeviceSubject,
    EntranceSubject,
    EntrySubject,
    FileSubject,
    IpSetSubject,
    IptablesSubject,
    LeavingSubject,
    MachineSubject,
    NeighbourSubject,
    PodSubject,
    ProgramSubject,
    RouteSubject,
    ServiceSubject,
    SetSubject,
    SocketSubject,
    Subject,
    TableSubject,
    TunnelSubject,
    UnitSubject,
    device_of,
)

_NAMED, _BEHIND, _CONFIGURES, _NO_BACKEND, _NOT_READY = range(5)
_BGP = frozenset({"BGPConfiguration", "BGPPeer", "BGPFilter"})
_BGP_PORT = "179"
_OF_ADDONS = re.compile(r"^flannel|^cni0$|^cali[-0-9a-f]|^vxlan\.calico$")
"""Devices that network add-ons make."""


def _of_kube_proxy(difference: Difference) -> bool:  # noqa: PLR0911  a table
    """Whether it is a Service's, or of what kube-proxy makes."""
    match difference.subject:
        case ServiceSubject(name=name):
            return bool(name)
        case EntranceSubject() | LeavingSubject(source=""):
            return True
        case TableSubject(table=table):
            return table == "kube-proxy"
        case SetSubject(table=table):
            return table == "kube-proxy"
        case ChainSubject(table=table, chain=chain):
            return table == "kube-proxy" or chain.startswith("KUBE-")
        case IptablesSubject(chain=chain):
            return chain.startswith("KUBE-")
        case IpSetSubject(name=name):
            return name.startswith("KUBE-")
        case ProgramSubject(name=name) | UnitSubject(name=name):
            return name == "kube-proxy"
        case _:
            return False


def _of_addon(difference: Difference) -> bool:  # noqa: PLR0911  a table
    """Whether it is of what kube-proxy and network add-ons make."""
    subject = difference.subject
    if _of_kube_proxy(difference) or _OF_ADDONS.search(device_of(subject)):
        return True
    match subject:
        case TableSubject(table=table) | SetSubject(table=table):
            return table == "calico"
        case ChainSubject(table=table, chain=chain):
            return table == "calico" or chain.startswith(("cali-", "masquerad"))
        case IpSetSubject(name=name):
            return name.startswith("cali")
        case DeviceSubject(kind=kind):
            return kind == "tunnel"
        case RouteSubject() | NeighbourSubject() | EntrySubject():
            of_pod = difference.kind == DEVIATION and difference.place != difference.node
            return not of_pod  # what only the comparison finds in a pod is the lab's
        case ProgramSubject(name=name) | UnitSubject(name=name):
            checked = isinstance(subject, ProgramSubject) and difference.kind != DEVIATION
            return checked or name.startswith(("flannel", "calico"))
        case FileSubject(path=path):
            return "flannel" in path
        case PodSubject() | TunnelSubject():
            return True
        case _:
            return False


def list_concerns(path: Path) -> dict[Concern, int]:
    """What of a cluster a path needs, with the number of its first hop."""
    first: dict[Concern, int] = {}
    for number, hop in enumerate(path.hops):
        subjects: list[Subject] = [MachineSubject(hop.machine)]
        subjects += [hop.subject, EVERY_SERVICE] if hop.kind == "service" else []
        subjects += [PodSubject(hop.place), EVERY_POD] if hop.place != hop.machine else []
        for subject in subjects:
            first.setdefault(("", subject), number)
    return first


def split_by_path(
    path: Path | None, differences: Iterable[Difference], plane: str
) -> tuple[list[tuple[int, Difference]], list[Difference]]:
    """The differences that concern a path, the nearest first, each with how near; and the others.

    Without a path, all are others. ``plane``: the control plane on which commands run.
    """
    needs = list_concerns(path) if path else {}
    near, others = list[tuple[int, Difference]](), list[Difference]()
    for difference in differences:
        met = [concern for concern in difference.concerns if concern in needs]
        subject = difference.subject
        of_node = isinstance(subject, ApiSubject) and subject.kind == "Node"
        finding = replace(
            difference,
            node=subject.name
            if isinstance(subject, ApiSubject) and of_node
            else difference.node or plane,
            place=plane,
            hop=needs[met[0]] if met else -1,
        )
        if met:
            near.append((_distance(finding, met), finding))
        else:
            others.append(finding)
    return sorted(near, key=lambda pair: pair[0]), others


def _distance(difference: Difference, met: Sequence[Concern]) -> int:
    of_service = any(isinstance(need, ServiceSubject) and need.name for _, need in met)
    if difference.attribute == READY:
        return _NO_BACKEND if of_service else _NOT_READY
    if of_service:
        subject = difference.subject
        itself = isinstance(subject, ApiSubject) and subject.kind in {"Service", "EndpointSlice"}
        return _NAMED if itself else _BEHIND
    return _CONFIGURES


def put_objects_first(
    path: Path,
    findings: Sequence[Difference],
    near: Sequence[tuple[int, Difference]],
    bracket: Bracket | None,
) -> tuple[Difference, ...]:
    """The findings of a path, after the objects that they follow from."""
    if path.unobserved:
        return tuple(difference for _, difference in near)
    causes = [
        difference
        for distance, difference in near
        if _is_cause(distance, difference, findings, bracket)
    ]
    if not findings and not causes and bracket:  # nothing else differs where it is translated
        services = (
            (difference, path.hops[difference.hop])
            for distance, difference in near
            if distance == _CONFIGURES
        )
        causes = [
            difference
            for difference, hop in services
            if hop.kind == "service" and hop.place in bracket.loss_places
        ]
    return (*causes, *findings)


def _is_cause(
    distance: int, difference: Difference, findings: Sequence[Difference], bracket: Bracket | None
) -> bool:
    first = findings[:1]
    of_service = all(_of_kube_proxy(finding) for finding in first)
    if distance in {_NAMED, _NO_BACKEND}:
        return of_service
    if distance == _NOT_READY:
        return of_service and bool(first)
    if distance == _BEHIND and not first:  # what runs behind it answers, but wrongly
        return bracket is not None and bracket.missing is None and bracket.last is not None
    if distance == _BEHIND:
        return of_service and first[0].attribute == "backends" and first[0].change == "gone"
    learned = [finding for finding in findings if kind_of(finding).symptom == "learned"]
    if isinstance(difference.subject, ApiSubject) and difference.subject.kind in _BGP:
        return bool(learned) and all(
            finding in learned or _is_of_bgp(finding) for finding in findings
        )
    values = [value for finding in findings for value in finding.values]
    values += [value for word in bracket.kernel for value in word.values] if bracket else []
    return bool(first) and all(map(_of_addon, first)) and _is_found(difference, " ".join(values))


def _is_of_bgp(difference: Difference) -> bool:
    subject = difference.subject
    return isinstance(subject, SocketSubject) and subject.port == _BGP_PORT


def _is_found(difference: Difference, text: str) -> bool:
    """Whether the name of an object that is new, or what it has now, is what machines have."""
    wanted = (rf"(?<!\w){re.escape(value)}(?![\w-])" for value in difference.values)
    return any(re.search(pattern, text, re.IGNORECASE) for pattern in wanted)
