from __future__ import annotations

from io import StringIO

from lab.suites.session_plugin import ProgressLine


def test_line_is_drawn_over_itself_and_wiped_at_the_end():
    terminal = StringIO()
    line = ProgressLine(terminal)
    line.pytest_lab_progress(3, 3)
    assert terminal.getvalue() == "", "a pass that is over at once"
    line.pytest_lab_progress(0, 1_234)
    line.pytest_lab_progress(1_234, 1_234)
    assert terminal.getvalue() == "\rprobing: 0 of 1,234 \r\x1b[K"


def test_line_is_not_drawn_for_every_probe():
    terminal = StringIO()
    line = ProgressLine(terminal)
    for done in range(1_000):
        line.pytest_lab_progress(done, 1_001)
    assert terminal.getvalue().count("probing") < 1_000
