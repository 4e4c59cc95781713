"""What ``lab plan`` prints of the steps."""

from __future__ import annotations

from lab.cli.plan import step_lines
from lab.lifecycle.converge import Decision

DEAD = "the lab is broken: 'bird' on 'master' has ended; the last of its log:\n    one\n    two"


def test_a_reason_of_many_lines_is_told_once() -> None:
    decisions = [Decision("holder", "run", DEAD), Decision("network", "run", DEAD)]
    assert list(step_lines(decisions)) == [
        f"  holder   run   {DEAD}",
        "  network  run   the lab is broken: 'bird' on 'master' has ended",
    ]


def test_a_reason_of_one_line_is_told_of_every_step() -> None:
    decisions = [Decision(step, "run", "not done yet") for step in ("holder", "ready")]
    assert list(step_lines(decisions)) == [
        "  holder  run   not done yet",
        "  ready   run   not done yet",
    ]
