"""A lab under test is looked at now and then; and what says how far a run is."""

import errno
import re
from io import StringIO

import pytest

from lab.suites import progress
from lab.suites.progress import ProgressBar
from lab.suites.session import LivenessWatch


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def refuse(_text: str) -> int:
    raise OSError(errno.EIO, "the terminal is gone")


class Lab:
    """Looked at for so many seconds; ``now`` is the clock."""

    def __init__(self, costs: float) -> None:
        self.now, self.costs, self.looks = 100.0, costs, 0

    def look(self) -> None:
        self.now += self.costs
        self.looks += 1


@pytest.mark.parametrize(("costs", "apart"), [(0.0, 2.0), (0.05, 2.0), (18.0, 360.0)])
def test_looks_are_apart_by_two_seconds_or_twenty_times_what_one_takes(costs, apart):
    lab = Lab(costs)
    watch = LivenessWatch(lab.look, lambda: lab.now)
    watch.require()
    lab.now += apart - 0.01
    watch.glance()
    assert lab.looks == 1
    lab.now += 0.02
    watch.glance()
    assert lab.looks == 2


def test_every_required_look_is_made_at_once():
    lab = Lab(1.0)
    watch = LivenessWatch(lab.look, lambda: lab.now)
    watch.require()
    watch.require()
    assert lab.looks == 2


def test_a_bar_has_stage_counts_and_times_and_is_erased_at_the_end():
    terminal = Terminal()
    bar = ProgressBar(terminal)
    bar.pytest_lab_progress("probing", 3, 3)
    assert terminal.getvalue() == "", "a stage that is over at once"
    bar.pytest_lab_progress("probing", 0, 1_234)
    bar.pytest_lab_progress("probing", 1_234, 1_234)
    bar.pytest_lab_progress("looking for causes", 0, 1)
    bar.pytest_lab_progress("", 0, 0)
    text = terminal.getvalue()
    assert re.search(r"probing .*0/1234.*0:00:00.* gone.* left", text)
    counted, _, uncounted = text.partition("looking for causes")
    assert counted
    assert "gone" in uncounted
    assert "left" not in uncounted
    assert text.endswith("\x1b[2K"), "the line is erased"
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h") == 2, "the cursor is shown again"


def test_a_bar_is_not_drawn_for_every_probe():
    terminal = Terminal()
    bar = ProgressBar(terminal)
    for done in range(1_000):
        bar.pytest_lab_progress("probing", done, 1_001)
    bar.pytest_lab_progress("probing", 1_001, 1_001)
    assert terminal.getvalue().count("probing") < 500


def test_a_terminal_that_is_gone_does_not_end_the_run(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(terminal, "write", refuse)
    ProgressBar(terminal).pytest_lab_progress("probing", 0, 3)


def test_without_a_terminal_a_stage_has_a_line_each_ten_seconds(monkeypatch, capsys):
    now = 100.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    lines = progress.ProgressLines()
    for seconds, done in ((0, 0), (9.9, 400), (10, 500), (15, 800), (20, 1_500), (40, 2_300)):
        now = 100.0 + seconds
        lines.pytest_lab_progress("probing", done, 2_300)
    lines.pytest_lab_progress("probing again", 0, 40)  # it begins at 140 s
    assert capsys.readouterr().err.splitlines() == [
        "probing: 500 of 2,300; 10 s gone, about 36 s left",
        "probing: 1,500 of 2,300; 20 s gone, about 11 s left",
    ]
    now += 12
    lines.pytest_lab_progress("probing again", 0, 40)
    assert capsys.readouterr().err == "probing again: 0 of 40; 12 s gone\n"
