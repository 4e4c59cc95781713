from __future__ import annotations

import shlex

import pytest

from lab.cli.up import command
from lab.lifecycle.api import LabRequest


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
