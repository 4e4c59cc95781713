"""What this revision says of a machine's state, in terms that every revision has. Read by dump.py.

Only this file follows the records of the program: a row is machine, place, object, wanted,
observed, kind, see and fix as users read them, in the order in which they are found.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from recorded_answers import Answer, Places, scripted

from lab._errors import LabError
from lab.explain.explainer import Explainer, compare_machine, with_chosen_macs, with_pod_names
from lab.explain.paths import flow_of
from lab.facts.churn import churn
from lab.facts.difference import Difference
from lab.facts.linux import observe_pod, read_facts
from lab.facts.node import NodeFacts, PodFacts
from lab.facts.questions import STATE_COMMAND, command
from lab.facts.state import State, compare_states, read_state
from lab.lifecycle.compilation import compile_scenario
from lab.matrix.cells import cells
from lab.matrix.judge import expect
from lab.providers.netns.provider import NetnsProvider
from lab.shells.shell import Completed
from lab.topology.footprint import By, find_footprint
from lab.topology.gateways import moving_addresses
from lab.topology.subject import device_of

Row = dict[str, object]
Texts = Mapping[str, tuple[str, str]]
"""By command, its end and its output."""


class Projection:
    """Compares states of one scenario's machines with how the lab makes them."""

    def __init__(self, scenario: str, healthy: Places, copy: Places) -> None:
        compiled = compile_scenario(scenario)
        self._intent, self._plan, self._limits = compiled.intent, compiled.plan, compiled.limits
        self._realised = NetnsProvider().realised(compiled.intent)
        self._healthy, self._copy = _first(healthy), _first(copy)
        self._made: dict[str, State] = {}

    @property
    def pods(self) -> Mapping[str, Sequence[str]]:
        """The pods of each machine."""
        return {
            machine.name: [pod.name for pod in machine.pods]
            for machine in self._intent.everything()
        }

    def rows(self, machine: str, place: str, texts: Texts, rng: random.Random) -> Iterator[Row]:
        """Everything that is said of the state of a machine's place."""
        observed = self._observed(machine, place, texts)
        yield from self._of_machine(machine, observed, rng.choice(("lab", "kubernetes")))
        others = {machine: observed, (other := rng.choice(sorted(self._facts))): self._facts[other]}
        explainer = Explainer(self._intent, {**others, machine: observed})
        yield from (_row("lab", difference) for difference in explainer.everything())
        near = [cell for cell in self._cells if machine in {cell.source.node, cell.target.node}]
        cell = rng.choice(near or self._cells)
        works = expect(cell, self._limits).works
        for finding in explainer.explain(flow_of(cell), works=works).findings:
            yield {**_row(f"path of {cell.id}", finding), "hop": finding.hop}
        yield from self._of_state(machine, place, texts)

    def _of_machine(self, name: str, observed: NodeFacts, by: By) -> Iterator[Row]:
        machine, made_by_others = (
            self._intent.machine(name),
            find_footprint(self._intent.topology, by),
        )
        if by == "kubernetes":
            machine = with_chosen_macs(self._intent, {name: observed}).machine(name)
            observed = with_pod_names(self._intent, {name: observed})[name]
        for difference in compare_machine(machine, observed, by=by, footprint=made_by_others):
            yield _row(f"machine by {by}", difference)

    def _of_state(self, machine: str, place: str, texts: Texts) -> Iterator[Row]:
        if place not in self._made:
            self._made[place] = read_state(_output(STATE_COMMAND, self._copy[place]).stdout)
        now = read_state(_output(STATE_COMMAND, texts).stdout)
        intended = self._realised.machine(machine)
        daemons = bool(intended.daemons) and place == machine
        held = moving_addresses(self._realised, intended) if daemons else frozenset[str]()
        left_out = churn(kubernetes=False, daemons=daemons, held=held)
        try:
            differences = compare_states(self._made[place], now, left_out)
        except LabError as error:  # a command that failed in one of the two
            yield {"from": "state", "machine": machine, "place": place, "observed": error.cause}
            return
        for difference in differences:
            yield {
                "from": "state",
                "machine": machine,
                "place": place,
                "object": difference.object,
                "wanted": difference.intended,
                "observed": difference.observed,
                "kind": f"{difference.change} {difference.section}",
                "device": device_of(difference.subject),
                "see": difference.shows,
                "fix": difference.mends,
            }

    def _observed(self, machine: str, place: str, texts: Texts) -> NodeFacts:
        healthy = self._facts[machine]
        if place == machine:
            return replace(_node(texts), pods=healthy.pods)
        others = [pod for pod in healthy.pods or () if pod.name != place]
        try:
            return replace(healthy, pods=(_pod(place, texts), *others))
        except LabError:  # a command that failed
            return replace(healthy, pods=tuple(others))

    @cached_property
    def _facts(self) -> Mapping[str, NodeFacts]:
        return {
            machine: replace(
                _node(self._healthy[machine]),
                pods=tuple(_pod(pod, self._healthy[pod]) for pod in pods),
            )
            for machine, pods in self.pods.items()
        }

    @cached_property
    def _cells(self) -> Sequence:
        return cells(self._plan, self._intent)


def _first(places: Places) -> Mapping[str, Texts]:
    """The first answer of each command."""
    return {
        place: {line: (answers[0].end, answers[0].text) for line, answers in commands.items()}
        for place, commands in places.items()
    }


def _output(script: Sequence[str], texts: Texts) -> Completed:
    answers = {line: Answer(end, text) for line, (end, text) in texts.items()}
    return scripted(script[-1], answers, "a random state")


def _node(texts: Texts) -> NodeFacts:
    done = _output(command("namespace"), texts)
    return read_facts(done.stdout, done.stderr)


class _Answering:
    def __init__(self, texts: Texts) -> None:
        self._texts = texts

    def run(self, script: Sequence[str], deadline: object) -> Completed:
        del deadline
        return _output(script, self._texts)


def _pod(name: str, texts: Texts) -> PodFacts:
    return observe_pod(name, _Answering(texts), None)


def _row(origin: str, finding: Difference) -> Row:
    return {
        "from": origin,
        "machine": finding.node,
        "place": finding.place,
        "object": finding.object,
        "wanted": finding.intended,
        "observed": finding.observed,
        "kind": finding.fault or finding.kind,
        "see": finding.shows,
        "fix": finding.mends,
    }
