import json
import stat
from dataclasses import replace

import pytest
import small_lab
from unit.reports.made_runs import made_run

from lab._errors import BrokenError, StateError, UsageError
from lab.lifecycle.faults import present
from lab.lifecycle.open_lab import open_any, stored_runs
from lab.lifecycle.providers import Providers, choose
from lab.lifecycle.runs import find_run
from lab.matrix.verdict import RunResult
from lab.scenario.loader import find
from lab.state.lock import HeldError

OVERLAY = find("overlay").read_text()


def run_result() -> RunResult:
    """One cell that passed, and one that failed."""
    run = made_run("dead-node", families=("pod-pod",))
    ends = (
        next(result for result in run.results if result.verdict == end) for end in ("pass", "fail")
    )
    return replace(run, results=tuple(ends))


def test_a_lab_is_opened_from_the_text_it_was_made_from(desk):
    text = OVERLAY + "# as it was\n"
    desk.up(scenario_text=text, options={"windows_rules_off": ["a"], "only": "linux"})
    lab = open_any("overlay", desk.providers, desk.store)
    assert lab.scenario_text == text
    assert {machine.os for machine in lab.intent.machines} == {"linux"}
    assert lab.handle.token in desk.provider.world
    assert lab.windows_rules_off == ("a",)
    assert "no packet is sent" in lab.banner


def test_an_exception_cites_the_file_that_the_user_wrote_and_not_the_copy(desk):
    text = OVERLAY + "exceptions: [{when: {protocol: udp}, fails: timeout, reason: it is so}]\n"
    desk.up(scenario_text=text, scenario_path="/home/a/firewalled.yaml")
    limit, *_ = open_any("overlay", desk.providers, desk.store).limits
    assert limit.source == f"firewalled.yaml:{len(text.splitlines())}"


def test_a_lost_copy_of_the_scenario_is_put_back(desk):
    desk.up(scenario_text=OVERLAY)
    copy = desk.store.lab_directory("overlay") / "scenario.yaml"
    copy.unlink()
    open_any("overlay", desk.providers, desk.store)
    assert copy.read_text() == OVERLAY
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("/home/a/my lab.yaml", "'/home/a/my lab.yaml'"),
        ("/home/a/overlay.yaml", "/home/a/overlay.yaml"),
        (str(find("overlay")), "overlay"),
    ],
)
def test_a_lab_whose_machines_are_gone_is_refused_where_they_are_needed(desk, path, source):
    desk.up(scenario_path=path, options={"windows_rules_off": ["A"]})
    desk.opened().require_running()
    desk.provider.world.clear()
    with pytest.raises(BrokenError, match="the lab is absent") as caught:
        desk.opened().require_running()
    assert (
        caught.value.hint == f"lab up {source} --name overlay --provider fake --windows-rule-off A"
    )


def test_a_run_is_kept_in_the_journal_and_as_files(desk):
    desk.up()
    opened = desk.opened()
    directory = opened.record(run_result())
    assert not (directory / "report.html").exists()
    opened.record_page(directory, run_result())
    opened.record_junit(directory, "<testsuites/>")
    assert directory == desk.store.lab_directory("overlay") / "runs" / "20261121-101500-7f3a"
    assert json.loads((directory / "result.json").read_text())["scenario"] == "overlay"
    assert (directory / "report.html").read_text().startswith("<!doctype html>")
    assert (directory / "junit.xml").read_text() == "<testsuites/>"
    assert {stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()} == {0o600}
    (row,) = desk.store.runs("overlay")
    assert row.token == desk.row().token
    assert not row.green
    assert row.counts["pass"] == 1
    assert row.counts["fail"] == 1


def test_a_page_leads_to_the_last_run_before_that_has_one(desk):
    desk.up()
    opened = desk.opened()
    runs = [replace(run_result(), run=f"20261121-101500-000{number}") for number in range(4)]
    pages = []
    for run in (runs[0], runs[1], replace(runs[2], temporary=True), runs[3]):
        directory = opened.record(run)
        if run is not runs[1]:  # as if its page could not be written
            opened.record_page(directory, run)
            pages.append((directory / "report.html").read_text())
    assert ["Run before" in page for page in pages] == [False, False, True]
    assert "../20261121-101500-0002/report.html" in pages[-1]


@pytest.mark.parametrize(
    "later", ["20261121-101500-0000", "20261121-091500-7f3b", "19700101-000000-7f3b"]
)
def test_the_last_run_is_the_one_made_last_when_the_clock_jumps(desk, later):
    desk.up("overlay")
    lab = desk.opened()
    lab.record(run_result())
    assert lab.record(replace(run_result(), run=later)).name == later
    assert [row.id for row in desk.store.runs("overlay")] == [run_result().run, later]
    assert [row.number for row in desk.store.runs("overlay")] == [1, 2]
    assert stored_runs(desk.store, "overlay") == [run_result().run, later]
    assert find_run("overlay", desk.store.directory).run == later
    assert find_run("overlay~1", desk.store.directory).run == run_result().run
    assert find_run("overlay", desk.store.directory).number == 2


def test_faults_last_until_the_lab_is_made_again_when_the_clock_jumps(desk):
    desk.up()
    lab = desk.opened()
    desk.now -= 3600
    for _ in range(2):
        desk.store.intend_fault("overlay", lab.handle.token, "wrong-vni", node="w", peer="")
    desk.up()
    assert [row.number for row in present(lab)] == [1, 2]
    desk.now -= 3600
    desk.provider.world.clear()
    desk.up()
    assert present(lab) == ()
    assert [row.number for row in desk.store.faults("overlay")] == [1, 2]


def test_a_report_that_cannot_be_written_is_a_state_error_and_the_run_is_not_lost(desk):
    desk.up()
    (desk.store.lab_directory("overlay") / "runs").write_text("in the way")
    with pytest.raises(StateError, match="runs"):
        desk.opened().record(run_result())
    assert [row.id for row in desk.store.runs("overlay")] == [run_result().run]


def test_down_does_not_take_a_lab_away_under_its_tests(desk):
    desk.up()
    lab = desk.opened()
    with lab.in_use("lab test overlay", desk.said.append):
        with lab.in_use("lab test overlay -k dns", desk.said.append, wait=0):
            pass
        with pytest.raises(HeldError, match="'lab test overlay"):
            desk.down(wait=0)
    assert desk.down().changed


@pytest.mark.room
def test_a_provider_that_does_not_exist_is_refused_with_those_that_do():
    with pytest.raises(UsageError, match="no provider of that name") as caught:
        choose(Providers(), "vmware")
    assert caught.value.hint == "the providers are 'libvirt', 'netns', 'nspawn'"


def test_a_lab_taken_down_meanwhile_is_reported_with_the_command_that_brings_it_up(desk):
    desk.up()
    lab = desk.opened()
    desk.down()
    with pytest.raises(UsageError, match="taken down in the meantime") as raised:
        lab.in_use("lab test overlay", desk.said.append).__enter__()
    assert raised.value.hint == lab.again


@pytest.mark.parametrize("anew", ["token", "scenario"])
def test_a_lab_made_anew_while_it_was_waited_for_is_not_taken_for_the_one_that_was_opened(
    desk, anew
):
    desk.up()
    lab = desk.opened()
    if anew == "token":
        desk.down()
        desk.up()
    else:
        desk.up(scenario_text="summary: another\n", plan=small_lab.plan(summary="another"))
    with pytest.raises(BrokenError, match="recreated in the meantime") as raised:
        lab.in_use("lab test overlay", desk.said.append).__enter__()
    assert raised.value.hint == "repeat the command"
