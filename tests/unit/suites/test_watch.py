"""A lab under test is looked at now and then; and the line that says how far probing is."""

from io import StringIO

import pytest

from lab.suites.session import LivenessWatch
from lab.suites.session_plugin import ProgressLine


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


def test_line_is_drawn_over_itself_and_wiped_at_the_end():
    terminal = StringIO()
    line = ProgressLine(terminal)
    line.pytest_lab_progress(3, 3)
    assert terminal.getvalue() == "", "a pass that is over at once"
    line.pytest_lab_progress(0, 1_234)
    line.pytest_lab_progress(1_234, 1_234)
    assert terminal.getvalue() == "\r\x1b[Kprobing: 0 of 1,234 \r\x1b[K"


def test_line_is_not_drawn_for_every_probe():
    terminal = StringIO()
    line = ProgressLine(terminal)
    for done in range(1_000):
        line.pytest_lab_progress(done, 1_001)
    assert terminal.getvalue().count("probing") < 1_000
