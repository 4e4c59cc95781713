"""Explain answers recorded labs as before: cause, rank, place, object, what shows and mends it.

``tests/netns/record_answers.py`` has recorded them. After a wanted change: LAB_REGENERATE=1 with
this test, and read what changed in ``tests/cases/recorded``.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from golden_files import check_golden
from recorded_answers import Answer, RecordedShell, asks, note
from replayed_labs import RECORDED, answers_text, read

from lab._deadline import Deadline
from lab.explain.faults import registry
from lab.facts.questions import STATE_COMMAND, command
from lab.lifecycle.compilation import compile_scenario
from lab.scenario.loader import shipped
from lab.shells.shell import Completed

sys.path.append(str(Path(__file__).parents[2] / "netns"))
import alias_commands

FILES = sorted(RECORDED.glob("*.json.xz"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name.partition(".")[0])
def test_explain_answers_a_recorded_lab_as_before(path):
    scenario = read(path)
    check_golden(path.with_name(f"{scenario.name}.txt"), answers_text(scenario))


def test_every_scenario_and_every_fault_that_namespaces_can_have_is_recorded():
    intents = [compile_scenario(name).intent for name in shipped()]
    possible = {
        name
        for name, fault in registry.faults().items()
        if any(registry.sites(fault, intent) for intent in intents)
    }
    recorded = {
        recording.title.partition(" on ")[0]
        for path in FILES
        for recording in read(path).recordings
    }
    assert possible - recorded == set()
    assert {path.name.partition(".")[0] for path in FILES} == {*shipped()}


def run(shell: RecordedShell, script: Sequence[str]) -> str:
    return shell.run(script, Deadline(1)).stdout


def test_another_script_with_the_same_commands_gets_the_same_answers():
    places = {"a": {"ip rule": [Answer("0", "0: from all\n")], "ip nexthop": [Answer("0", "")]}}
    shell = RecordedShell("a", places, {})
    first = run(shell, ("sh", "-c", "ask rules ip rule\nask hops ip nexthop\n"))
    other = run(shell, ("sh", "-c", "ask hops ip nexthop\nask policy ip rule\n"))
    assert first == "\n@@@ rules\n0: from all\n@@@= 0\n\n@@@ hops\n@@@= 0\n"
    assert other == "\n@@@ hops\n@@@= 0\n\n@@@ policy\n0: from all\n@@@= 0\n"


def test_each_time_gives_the_next_answer_and_the_last_one_again():
    places = {"a": {"ip rule": [Answer("0", "one\n"), Answer("1", "", "two\n")]}}
    shell = RecordedShell("a", places, {"a": {"ip link": [Answer("0", "healthy\n")]}})
    answers = [shell.run(("sh", "-c", "ask rules ip rule\n"), Deadline(1)) for _ in range(3)]
    assert "one" in answers[0].stdout
    assert [answer.stderr for answer in answers[1:]] == ["\n@@@ rules\ntwo\n"] * 2
    assert "healthy" in run(shell, ("sh", "-c", "ask links ip link\n"))


def test_a_command_that_was_never_recorded_is_no_silence():
    shell = RecordedShell("a", {"a": {}}, {})
    with pytest.raises(AssertionError, match="a: no answer to 'ip rule' was recorded"):
        run(shell, ("sh", "-c", "ask rules ip rule\n"))
    assert run(shell, ("sh", "-c", "if x; then ask rules ip rule; fi\n")) == ""


def test_a_loop_of_a_script_is_answered_for_each_recorded_object():
    script = (
        "sh",
        "-c",
        'for device in *; do\n    ask "class $device" tc class dev "$device"\ndone',
    )
    done = Completed(0, "\n@@@ class a\n1\n@@@= 0\n\n@@@ class b\n2\n@@@= 0\n", "")
    places = {}
    note(places, "x", script, done)
    assert run(RecordedShell("x", places, {}), script) == done.stdout


@pytest.mark.parametrize("script", [command("namespace"), command("pod"), STATE_COMMAND])
def test_the_commands_of_the_scripts_are_found(script):
    assert len(asks(script[-1])) == script[-1].count("ask ")


def test_a_command_with_other_words_has_the_same_answers():
    answers = [["0", 1, 2]]
    content: dict[str, Any] = {
        "healthy": {"a": {"ip rule": answers, "ip link": []}},
        "copy": {"a": {"ip link": []}},
        "recordings": [{"places": {"b": {"ip rule": answers}}}],
    }
    assert alias_commands.add_alias(content, "ip rule", "ip -4 rule") == 2
    assert content["healthy"]["a"] == {"ip rule": answers, "ip link": [], "ip -4 rule": answers}
    assert content["recordings"][0]["places"]["b"]["ip -4 rule"] == answers
    assert content["copy"] == {"a": {"ip link": []}}
