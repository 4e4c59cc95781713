"""Steps over the shell: which ones, in which order, with what settings."""

from __future__ import annotations

import json

import pytest

from lab.imaging.windows import steps

CERTIFICATE = "ab" * 32


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


def test_settings_are_json_and_ascii():
    given = steps.settings(steps.Firewall((steps.FirewallRule("kubelet", "TCP", ("10250",)),)))
    told = {"name": "kubelet", "ports": ["10250"], "protocol": "TCP", "remote": []}
    assert json.loads(json.dumps(given)) == {"rules": [told]}


def test_scripts_are_those_of_the_images_folder(tmp_path):
    folder = tmp_path / "windows"
    folder.mkdir()
    (folder / "time.ps1").write_bytes(b"exit 0\n")
    assert steps.script("time.ps1", tmp_path) == b"exit 0\n"
    assert b"Invoke-Step" in steps.script(steps.MODULE)


def test_every_deadline_leaves_room_for_what_the_script_itself_waits():
    assert steps.PatchLevel.deadline_s > steps.PatchLevel(1, 1, "").update_seconds
    assert steps.Containerd.deadline_s > steps.Containerd("a", "b", "c").pipe_seconds
