"""Objects of a cluster's API that are not as made, as causes of a failed request. Pure.

A harmless change may stand beside any fault, so an object is a cause only if something agrees: it
is the Service that is asked, and what is wrong is its translation; or what it says is found again
in what is wrong: a policy's name in a chain that drops the packet, an address, port or MTU; or it
configures BGP, and learned routes are missing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from lab.explain.bracket import Bracket
from lab.explain.explainer import LEARNED
from lab.facts.objects import EVERY_POD, EVERY_SERVICE
from lab.facts.ruleset import StateDifference
from lab.matrix.verdict import OBJECT, Finding
from lab.topology.path import Path

_NAMED, _BEHIND, _CONFIGURES, _NO_BACKEND, _NOT_READY = range(5)
_SERVICE = re.compile(r"^Service |kube-proxy|KUBE-")
_MADE = re.compile(
    rf"{_SERVICE.pattern}|\bmasquerade|\bcalico\b|\bcali[-0-9a-f]|flannel|\bcni0\b"
    r"|^(?:tunnel|route|neighbour|forwarding entry|program|pod \S+(?: ports .*)?$)"
)
"""What kube-proxy and network add-ons make, in the names of findings."""
_WORD = re.compile(r"[\w.:-]{3,}")
_VALUE = re.compile(r"\d|^(?:[A-Fa-f]{2}:){5}[A-Fa-f]{2}$")
"""What is found again elsewhere: numbers, addresses, and MACs, which may be of letters alone."""


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
    for difference in differences:
        met = [name for name in difference.concerns if name in needs]
        node = (
            difference.object.removeprefix("Node ")
            if difference.object.startswith("Node ")
            else plane
        )
        finding = Finding(
            *(
                OBJECT,
                "",
                node,
                difference.object,
                difference.intended,
                difference.observed,
                difference.shows,
                difference.mends,
            ),
            *(plane, needs[met[0]] if met else -1),
        )
        if met:
            near.append((_distance(difference, met), finding))
        else:
            others.append(finding)
    return sorted(near, key=lambda pair: pair[0]), others


def _distance(one: StateDifference, met: Sequence[str]) -> int:
    of_service = any(name.startswith("Service ") for name in met)
    if one.section == "ready":
        return _NO_BACKEND if of_service else _NOT_READY
    if of_service:
        return _NAMED if one.object.startswith(("Service ", "EndpointSlice ")) else _BEHIND
    return _CONFIGURES


def with_objects(
    path: Path,
    findings: Sequence[Finding],
    near: Sequence[tuple[int, Finding]],
    bracket: Bracket | None,
) -> tuple[Finding, ...]:
    """The findings of a path, after the objects that they follow from."""
    causes = [one for distance, one in near if _is_cause(distance, one, findings, bracket)]
    if not findings and not causes and bracket:  # nothing else differs where it is translated
        services = ((one, path.hops[one.hop]) for distance, one in near if distance == _CONFIGURES)
        causes = [one for one, hop in services if hop.kind == "service" and hop.place in bracket.at]
    return (*causes, *findings)


def _is_cause(
    distance: int, one: Finding, findings: Sequence[Finding], bracket: Bracket | None
) -> bool:
    first = findings[:1]
    of_service = all(_SERVICE.search(each.object) for each in first)
    if distance in {_NAMED, _NO_BACKEND}:
        return of_service
    if distance == _NOT_READY:
        return of_service and bool(first)
    if distance == _BEHIND and not first:  # what runs behind it answers, but wrongly
        return bracket is not None and bracket.missing is None and bracket.last is not None
    if distance == _BEHIND:
        return of_service and first[0].observed == "to nobody"
    learned = [each for each in findings if each.kind in LEARNED]
    if one.object.startswith("BGP"):
        return bool(learned) and all(each in learned or ":179" in each.object for each in findings)
    said = [f"{each.object} {each.observed}" for each in findings]
    said += [word.sentence for word in bracket.kernel] if bracket else []
    made = bool(first) and all(_MADE.search(each.object) for each in first)
    return made and _is_found(one, " ".join(said))


def _is_found(one: Finding, said: str) -> bool:
    """Whether the name of an object that is new, or what it has now, is found in a text."""
    new = {*_WORD.findall(one.observed)} - {*_WORD.findall(one.intended)}
    words = {word for word in new if _VALUE.search(word)} | {one.object.split()[1]}
    wanted = (re.compile(rf"(?<!\w){re.escape(word)}(?![\w-])", re.IGNORECASE) for word in words)
    there = (word.search(said) for word in wanted)
    return any(there)
