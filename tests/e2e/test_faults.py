"""Killed, raced, refused: each is a clear message, nothing lost, nothing leaked."""

from __future__ import annotations

import shlex
from concurrent.futures import ThreadPoolExecutor

import pytest
from lab_command import AS_PLAIN_USER, Lab, assert_nothing_is_left, processes_with

pytestmark = pytest.mark.slow

MOMENTS = (0.02, 0.2, 0.35)
"""Seconds after which a command is killed; every single point is in the tests of the lifecycle."""


@pytest.mark.parametrize("moment", MOMENTS)
def test_up_killed_at_any_moment_is_finished_by_the_next_up(lab, moment):
    lab.kill_after(moment, "up", "overlay")
    lab.run("up", "overlay")
    lab.run("test", "overlay", "-m", "hairpin")
    holders = [p for p in processes_with(str(lab.state)) if "hybridlab-holder" in p]
    assert len(holders) == 1


@pytest.mark.parametrize("moment", MOMENTS)
def test_up_killed_at_any_moment_is_taken_away_by_down(lab, moment):
    lab.kill_after(moment, "up", "overlay")
    if (lab.state / "labs").exists():
        lab.run("gc", "--older-than", "0m", "--yes")
    assert_nothing_is_left(lab.state)


@pytest.mark.parametrize("moment", [0.4, 1.0])
def test_test_killed_leaves_a_lab_that_can_be_tested(lab, moment):
    lab.run("up", "overlay")
    lab.kill_after(moment, "test", "overlay")
    lab.run("test", "overlay", "-m", "hairpin")


@pytest.mark.parametrize("moment", [0.05, 0.15])
def test_down_killed_is_finished_by_the_next_down(lab, moment):
    lab.run("up", "overlay")
    lab.kill_after(moment, "down", "overlay")
    lab.run("down", "overlay")
    assert_nothing_is_left(lab.state)


def test_down_works_with_the_state_file_gone(lab):
    lab.run("up", "overlay")
    for path in lab.state.glob("*.db*"):
        path.unlink()
    lab.run("down", "overlay")
    assert_nothing_is_left(lab.state)


def test_two_ups_of_one_lab_at_once_end_with_one_lab(lab):
    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(lambda _: lab.run("up", "overlay"), range(2)))
    assert any("waiting for" in one.stderr or "nothing" in one.stderr for one in done)
    holders = [p for p in processes_with(str(lab.state)) if "hybridlab-holder" in p]
    assert len(holders) == 1


def test_plain_user_brings_a_lab_up_tests_it_and_takes_it_down(tmp_path):
    lab = Lab(tmp_path / "state")
    words = (
        ("up", "overlay"),
        ("test", "overlay"),
        ("exec", "overlay", "win1-p1", "--", "ip", "address"),
        ("down", "overlay"),
    )
    script = " && ".join(shlex.join(lab.command(*command)) for command in words)
    try:
        done = lab.call([*AS_PLAIN_USER, "sh", "-c", f"id -u && {script}"])
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.startswith("1000\n")
        assert "2,300 cells" in done.stdout
    finally:
        lab.run("gc", "--older-than", "0m", "--yes")
    assert_nothing_is_left(lab.state)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("show", "overlay", "win9"), "win1"),
        (("up", "overlay", "--only", "windows"), "control-plane"),
    ],
)
def test_wrong_word_is_named_with_what_to_write(lab, words, says):
    assert says in lab.run(*words, code=2).stderr


# SECURITY.md: Code in the current directory is not run.
def test_configuration_of_the_current_directory_stays_out_of_the_matrix(lab, tmp_path, monkeypatch):
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --no-such-option\n")
    (tmp_path / "conftest.py").write_text("raise SystemExit(9)\n")
    monkeypatch.chdir(tmp_path)
    lab.run("up", "overlay")
    lab.run("test", "overlay", "-m", "hairpin")


def test_closed_standard_output_costs_no_traceback_and_no_verdict(lab):
    lab.run("up", "overlay")
    for closed in (">&-", "2>&-", ">&- 2>&-", "<&-"):
        words = shlex.join(lab.command("test", "overlay", "-m", "hairpin"))
        done = lab.call(["sh", "-c", f"exec {words} {closed}"])
        assert done.returncode == 0, (closed, done.stderr)
        assert "Traceback" not in done.stderr


def test_labs_up_tested_and_down_side_by_side_are_all_right(lab):
    def life(name):
        for _ in range(2):
            lab.run("up", "overlay", "--name", name)
            lab.run("test", name, "-m", "hairpin or node-pod")
            lab.run("down", name)

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(life, ("one", "two", "three")))
