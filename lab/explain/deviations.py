"""What differs on a path from the state that the lab made, the nearest to the loss first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from lab.explain.bracket import AT, Bracket
from lab.explain.check import kind_of
from lab.explain.explainer import PathFindings
from lab.explain.lab_queries import Compare, compare_places
from lab.explain.paths import places_of
from lab.explain.topics import protocols_of, table_family
from lab.facts.difference import DEVIATION, Difference
from lab.providers.capture import Tap
from lab.topology.path import Hop, Packet, Path
from lab.topology.routing import covers
from lab.topology.subject import CachedMtuSubject, RouteSubject, device_of

_NO_COMMAND = "run 'lab up' again: no single command undoes it"


def list_deviations(
    path: Path, compared: Mapping[str, Sequence[Difference]]
) -> tuple[Difference, ...]:
    """All differences of state along a path, by place; within a place, the path's devices first."""
    findings: list[Difference] = []
    for place in dict.fromkeys(hop.place for hop in path.hops):
        at = {
            hop.device: number
            for number, hop in reversed([*enumerate(path.hops)])
            if hop.place == place
        }
        first = next(number for number, hop in enumerate(path.hops) if hop.place == place)
        differences = sorted(
            compared.get(place, ()),
            key=lambda each: bool(device_of(each.subject)) and device_of(each.subject) not in at,
        )
        machine = path.hops[first].machine
        findings += (
            finding_of(machine, place, each, at.get(device_of(each.subject), first))
            for each in differences
        )
    return tuple(findings)


def finding_of(machine: str, place: str, difference: Difference, hop: int = -1) -> Difference:
    """The difference of the state of a machine, or of a pod on it."""
    within = "" if place == machine else f"pod {place}, "
    return replace(
        difference,
        node=machine,
        object=f"{within}{difference.object}",
        mends=difference.mends or _NO_COMMAND,
        place=place,
        hop=hop,
    )


def find_end_deviations(path: Path, compare: Compare) -> tuple[Difference, ...]:
    """The differences of state of the machine or pod that is asked."""
    return list_deviations(path, compare_places(compare, [path.request[-1].place]))


def find_deviating_path(
    paths: Iterable[Path], compared: Mapping[str, Sequence[Difference]]
) -> PathFindings | None:
    """The first path with differences; a path to another backend may have none."""
    explained = (PathFindings(path, list_deviations(path, compared)) for path in paths)
    return next((candidate for candidate in explained if candidate.findings), None)


def add_deviations(
    explained: PathFindings, paths: Sequence[Path], compare: Compare, bracket: Bracket | None
) -> tuple[PathFindings, Sequence[Difference]]:
    """Findings by distance from the loss, and those that the packets rule out as the cause.

    Without a bracket, differences of the whole state are not reported as findings.
    """
    if bracket is None:
        deviating = find_deviating_path(paths, compare_places(compare, places_of(paths)))
        return explained, [
            replace(finding, hop=-1) for finding in deviating.findings
        ] if deviating else ()
    path = paths[bracket.path_index]
    everywhere = places_of([path])
    near = bracket.loss_places | bracket.next_places | bracket.dropping()
    here = [place for place in everywhere if place in near]
    others: list[Difference] = []
    for places in (here, [place for place in everywhere if place not in here]):
        differs = list_deviations(path, compare_places(compare, places)) if places else ()
        causes = [difference for difference in differs if bracket.allows(difference)]
        others += (
            replace(difference, hop=-1) for difference in differs if difference not in causes
        )
        if causes:
            every = sorted(
                (*causes, *explained.findings),
                key=lambda difference: rank_finding(difference, path, bracket),
            )
            return PathFindings(path, tuple(every)), others
    return explained, others


def is_in_doubt(explained: PathFindings, bracket: Bracket | None) -> bool:
    """Whether the checks found nothing at the place of the loss that can cause it.

    If the kernel reports a rule that drops the probe, only findings that it reports count; if it
    reports something else there, findings about rules do not.
    """
    if bracket is None:
        return all(kind_of(finding).symptom for finding in explained.findings)
    ruled = bracket.dropping()
    other = any(word.drops and word.place in bracket.loss_places for word in bracket.kernel)
    return all(
        kind_of(finding).symptom
        or rank_place(finding, explained.path, bracket) != AT
        or (bracket.kernel_rank(finding) and (ruled or (other and finding.barrier is not None)))
        for finding in explained.findings
    )


def rank_place(finding: Difference, path: Path, bracket: Bracket) -> int:
    """Distance from the loss, or the hop; what serves all machines may be on any of them."""
    if kind_of(finding).everywhere:
        return AT
    met = path.hops[finding.hop].place if finding.hop >= 0 else finding.place
    return min(bracket.rank(finding), bracket.rank(replace(finding, place=met)))


def rank_finding(
    finding: Difference, path: Path, bracket: Bracket
) -> tuple[bool, bool, int, bool, bool, int, int, bool, int, bool]:
    """Consequences last, before them rules for packets that the probe has none of there.

    Then by distance; then what the kernel drops by; then known kinds; then the device that the
    probe never passed. Of what was passed before the loss, the last comes first; a route for other
    targets comes after the rest.
    """
    dark = finding.attribute == "carrier"
    cached = isinstance(finding.subject, CachedMtuSubject)
    follows = dark or cached or bool(kind_of(finding).symptom)
    rank, heard = rank_place(finding, path, bracket), bracket.kernel_rank(finding)
    places = bracket.passed_places
    passed = places.index(finding.place) if finding.place in places else 0
    hops = (hop for hop in path.hops if hop.place == finding.place)
    packets = [packet for hop in hops for packet in (hop.packet, hop.carried) if packet]
    others = bool(packets) and not any(_is_for(finding, each) for each in packets)
    others |= not _passes_hook(finding, path.reply if bracket.answer else path.request, path)
    others &= heard > 0
    route = finding.subject if isinstance(finding.subject, RouteSubject) else _DEFAULT
    foreign = bool(packets) and not any(covers(route.prefix, packet.target) for packet in packets)
    wide = -route.length  # of several routes the longest one is used
    deviates = finding.kind == DEVIATION
    device = Tap(finding.place, device_of(finding.subject))
    aside = bracket.missing is None or bracket.missing.tap != device
    return follows, others, rank, heard > 0, foreign, passed, wide, deviates, heard, aside


_DEFAULT = RouteSubject("default")
_MOST_FIXED = 32767
"""The highest port that is no sender's own: the kernel chooses from 32768 on
(``ip_local_port_range`` of the kernel's ip-sysctl)."""


def _is_for(finding: Difference, packet: Packet) -> bool:
    """Whether a difference is about the packet's protocol and destination port."""
    protocols, ports = protocols_of(finding), finding.effect.ports
    if protocols and packet.protocol not in protocols:
        return False
    if packet.answer:  # to a port that its client chose
        return not ports or any(last > _MOST_FIXED for _, last in ports)
    return not ports or any(first <= packet.port <= last for first, last in ports)


def _passes_hook(finding: Difference, lost: Sequence[Hop], path: Path) -> bool:
    """Whether packets of the path pass one of the hooks of a chain; true of anything else.

    A machine that carries other packets in its own passes all of them. A bridge's chains for what
    the machine itself takes and sends see no frames that stay on the bridge; ``lost``: the way on
    which the probe is lost.
    """
    hooks = finding.effect.hooks
    family = table_family(finding)
    here = [hop for hop in lost if hop.place == finding.place]
    if family == "bridge" and here and not any(hop.kind == "route" for hop in here):
        return not hooks or not hooks <= {"input", "output"}
    carries = any(hop.carried for hop in path.hops if hop.place == finding.place)
    if carries or family in {"bridge", "arp", "netdev"}:
        return True
    own = finding.place in {hop.place for hop in (*path.request[:1], *path.request[-1:])}
    return not hooks or not hooks <= ({"forward"} if own else {"input", "output"})
