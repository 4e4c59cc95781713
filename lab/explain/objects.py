"""Objects of a cluster's API that are not as made, as causes of a failed request. Pure.

An object is a cause if the request needs it, and nothing else is seen to lose the packet: a
Service, or what runs behind it, comes before what kube-proxy made of it; what configures kube-proxy
or the network comes before what these made, but not before a rule or a link of somebody else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from lab.explain.bracket import Bracket
from lab.facts.objects import EVERY_POD, EVERY_SERVICE
from lab.facts.ruleset import StateDifference
from lab.matrix.verdict import OBJECT, Finding
from lab.topology.path import Path

_NAMED, _OF_POD, _OF_PROXY, _OF_NETWORK, _NO_BACKEND, _NOT_READY = range(6)
_PROXY = r"kube-proxy|KUBE-|\bService |\bmasquerade"
_NETWORK = (
    r"\bcalico\b|\bcali[-0-9a-f]|flannel|\bcni0\b"
    r"|^(?:tunnel|route|neighbour|forwarding entry|program|pod \S+(?: ports .*)?$)"
)
_MAKES = {
    _NAMED: re.compile(_PROXY),
    _OF_POD: re.compile(_NETWORK),
    _OF_PROXY: re.compile(_PROXY),
    _OF_NETWORK: re.compile(_NETWORK),
    _NO_BACKEND: re.compile("^Service "),
    _NOT_READY: re.compile("^Service "),
}
"""What is made of an object, in the names of findings: it follows from the object."""


def concerned(path: Path) -> dict[str, int]:
    """What of a cluster a path needs, with the number of its first hop."""
    found: dict[str, int] = {}
    for number, hop in enumerate(path.hops):
        names = [f"node {hop.machine}"]
        names += [hop.object, EVERY_SERVICE] if hop.kind == "service" else []
        names += [f"pod {hop.place}", EVERY_POD] if hop.place != hop.machine else []
        for name in names:
            found.setdefault(name, number)
    return found


def of_objects(
    path: Path | None, differences: Iterable[StateDifference], plane: str
) -> tuple[list[tuple[int, Finding]], list[Finding]]:
    """The differences that concern a path, the nearest first, each with how near; and the others.

    Without a path, all are others. ``plane``: the control plane on which commands run.
    """
    needs = concerned(path) if path else {}
    near, others = list[tuple[int, Finding]](), list[Finding]()
    for one in differences:
        met = [name for name in one.concerns if name in needs]
        node = one.object.removeprefix("Node ") if one.object.startswith("Node ") else plane
        finding = Finding(
            *(OBJECT, "", node, one.object, one.intended, one.observed, one.shows, one.mends),
            *(plane, needs[met[0]] if met else -1),
        )
        if met:
            near.append((_distance(one, met), finding))
        else:
            others.append(finding)
    return sorted(near, key=lambda pair: pair[0]), others


def _distance(one: StateDifference, met: Sequence[str]) -> int:
    if one.section == "ready":
        named = any(name.startswith("Service ") for name in met)
        return _NO_BACKEND if named else _NOT_READY
    kinds = {"Service": _NAMED, "pod": _OF_POD}
    nearest = (kinds.get(name.partition(" ")[0], _OF_NETWORK) for name in met)
    return min(_OF_PROXY if EVERY_SERVICE in met else _OF_NETWORK, *nearest)


def with_objects(
    findings: Sequence[Finding],
    near: Sequence[tuple[int, Finding]],
    bracket: Bracket | None,
) -> tuple[Finding, ...]:
    """The findings of a path, after the objects that they follow from.

    Without findings and a bracket, only what the request names is a cause.
    """
    first = findings[:1]
    causes = []
    for distance, one in near:
        follows = all(_MAKES[distance].search(each.object) for each in first)
        known = bool(first) or (bracket is not None and distance != _NOT_READY)
        if follows and (known or distance in {_NAMED, _NO_BACKEND}):
            causes.append(one)
    return (*causes, *findings)
