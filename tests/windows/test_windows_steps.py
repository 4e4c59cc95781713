"""Steps over the shell: what is sent, what is run, and what an answer means."""

from __future__ import annotations

import json

import pytest

from lab.imaging.windows import steps

CERTIFICATE = "ab" * 32


def answer(**changes):
    told = {"step": "time", "changed": True, "reboot": False, "facts": {"zone": "UTC"}}
    return json.dumps(told | changes)


def result(output, exit_code=0):
    return steps.result(steps.Time("UTC"), exit_code, output, guest="win1")


def test_last_line_is_the_answer():
    told = result(f"WARNING: something\r\n{answer()}\r\n\r\n")
    assert told == steps.StepResult("time", changed=True, reboot=False, facts={"zone": "UTC"})


def test_reboot_needs_its_exit_code():
    assert result(answer(reboot=True), 3010).reboot
    for reboot, code in ((True, 0), (False, 3010), (False, 1)):
        with pytest.raises(steps.StepError, match="its exit code"):
            result(answer(reboot=reboot), code)


def test_failure_says_what_the_step_said_and_where_its_log_is():
    with pytest.raises(steps.StepError) as caught:
        result('{"step":"time","error":"no such zone"}', 1)
    assert caught.value.doing == "running step 'time' on 'win1'"
    assert caught.value.happened == "no such zone"
    assert caught.value.cure == "see C:\\hybridlab\\log\\time.log on 'win1'"


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ("", "it said nothing"),
        ("Access is denied.", "its last line is 'Access is denied.'"),
        ("[1]", "its last line is"),
        (answer(step="features"), "its last line is"),
        (answer(changed="yes"), "its last line is no result"),
        (answer(facts=None), "its last line is no result"),
    ],
)
def test_answer_that_is_none_is_refused(output, said):
    with pytest.raises(steps.StepError, match="running step 'time'") as caught:
        result(output)
    assert said in caught.value.happened


def test_old_windows_2019_is_told_why():
    patch, *_ = steps.golden_steps("2019", CERTIFICATE)
    assert isinstance(patch, steps.PatchLevel)
    assert (patch.build, patch.least_revision) == (17763, 379)
    assert "KB4489899" in patch.why


@pytest.mark.parametrize("year", ["2019", "2022", "2025"])
def test_golden_image_refuses_first_and_is_generalized_last(year):
    names = [step.name for step in steps.golden_steps(year, CERTIFICATE)]
    assert names == ["patch-level", "wsman", "features", "settings", "sysprep-prepare", "sysprep"]


@pytest.mark.parametrize(
    ("year", "name", "number"),
    [
        ("2019", "HNSControlFlag", 80),
        ("2019", "WcifsSOPCountDisabled", 0),
        ("2022", "1114842764", 0),
        ("2025", "520997518", 1),
    ],
)
def test_values_of_one_release_go_to_no_other(year, name, number):
    of = {
        each: {
            value.name: value.number
            for step in steps.golden_steps(each, CERTIFICATE)
            if isinstance(step, steps.NodeSettings)
            for value in step.registry
        }
        for each in steps.OF_RELEASE
    }
    assert of[year][name] == number
    assert all(name not in others for each, others in of.items() if each != year)
    assert all(values["NoAutoUpdate"] == 1 for values in of.values())


def test_step_is_sent_with_its_settings_and_what_it_imports():
    sent = steps.files(steps.Time("UTC", "192.0.2.1"))
    assert sorted(sent) == ["hybridlab.psm1", "time.json", "time.ps1"]
    assert json.loads(sent["time.json"]) == {"server": "192.0.2.1", "zone": "UTC"}
    assert sent["time.ps1"] == steps.script("time.ps1")
    assert sent["time.json"].isascii()


def test_command_needs_no_quotes():
    told = steps.command(steps.Time("UTC"))
    assert told[-4:] == (
        *("-File", "C:\\hybridlab\\time.ps1"),
        *("-Settings", "C:\\hybridlab\\time.json"),
    )
    assert not any(character in word for word in told for character in " \"'&|<>^%")


def test_every_deadline_leaves_room_for_what_the_script_itself_waits():
    assert steps.PatchLevel.deadline_s > steps.PatchLevel(1, 1, "").update_seconds
    assert steps.Containerd.deadline_s > steps.Containerd("a", "b", "c").pipe_seconds
    assert all(step.deadline_s > 0 for step in steps.STEPS)
