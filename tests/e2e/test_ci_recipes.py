"""The recipes for a CI's own runners, run as the CI does: a fresh clone and an empty home."""

from __future__ import annotations

import re
from itertools import takewhile
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from recipe_runner import ROOT, read_recipe, run_recipe

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("recipe", ["github-hosted.yml", "gitlab-hosted.yml", "action.yml"])
def test_hosted_recipe_tests_labs_and_keeps_junit_and_reports(recipe, tmp_path):
    code, clone = run_recipe(recipe, tmp_path, "hard-way")
    assert code == 0
    night = clone / "night"
    (suite,) = ET.parse(night / "junit.xml").getroot().findall("testsuite")
    assert suite.get("name") == "hybridlab.netns.hard-way"
    assert len(suite.findall("testcase")) > 100
    for name in ("index.html", "summary.json", "hard-way/report.html", "hard-way/result.json"):
        assert (night / name).stat().st_size > 0, name
    if recipe == "action.yml":
        outputs = written_outputs(tmp_path / "home/output")
        assert (outputs["green"], outputs["causes"], outputs["exit-code"]) == ("true", "0", "0")
        assert int(outputs["cells"]) > 100
        assert "| hard-way | green | " in (tmp_path / "home/summary.md").read_text()


@pytest.mark.parametrize(
    "recipe", ["github.yml", "gitlab.yml", "Jenkinsfile", "hybridlab-nightly.service"]
)
def test_recipe_for_hypervisors_is_read_whole(recipe, tmp_path):
    commands = read_recipe(recipe, ROOT, tmp_path).commands
    wanted = ("nightly-setup", "lab bundle create", "nightly ", "lab gc")
    for word in wanted:
        assert any(word in f"{command.text} " for command in commands), word


def written_outputs(path: Path) -> dict[str, str]:
    """What a step has written to $GITHUB_OUTPUT: lines NAME=VALUE, or NAME<<END to a line END."""
    outputs: dict[str, str] = {}
    lines = iter(path.read_text().split("\n")[:-1])
    for line in lines:
        name, separator, value = re.split("(=|<<)", line, maxsplit=1)
        if separator == "<<":
            value = "\n".join(takewhile(value.__ne__, lines))
        outputs[name] = value
    return outputs


@pytest.mark.parametrize("output", ["night", "night\njunit=/etc/passwd\nfurther<<x", "a=b<<c"])
def test_action_prints_the_path_of_its_files_also_when_a_lab_is_refused(output, tmp_path):
    code, clone = run_recipe(
        "action.yml", tmp_path, "no-such-scenario", skip=["pip"], output=output
    )
    assert code != 0
    assert written_outputs(tmp_path / "home/output") == {
        "junit": f"{output}/junit.xml",
        "report": f"{output}/index.html",
        "green": "false",
        "cells": "0",
        "causes": "0",
        "exit-code": "127",
    }
    assert not (clone / "night/junit.xml").exists()
