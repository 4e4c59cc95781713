from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import small_lab

from lab._deadline import Deadline
from lab._errors import BrokenError, PreflightError, UsageError
from lab.providers.fake.provider import FakeProvider, Faults
from lab.providers.provider import (
    Completed,
    LabHandle,
    Liveness,
    Outcome,
    Probe,
    ProbeSettings,
    Provider,
)
from lab.topology.intent import Intent

LAB = LabHandle("overlay", Path("/nowhere/labs/overlay"), "t0k3n")
INTENT = small_lab.intent()
SETTINGS = ProbeSettings(1.0, 100)


def brought_up(provider: FakeProvider) -> FakeProvider:
    for step in provider.steps(LAB, INTENT):
        step.run()
    return provider


def probes() -> list[Probe]:
    return [
        Probe(key, "worker1-p1", "tcp", "small", address, 8080, 1450)
        for key, address in enumerate(("10.244.1.3", "10.244.2.2", "10.244.2.3"))
    ]


def test_it_is_a_provider() -> None:
    provider: Provider = FakeProvider()
    assert "no packet is sent" in provider.banner(INTENT)


def test_a_lab_is_absent_then_running_then_absent() -> None:
    provider = FakeProvider(now=lambda: 100.0)
    assert provider.liveness(LAB, INTENT).state == "absent"
    brought_up(provider)
    assert provider.liveness(LAB, INTENT) == Liveness("running", "holder 1, 4 machines")
    (mark,) = provider.marks()
    assert (mark.lab, mark.token, mark.directory) == ("overlay", "t0k3n", LAB.directory)
    assert provider.destroy(LAB) == (mark.object,)
    assert provider.liveness(LAB, INTENT).state == "absent"
    assert provider.destroy(LAB) == ()


def test_a_step_that_runs_twice_makes_one_holder() -> None:
    provider = brought_up(brought_up(FakeProvider()))
    assert [lab.holder for lab in provider.world.values()] == [1]


@pytest.mark.parametrize(
    ("changed", "steps"),
    [
        (small_lab.intent(), []),
        (small_lab.intent(vip_last=30), ["services"]),
        (small_lab.intent(nodes=("worker1", "win2")), ["machines", "network", "services"]),
        (replace(INTENT, topology="other"), []),
    ],
)
def test_a_step_has_another_digest_only_when_what_it_makes_has_changed(
    changed: Intent, steps: list[str]
) -> None:
    provider = FakeProvider()
    before = {step.name: step.digest for step in provider.steps(LAB, INTENT)}
    after = {step.name: step.digest for step in provider.steps(LAB, changed)}
    assert [name for name, digest in after.items() if digest != before[name]] == steps


def test_faults_refuse_and_fail_as_they_are_told_to() -> None:
    provider = FakeProvider(faults=Faults(refuse="no nft here", fail_step="network"))
    with pytest.raises(PreflightError, match="no nft here"):
        provider.preflight(LAB, INTENT)
    with pytest.raises(BrokenError, match="step 'network'"):
        brought_up(provider)
    assert [call.about for call in provider.calls if call.verb == "step"] == [
        "holder",
        "machines",
        "network",
    ]


def test_a_lab_can_be_made_broken() -> None:
    provider = brought_up(FakeProvider())
    provider.world[LAB.token] = replace(provider.world[LAB.token], broken="win1 is gone")
    assert provider.liveness(LAB, INTENT) == Liveness("broken", "win1 is gone")
    with pytest.raises(BrokenError, match="win1 is gone"):
        provider.probe(LAB, INTENT, probes(), SETTINGS, lambda _: None)


def test_every_probe_has_an_outcome_and_progress_is_told() -> None:
    told: list[int] = []
    provider = brought_up(FakeProvider(faults=Faults(dead=frozenset({"win1-p1"}))))
    found = provider.probe(LAB, INTENT, probes(), SETTINGS, told.append)
    assert {key: outcome.status for key, outcome in found.items()} == {
        0: "ok",
        1: "timeout",
        2: "ok",
    }
    assert told == [3]


def test_an_outcome_can_be_given() -> None:
    def answer(_: Intent, probe: Probe) -> Outcome | None:
        wrong = Outcome(probe.key, "wrong", "damaged", None, (), None, 1.0)
        return wrong if probe.key == 1 else None

    provider = brought_up(FakeProvider(faults=Faults(answer=answer)))
    found = provider.probe(LAB, INTENT, probes(), SETTINGS, lambda _: None)
    assert [outcome.status for outcome in found.values()] == ["ok", "wrong", "ok"]


def test_probing_a_lab_that_is_not_there_is_broken() -> None:
    with pytest.raises(BrokenError, match="nothing carries its token"):
        FakeProvider().probe(LAB, INTENT, probes(), SETTINGS, lambda _: None)


def test_a_machine_does_what_the_runner_says_and_it_is_recorded() -> None:
    def runner(name: str, command: Sequence[str]) -> Completed:
        return Completed(3, f"{name}: {' '.join(command)}", "")

    provider = brought_up(FakeProvider(runner=runner))
    machine = provider.machine(LAB, INTENT, "win1-p1")
    assert machine.run(["ip", "a"], Deadline(1)).stdout == "win1-p1: ip a"
    assert machine.attach([]) == 3
    assert "win1-p1 ip a" in machine.command_line(["ip", "a"])
    assert [call.about for call in provider.calls if call.verb == "run"] == ["ip a", ""]


def test_a_machine_that_is_not_there_is_refused_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="'win1-p3'") as caught:
        FakeProvider().machine(LAB, INTENT, "win1-p3")
    assert "did you mean 'win1-p" in caught.value.cure
    assert "client" in caught.value.cure


def test_evidence_tells_how_far_the_lab_has_come() -> None:
    provider = FakeProvider()

    def told() -> dict[str, bytes]:
        return {piece.path: piece.content for piece in provider.evidence(LAB, INTENT)}

    assert told()["holder.txt"] == b"nothing carries the token of lab 'overlay'\n"
    provider.steps(LAB, INTENT)[0].run()
    assert told()["worker1/state.txt"] == b"not there\n"
    brought_up(provider)
    assert told()["worker1/state.txt"] == b"there\n"
