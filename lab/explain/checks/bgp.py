"""BGP sessions as BIRD reports them, and differences from the Intent. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from lab.explain.check import Check, Kind, LabLook, concerned, differs
from lab.facts.difference import Concern, Difference
from lab.facts.node import NodeFacts, SeenSession
from lab.topology import bird
from lab.topology.footprint import By, bird_of
from lab.topology.intent import Intent, MachineIntent, Session
from lab.topology.subject import BgpSubject, RouteSubject

_ESTABLISHED = "Established"
_SHUT = "down"


def _seen(
    intent: Intent, machine: MachineIntent, session: Session, facts: NodeFacts, by: By
) -> SeenSession | None:
    control = bird_of(intent, machine, by)
    return next(
        (candidate for candidate in facts.sessions if control.has(session, candidate.name)), None
    )


def _is_shut(
    intent: Intent, observed: Mapping[str, NodeFacts], session: Session, peer: str, by: By
) -> bool:
    """Whether the other end has disabled the session with that peer."""
    facts, far = observed.get(session.machine), intent.machine(session.machine)
    back = [
        candidate
        for candidate in (far.speaker.sessions if far.speaker else ())
        if candidate.machine == peer
    ]
    actual = _seen(intent, far, back[0], facts, by) if facts and back else None
    return actual is not None and actual.state == _SHUT


def _difference(
    intent: Intent, machine: MachineIntent, session: Session, actual: SeenSession | None, by: By
) -> Difference:
    shut, control = actual is None or actual.state == _SHUT, bird_of(intent, machine, by)
    far = bird_of(intent, intent.machine(session.machine), by)
    return differs(
        "session-down" if shut else "session-waiting",
        machine.name,
        BgpSubject(session.machine),
        _ESTABLISHED,
        "there is none" if actual is None else f"{actual.state} {actual.info}".strip(),
        control.ask("show protocols"),
        control.enable(session)
        if shut
        else (
            f"check why {session.machine} does not answer: '{far.ask('show protocols all')}' there"
        ),
        concerns=tuple(_brings(intent, machine.name, session.machine)),
    )


def _brings(intent: Intent, first: str, second: str) -> Iterator[Concern]:
    """The routes that are missing without the session between two machines."""
    for here, peer in ((first, second), (second, first)):
        destinations = set(_learned(intent.machine(here), intent.machine(peer)))
        yield from ((here, RouteSubject(destination)) for destination in destinations)
        speaker = intent.machine(here).speaker
        if speaker and speaker.passes_on:
            named = {machine.name for machine in intent.machines}
            for further in (session for session in speaker.sessions if session.machine in named):
                passed = _learned(intent.machine(further.machine), intent.machine(here))
                yield from (
                    (further.machine, RouteSubject(destination))
                    for destination in passed
                    if destination in destinations
                )


def _learned(machine: MachineIntent, peer: MachineIntent) -> Iterator[str]:
    """Destinations of the routes that a machine learns and that lead to the peer."""
    end = peer.speaker.address if peer.speaker else None
    yield from (
        route.destination for route in machine.routes if route.by == bird.NAME and route.via == end
    )


class BgpSessionsCheck(Check):
    """BGP sessions that are disabled, and sessions that are enabled but not up.

    The latter are not reported if the other end was seen to be disabled; neither is reported if the
    Intent has no other end, as when a machine is lost.
    """

    order = 100
    kinds = (
        Kind("session-down", fault="bgp-session-down", meets=concerned),
        Kind("session-waiting", meets=concerned, follows=True, symptom="learned"),
    )

    def in_lab(self, look: LabLook) -> Iterator[Difference]:
        intent, by = look.intent, look.by
        names = {machine.name for machine in intent.machines}
        for machine in intent.machines:
            facts = look.observed.get(machine.name)
            if machine.speaker is None or facts is None or not facts.sessions:
                continue
            for session in machine.speaker.sessions:
                if session.machine not in names:
                    continue
                actual = _seen(intent, machine, session, facts, by)
                if actual and actual.info.startswith(_ESTABLISHED):
                    continue
                waits = actual is not None and actual.state != _SHUT
                if waits and _is_shut(intent, look.observed, session, machine.name, by):
                    continue
                yield _difference(intent, machine, session, actual, by)
