"""Bringing a lab up: what runs and why, what is refused, and how it goes on after a failure."""

import os
import shlex
import signal
import threading
from dataclasses import replace

import pytest
import small_lab

from lab._errors import BrokenError, PreflightError, StateError, Terminated, UsageError
from lab.cli.up import command
from lab.lifecycle.api import LabRequest
from lab.lifecycle.interruption import terminable
from lab.lifecycle.up import decide, preview, up
from lab.providers.fake.provider import Faults
from lab.providers.provider import Liveness
from lab.state import capacity

STEPS = ["holder", "machines", "network", "services"]


def test_a_second_up_does_nothing_but_list_the_labs_faults(desk):
    result = desk.up()
    assert result.changed
    assert [d.action for d in result.decisions] == ["run"] * 4
    assert desk.verbs() == ["preflight", *STEPS, "liveness"]
    assert desk.row().status == "up"
    assert {step.state for step in desk.store.steps("overlay")} == {"done"}
    assert {row.state for row in desk.store.resources("overlay")} == {"made"}
    assert desk.files() == {"overlay", "overlay/lock", "overlay/scenario.yaml"}
    world = dict(desk.provider.world)
    assert not desk.up().changed
    assert desk.verbs() == ["liveness"]
    assert desk.provider.world == world
    assert desk.said[-1] == (
        "lab 'overlay' is already up: its scenario has not changed; "
        "'lab status overlay --deep' compares its machines with it"
    )
    desk.store.intend_fault("overlay", desk.row().token, "wrong-vni", node="worker", peer="")
    desk.up()
    note = "note: fault 'wrong-vni' was put into 'worker'; 'lab heal overlay' removes it"
    assert desk.said[-1] == note


def test_a_disk_that_is_nearly_full_is_refused_and_nothing_is_made(desk, monkeypatch):
    monkeypatch.setattr(capacity, "NEEDED_BYTES", 1 << 60)
    with pytest.raises(StateError, match="MiB are free") as raised:
        desk.up()
    assert raised.value.exit_code == 4
    assert "df -h" in raised.value.hint
    assert desk.store.lab("overlay") is None
    assert desk.verbs() == []
    assert desk.files() == set()


def test_what_changed_and_what_follows_it_runs_again(desk):
    desk.up()
    desk.verbs()
    result = desk.up(intent=small_lab.intent(without=1))
    assert [d.action for d in result.decisions] == ["skip", "skip", "skip", "run"]
    assert desk.verbs() == ["liveness", "preflight", "services", "liveness"]
    assert "continuing lab 'overlay': its input has changed" in desk.said
    assert desk.said[-1] == "  step 4 of 4: services"


def test_a_changed_scenario_that_leaves_the_machines_alone_is_written_down(desk):
    desk.up()
    other = small_lab.plan(summary="Other words")
    result = desk.up(plan=other, scenario_text="summary: Other words\n")
    assert not result.changed
    assert "was recorded again" in desk.said[-1]
    assert desk.row().scenario_text == "summary: Other words\n"
    copy = desk.store.lab_directory("overlay") / "scenario.yaml"
    assert copy.read_text() == "summary: Other words\n"


def test_a_lab_whose_machines_are_gone_is_built_again_with_its_old_token(desk):
    desk.up()
    token = desk.row().token
    desk.provider.world.clear()
    desk.verbs()
    assert desk.up().changed
    assert desk.verbs() == ["liveness", "preflight", "destroy", *STEPS, "liveness"]
    assert desk.row().token == token
    assert any("machines are gone" in sentence for sentence in desk.said)


def test_a_broken_lab_is_taken_away_before_it_is_built_again(desk):
    desk.up()
    (token,) = desk.provider.world
    first = desk.provider.world[token]
    desk.provider.world[token] = replace(first, broken="its network namespace is gone")
    desk.up()
    assert desk.provider.world[token].holder != first.holder
    assert any("removed what an earlier bring-up left" in sentence for sentence in desk.said)


def test_a_name_taken_by_another_scenario_is_refused_and_nothing_changes(desk):
    desk.up()
    row = desk.row()
    with pytest.raises(
        UsageError, match=("lab 'overlay' was made from scenario 'overlay'")
    ) as caught:
        desk.up(scenario="host-gateway")
    assert "--name" in caught.value.hint
    assert desk.row() == row
    assert desk.provider.world.keys() == {row.token}


def test_a_lab_on_another_provider_is_refused(desk):
    desk.up()
    desk.provider.name = "other"
    with pytest.raises(UsageError, match="is on provider 'fake', not on 'other'"):
        desk.up()


@pytest.mark.parametrize("name", ["", "../x", "A", "a_b", "-a", "a-", "a" * 64, "a/b", "a\n"])
def test_a_name_that_is_no_dns_label_is_refused_before_anything_is_made(desk, name):
    with pytest.raises(UsageError, match="lower-case letters"):
        desk.up(name)
    assert desk.files() == set()


def test_when_preflight_refuses_nothing_is_made_or_written(desk):
    desk.provider.faults = Faults(refuse="nft is not installed")
    with pytest.raises(PreflightError, match="nft is not installed"):
        desk.up()
    assert desk.store.lab("overlay") is None
    assert desk.provider.world == {}
    assert desk.files() == set()


def test_a_failed_step_leaves_the_lab_broken_and_up_goes_on_from_there(desk):
    desk.provider.faults = Faults(fail_step="network")
    with pytest.raises(BrokenError, match="lab 'overlay', step 'network'") as caught:
        desk.up()
    assert caught.value.exit_code == 3
    assert "the faults make it fail" in caught.value.happened
    for line in ("lab status overlay", "lab up overlay", "lab down overlay"):
        assert line in caught.value.hint
    row = desk.row()
    assert row.status == "broken"
    assert row.detail.startswith("step 'network': ")
    assert "the faults make it fail" in row.detail
    desk.provider.faults = Faults()
    desk.verbs()
    desk.up()
    assert desk.verbs() == ["liveness", "preflight", "network", "services", "liveness"]
    assert desk.row().status == "up"
    assert desk.row().detail == ""


def _with_steps_beside(desk, monkeypatch, run):
    """Let ``network`` and ``services`` run beside ``machines``, each as ``run`` of its name."""
    made = desk.provider.steps

    def steps(lab, intent):
        holder, *others = made(lab, intent)
        return (
            holder,
            *(
                replace(
                    step, run=lambda name=step.name: run(name), alongside=step.name != "machines"
                )
                for step in others
            ),
        )

    monkeypatch.setattr(desk.provider, "steps", steps)


def test_steps_beside_each_other_run_at_the_same_time(desk, monkeypatch):
    together = threading.Barrier(3, timeout=60)
    _with_steps_beside(desk, monkeypatch, lambda _: together.wait())
    desk.up()
    assert {step.state for step in desk.store.steps("overlay")} == {"done"}


def test_a_step_that_fails_lets_those_beside_it_end(desk, monkeypatch):
    def run(name):
        if name == "network":
            raise BrokenError("linking", "no link", "link")

    _with_steps_beside(desk, monkeypatch, run)
    with pytest.raises(BrokenError, match="step 'network'"):
        desk.up()
    states = {step.name: step.state for step in desk.store.steps("overlay")}
    assert states == {
        "holder": "done",
        "machines": "done",
        "network": "intended",
        "services": "done",
    }


def test_what_follows_a_changed_step_runs_even_when_its_turn_comes_a_command_later(desk):
    desk.up()
    wired = small_lab.intent()
    router = replace(wired.machine("router"), forwards=False)
    machines = tuple(router if m.name == "router" else m for m in wired.machines)
    changed = replace(wired, machines=machines)

    def stop_before_services(sentence):
        if sentence.endswith(": services"):
            raise KeyboardInterrupt

    wanted = small_lab.request(intent=changed)
    with pytest.raises(KeyboardInterrupt):
        up(wanted, desk.provider, desk.store, stop_before_services)
    desk.verbs()
    desk.up(intent=changed)
    assert desk.verbs() == ["liveness", "preflight", "services", "liveness"]


def test_a_step_that_fails_in_its_own_way_is_broken_too(desk, monkeypatch):
    def fail():
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(desk.provider, "_furnish", lambda *_: fail())
    with pytest.raises(BrokenError, match="No space left on device"):
        desk.up()
    assert desk.row().status == "broken"


def test_a_lab_that_is_not_there_after_the_last_step_is_broken(desk, monkeypatch):
    monkeypatch.setattr(desk.provider, "_hold", lambda _: None)
    monkeypatch.setattr(desk.provider, "_furnish", lambda *_: None)
    monkeypatch.setattr(desk.provider, "_require", lambda _: None)
    with pytest.raises(BrokenError, match="the lab is absent"):
        desk.up()
    assert desk.row().status == "broken"
    assert {row.state for row in desk.store.resources("overlay")} == {"intended"}


@pytest.mark.parametrize(
    ("stop", "raised", "word"),
    [(signal.SIGINT, KeyboardInterrupt, "keyboard"), (signal.SIGTERM, Terminated, "SIGTERM")],
)
def test_a_stopped_up_reports_how_to_continue(desk, monkeypatch, stop, raised, word):
    monkeypatch.setattr(desk.provider, "_furnish", lambda *_: os.kill(os.getpid(), stop))
    with pytest.raises(raised):
        desk.up(command="lab up overlay --only linux")
    row = desk.row()
    assert row.status == "interrupted"
    assert word in row.detail
    assert "'lab up overlay --only linux' continues" in desk.said[-1]
    assert "'lab down overlay'" in desk.said[-1]
    monkeypatch.undo()
    assert desk.up().changed
    assert desk.row().status == "up"


def test_sigterm_means_what_it_meant_before_once_up_has_ended(desk):
    desk.up()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    with terminable():
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL


def test_with_the_state_file_lost_the_old_lab_is_replaced_not_doubled(desk):
    desk.up()
    (old,) = desk.provider.world
    desk.lose_state_file()
    desk.up()
    (new,) = desk.provider.world
    assert new != old
    assert desk.row().token == new


def test_a_lab_of_the_same_name_in_another_state_directory_is_left_alone(desk, tmp_path):
    desk.up()
    (token,) = desk.provider.world
    elsewhere = tmp_path / "other" / "labs" / "overlay"
    desk.provider.world["else"] = replace(
        desk.provider.world.pop(token), token="else", directory=elsewhere
    )
    desk.lose_state_file()
    desk.up()
    assert len(desk.provider.world) == 2


def test_preview_lists_the_steps_and_changes_nothing(desk):
    before = preview(small_lab.request(), desk.provider, desk.store)
    assert [d.action for d in before] == ["run"] * 4
    assert desk.store.lab("overlay") is None
    assert desk.files() == set()
    desk.up()
    after = preview(small_lab.request(), desk.provider, desk.store)
    assert [d.action for d in after] == ["skip"] * 4


RUNNING = Liveness("running", "here")
ABSENT = Liveness("absent", "no process carries its token")
BROKEN = Liveness("broken", "win1 is not there")
WANTED = [("holder", "1"), ("network", "2"), ("services", "3")]
ALL = {"holder": "1", "network": "2", "services": "3"}


AFTER_NETWORK = {"network": "has changed", "services": "because 'network' runs"}
GONE = {"holder": "machines are gone: no process", "services": "machines are gone"}
UNWANTED = {"holder": "step 'tunnels' was done and is no longer wanted"}
CASES = {
    "all done": (ALL, RUNNING, "skip skip skip", {"holder": "unchanged"}),
    "new": ({}, ABSENT, "run run run", {"holder": "new"}),
    "killed in the first": ({}, RUNNING, "run run run", {"holder": "new"}),
    "killed in the second": (
        {"holder": "1"},
        RUNNING,
        "skip run run",
        {**AFTER_NETWORK, "network": "new"},
    ),
    "second changed": ({**ALL, "network": "old"}, RUNNING, "skip run run", AFTER_NETWORK),
    "last changed": (
        {**ALL, "services": "old"},
        RUNNING,
        "skip skip run",
        {"services": "has changed"},
    ),
    "gone": (ALL, ABSENT, "run run run", GONE),
    "broken": (ALL, BROKEN, "run run run", {"holder": "broken: win1 is not there"}),
    "a step too many": ({**ALL, "tunnels": "9"}, RUNNING, "run run run", UNWANTED),
}


@pytest.mark.parametrize(("done", "liveness", "actions", "whys"), CASES.values(), ids=CASES)
def test_what_runs_and_why(done, liveness, actions, whys):
    decisions = decide(done, WANTED, liveness)
    assert [d.step for d in decisions] == ["holder", "network", "services"]
    assert " ".join(d.action for d in decisions) == actions
    for decision in decisions:
        assert whys.get(decision.step, "") in decision.why
        assert decision.why


@pytest.mark.parametrize(
    ("request_", "line"),
    [
        (LabRequest("overlay"), "lab up overlay"),
        (LabRequest("a b.yaml", name="mine"), "lab up 'a b.yaml' --name mine"),
        (
            LabRequest("overlay", provider="netns", only="linux", rules_off=("X", "A")),
            (
                "lab up overlay --provider netns --only linux"
                " --windows-rule-off A --windows-rule-off X"
            ),
        ),
    ],
)
def test_the_command_to_go_on_with_repeats_all_that_was_asked(request_, line):
    assert request_.command() == line
    words = shlex.split(line)[2:]
    understood = command.make_context("up", words).params  # the command line takes it as it is
    assert understood["scenario"] == request_.scenario
    assert understood["only"] == request_.only
