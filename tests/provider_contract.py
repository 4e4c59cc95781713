"""What every provider does, wherever its machines come from: subclass it, give ``provider``.

A provider whose machines are slow to make is better served by the tests of its own.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from lab._deadline import Deadline
from lab._errors import BrokenError, LabError, UsageError
from lab.facts.node import NodeFacts
from lab.plan.planner import make_plan
from lab.providers.capture import Capturing, KernelTracing
from lab.providers.failover import FailoverProvider
from lab.providers.provider import (
    Ability,
    ClusterProvider,
    LabHandle,
    Mark,
    Outcome,
    Probe,
    ProbeSettings,
    Provider,
    RealMachines,
)
from lab.scenario.loader import load
from lab.topology import registry
from lab.topology.intent import Intent

SECONDS = 30.0
PACE = ProbeSettings(timeout=5.0, in_flight=16)
ASKED_OF: dict[str, type] = {
    "machines": RealMachines,
    "cluster": ClusterProvider,
    "capture": Capturing,
    "failover": FailoverProvider,
    "kernel-trace": KernelTracing,
}
"""What an ability adds to a provider."""


def carried(provider: Provider, lab: LabHandle) -> list[Mark]:
    """The marks of one lab."""
    return [mark for mark in provider.marks() if mark.token == lab.token]


class ProviderContract:
    @pytest.fixture
    def provider(self) -> Provider:
        raise NotImplementedError

    @pytest.fixture
    def intent(self) -> Intent:
        """Two Linux nodes with a pod each, a router and a client."""
        return registry.intent(make_plan(load(Path(__file__).with_name("small.yaml"))))

    @pytest.fixture
    def lab(self, provider: Provider, tmp_path: Path) -> Iterator[LabHandle]:
        handle = LabHandle("contract", tmp_path, secrets.token_hex(8))
        yield handle
        provider.destroy(handle)

    @pytest.fixture
    def running(self, provider: Provider, lab: LabHandle, intent: Intent) -> LabHandle:
        for step in provider.steps(lab, intent):
            step.run()
        return lab

    def probed(self, provider: Provider, lab: LabHandle, intent: Intent, source: str) -> Outcome:
        """What comes of asking the second node's first pod."""
        target = pods(intent)[-1]
        address = next(
            pod.address.partition("/")[0]
            for machine in intent.machines
            for pod in machine.pods
            if pod.name == target
        )
        probe = Probe(7, source, "tcp", "small", address, 8080, intent.pod_mtu)
        ended: list[int] = []
        outcomes = provider.probe(lab, intent, [probe], PACE, ended.append)
        assert list(outcomes) == [7]
        assert ended[-1] == 1
        return outcomes[7]

    def test_its_name_is_the_first_word_of_its_banner(
        self, provider: Provider, intent: Intent
    ) -> None:
        for said in (provider.banner(None), provider.banner(intent)):
            assert said.partition(":")[0] == provider.name
            assert "\n" not in said

    def test_it_has_what_its_abilities_ask(self, provider: Provider) -> None:
        assert set(ASKED_OF) == set(get_args(Ability))
        for ability in provider.abilities:
            methods = [name for name in vars(ASKED_OF[ability]) if not name.startswith("_")]
            assert methods
            assert [name for name in methods if not hasattr(provider, name)] == [], ability

    def test_before_it_is_up_nothing_is_there_and_preflight_makes_nothing(
        self, provider: Provider, lab: LabHandle, intent: Intent
    ) -> None:
        provider.preflight(lab, intent)
        assert provider.liveness(lab, intent).state == "absent"
        assert carried(provider, lab) == []
        assert provider.destroy(lab) == ()
        with pytest.raises(BrokenError):
            self.probed(provider, lab, intent, pods(intent)[0])

    def test_steps_have_names_of_their_own_and_the_same_digests_each_time(
        self, provider: Provider, lab: LabHandle, intent: Intent
    ) -> None:
        first, again = ([*provider.steps(lab, intent)] for _ in range(2))
        assert len({step.name for step in first}) == len(first) > 0
        assert [(step.name, step.digest) for step in first] == [
            (step.name, step.digest) for step in again
        ]
        fewer = replace(intent, machines=intent.machines[:1])
        changed = [(step.name, step.digest) for step in provider.steps(lab, fewer)]
        assert changed != [(step.name, step.digest) for step in first]

    def test_every_step_can_run_twice(
        self, provider: Provider, running: LabHandle, intent: Intent
    ) -> None:
        for step in provider.steps(running, intent):
            step.run()
        assert provider.liveness(running, intent).state == "running"

    def test_a_lab_is_found_by_its_marks_and_taken_away_by_its_token_alone(
        self, provider: Provider, running: LabHandle, intent: Intent
    ) -> None:
        for mark in carried(provider, running):
            assert (mark.lab, mark.directory) == (running.name, running.directory)
            assert mark.object
            assert 0 <= mark.age_seconds < SECONDS
        assert carried(provider, running)
        other = replace(running, token=secrets.token_hex(8))
        assert provider.destroy(other) == ()
        assert provider.destroy(running, owner="somebody-else") == ()
        assert provider.liveness(running, intent).state == "running"
        assert provider.destroy(running)
        assert provider.destroy(running) == ()
        assert carried(provider, running) == []
        assert provider.liveness(running, intent).state == "absent"

    def test_every_machine_and_pod_runs_commands(
        self, provider: Provider, running: LabHandle, intent: Intent
    ) -> None:
        for name in (*(machine.name for machine in intent.machines), *pods(intent)):
            machine = provider.machine(running, intent, name)
            assert machine.name == name
            assert machine.run(("true",), Deadline(SECONDS)).code == 0
            assert machine.command_line(("true",)).strip()

    def test_a_machine_that_is_not_there_is_refused_with_the_nearest(
        self, provider: Provider, running: LabHandle, intent: Intent
    ) -> None:
        name = intent.machines[0].name
        with pytest.raises(UsageError) as refused:
            provider.machine(running, intent, f"{name}x")
        assert name in refused.value.hint

    def test_a_probe_that_works_names_who_answered_and_whom_it_saw(
        self, provider: Provider, running: LabHandle, intent: Intent
    ) -> None:
        outcome = self.probed(provider, running, intent, pods(intent)[0])
        assert (outcome.status, outcome.backends) == ("ok", (pods(intent)[-1],)), outcome
        assert outcome.source_seen
        assert outcome.latency_ms > 0

    def test_a_probe_that_cannot_be_made_is_an_outcome(
        self, provider: Provider, running: LabHandle, intent: Intent
    ) -> None:
        assert self.probed(provider, running, intent, "nobody").status == "error"

    def test_every_machine_that_is_looked_at_has_facts_or_why_not(
        self, provider: Provider, running: LabHandle, intent: Intent
    ) -> None:
        asked = {machine.name: () for machine in intent.machines}
        seen = provider.observe(running, intent, asked, Deadline(SECONDS))
        assert seen.keys() == asked.keys()
        assert all(isinstance(one, NodeFacts | LabError) for one in seen.values())


def pods(intent: Intent) -> list[str]:
    """The probe pods, in the intent's order."""
    return [pod.name for machine in intent.machines for pod in machine.pods if pod.role == "probe"]
