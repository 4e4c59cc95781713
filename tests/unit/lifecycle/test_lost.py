"""A machine that is off its networks for a test comes back, whatever ended the test."""

from __future__ import annotations

from dataclasses import replace

import pytest
import small_lab
from lab_desk import Desk

from lab.lifecycle import reconnect, status
from lab.lifecycle.faults import heal, words
from lab.providers.fake.provider import FakeProvider
from lab.providers.provider import LabHandle
from lab.state.lock import HeldError
from lab.topology.intent import Intent


class Cutting(FakeProvider):
    """A provider of machines in memory that can be off their networks."""

    off: set[str]

    def cut_off(self, _lab: LabHandle, _intent: Intent, machine: str) -> None:
        self.off.add(machine)

    def join_again(self, _lab: LabHandle, _intent: Intent, machine: str) -> None:
        self.off.discard(machine)


@pytest.fixture
def cutting(desk):
    desk.provider = Cutting(now=lambda: desk.now)
    desk.provider.off = set()
    desk.providers = {"fake": desk.provider}
    desk.up()
    return desk


def off(desk: Desk) -> set[str]:
    assert isinstance(desk.provider, Cutting)
    return desk.provider.off


def written(desk: Desk) -> list[tuple[str, str, str]]:
    return [(one.name, one.node, one.state) for one in desk.store.faults("overlay")]


def killed(desk: Desk) -> None:
    """What a test leaves that is killed while a machine is away."""
    desk.opened().cut_off("worker1")
    assert off(desk) == {"worker1"}


def test_it_is_written_down_while_a_machine_is_away_and_no_longer(cutting):
    killed(cutting)
    assert written(cutting) == [(reconnect.CUT_OFF, "worker1", "done")]
    cutting.opened().join_again("worker1")
    assert (written(cutting), off(cutting)) == ([], set())


def test_it_is_written_down_before_the_machine_goes(cutting, monkeypatch):
    seen = []
    monkeypatch.setattr(cutting.provider, "cut_off", lambda *_: seen.extend(written(cutting)))
    cutting.opened().cut_off("worker1")
    assert seen == [(reconnect.CUT_OFF, "worker1", "intended")]


def test_the_next_command_that_uses_the_lab_puts_it_back_and_says_so(cutting):
    killed(cutting)
    said: list[str] = []
    with cutting.opened().used("lab test overlay", said.append):
        assert off(cutting) == set()
    assert said == ["worker1 was left off its networks by a killed failover test: reconnected"]
    assert written(cutting) == []


def test_up_of_a_lab_that_is_up_puts_it_back_too(cutting):
    killed(cutting)
    cutting.up()
    assert (written(cutting), off(cutting)) == ([], set())
    assert any(line.startswith("worker1 was left off its networks") for line in cutting.said)


def test_status_shows_it_and_heal_puts_it_back(cutting):
    killed(cutting)
    found = status.status("overlay", cutting.providers, cutting.store, lambda _: small_lab.intent())
    assert [(one.name, one.node) for one in found.faults] == [(reconnect.CUT_OFF, "worker1")]
    lab = cutting.opened()
    (removed,) = heal(lab, cutting.said.append).removed
    assert words(removed) == "'cut-off' on 'worker1'"
    assert (written(cutting), off(cutting)) == ([], set())


def test_of_a_lab_that_was_made_anew_nothing_is_put_back(cutting):
    killed(cutting)
    cutting.now += 1
    cutting.down()
    cutting.up()
    said: list[str] = []
    with cutting.opened().used("lab test overlay", said.append):
        pass
    assert said == []
    assert off(cutting) == {"worker1"}, "asked for of a machine that is no more"


def test_who_takes_machines_away_waits_for_other_tests_and_they_for_it(cutting):
    lab = cutting.opened()
    failing, other = "lab test overlay --failover", "lab test overlay"
    with lab.used(other, str), lab.used(other, str, wait=0), pytest.raises(HeldError):
        lab.used(failing, str, wait=0, alone=True).__enter__()
    with lab.used(failing, str, alone=True), pytest.raises(HeldError, match="--failover"):
        lab.used(other, str, wait=0).__enter__()


def test_a_process_that_holds_the_lab_alone_does_not_wait_for_itself(cutting):
    lab = cutting.opened()
    within = replace(lab, held_alone=True)
    with lab.used("lab test --failover", str, alone=True), within.used("test", str, wait=0):
        assert within.held_alone
