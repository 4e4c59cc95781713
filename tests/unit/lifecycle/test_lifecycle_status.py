"""The state of labs, and what changes in it between two looks."""

import dataclasses
import json
from dataclasses import replace

import pytest

from lab._errors import UsageError
from lab.lifecycle.events import LabEvent, compare_events
from lab.lifecycle.status import judge, list_labs
from lab.plan.planner import make_plan
from lab.providers.provider import Liveness
from lab.scenario.loader import load, meant
from lab.state.lock import Holder, lab_lock
from lab.state.rows import RunRow
from lab.topology import registry

RUNNING = Liveness("running", "here")
ABSENT = Liveness("absent", "no process")
BROKEN = Liveness("broken", "win1 is gone")
UP = Holder("lab up overlay", 4711)


@pytest.mark.parametrize(
    ("journal", "found", "holder", "expected"),
    [
        ("up", RUNNING, None, ("up", "")),
        ("up", ABSENT, None, ("absent", "no process")),
        ("up", BROKEN, None, ("broken", "win1 is gone")),
        ("up", RUNNING, UP, ("working", "'lab up overlay' (process 4711) is running on it")),
        ("starting", RUNNING, UP, ("working", "'lab up overlay' (process 4711) is running on it")),
        ("starting", RUNNING, None, ("interrupted", "'lab up' ended before it finished")),
        ("going", ABSENT, None, ("interrupted", "'lab down' ended before it finished")),
        ("interrupted", RUNNING, None, ("interrupted", "why")),
        ("broken", RUNNING, None, ("broken", "why")),
    ],
)
def test_the_state_follows_from_the_journal_and_what_is_there(journal, found, holder, expected):
    assert judge(journal, "why", found, holder) == expected


def test_a_lab_that_is_up_is_json_with_its_steps_and_runs(desk):
    desk.up()
    run = RunRow("r1", "overlay", "t", "overlay", "fake", "2026", 1.5, False, {"fail": 1})
    desk.store.record_run(run)
    document = json.loads(json.dumps(dataclasses.asdict(desk.status())))
    assert document["state"] == "up"
    assert [step["name"] for step in document["steps"]] == STEPS
    assert document["runs"][0]["counts"] == {"fail": 1}
    assert document["runs"][0]["directory"].endswith("/labs/overlay/runs/r1")


STEPS = ["holder", "machines", "network", "services"]


def test_status_lists_the_machines_of_each_hypervisor(desk):
    desk.up()
    intent = registry.intent(make_plan(load(meant("k8s-libvirt-1-2-2"))))
    status = desk.status(intent=intent)
    assert status.hypervisors == {
        "hypervisor-01": ("controller-01", "compute-02", "services", "router"),
        "hypervisor-02": ("compute-01",),
    }
    assert desk.status().hypervisors == {}


def test_what_is_really_there_counts_more_than_the_journal(desk):
    desk.up()
    desk.provider.world.clear()
    assert desk.status().state == "absent"
    assert desk.row().status == "up"


def test_a_locked_lab_is_shown_with_its_holder(desk):
    desk.up()
    with lab_lock(desk.store.lab_directory("overlay"), "lab down overlay"):
        assert "'lab down overlay'" in desk.status().detail


def test_all_labs_are_listed_with_orphans_last(desk):
    desk.up("zeta")
    desk.lose_state_file()
    desk.up("alpha")
    listed = desk.listed()
    assert [(lab.name, lab.state) for lab in listed] == [("alpha", "up"), ("zeta", "orphan")]
    assert desk.status("zeta") == listed[1]
    assert "'lab down zeta' removes it" in listed[1].detail


def test_labs_of_other_state_directories_are_not_listed(desk, tmp_path):
    desk.up()
    (token,) = desk.provider.world
    desk.provider.world["far"] = replace(
        desk.provider.world[token], token="far", name="far", directory=tmp_path / "labs" / "far"
    )
    assert len(desk.listed()) == 1


def test_a_lab_that_cannot_be_read_any_more_is_still_listed(desk):
    desk.up(scenario_text="nodes: [")
    (status,) = list_labs(desk.providers, desk.store)
    assert status.state == "unknown"
    assert "scenario.yaml:1:" in status.detail


@pytest.mark.parametrize("taken_down", [False, True])
def test_a_lab_that_is_not_there_is_refused_with_the_list(desk, taken_down):
    desk.up("other")
    if taken_down:
        desk.up()
        desk.down()
    with pytest.raises(UsageError, match="no lab named 'overlay'") as caught:
        desk.status()
    assert "'other'" in caught.value.hint


MADE = LabEvent(1.0, "mine", "created", "of overlay, on netns")
FAULT = LabEvent(5.0, "mine", "fault", "wrong-vni on worker1")
OTHER = LabEvent(2.0, "other", "created", "of overlay, on netns")


def test_the_first_look_reports_everything_in_order():
    assert list(compare_events((), (MADE, OTHER, FAULT), 9.0)) == [MADE, OTHER, FAULT]


def test_later_looks_report_only_what_is_new():
    assert list(compare_events((MADE,), (MADE, FAULT), 9.0)) == [FAULT]
    assert not list(compare_events((MADE, FAULT), (MADE, FAULT), 9.0))


def test_fault_that_is_gone_is_healed_and_lab_that_is_gone_is_down():
    healed = LabEvent(9.0, "mine", "healed", FAULT.what)
    down = LabEvent(9.0, "mine", "state", "down")
    assert list(compare_events((MADE, FAULT), (MADE,), 9.0)) == [healed]
    assert list(compare_events((MADE, FAULT, OTHER), (OTHER,), 9.0)) == [down]
