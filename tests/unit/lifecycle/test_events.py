from __future__ import annotations

from lab.lifecycle.events import LabEvent, since

MADE = LabEvent(1.0, "mine", "created", "of overlay, on netns")
FAULT = LabEvent(5.0, "mine", "fault", "wrong-vni on worker1")
OTHER = LabEvent(2.0, "other", "created", "of overlay, on netns")


def test_first_look_tells_everything_in_its_order():
    assert list(since((), (MADE, OTHER, FAULT), 9.0)) == [MADE, OTHER, FAULT]


def test_only_what_is_new_is_told_again():
    assert list(since((MADE,), (MADE, FAULT), 9.0)) == [FAULT]
    assert not list(since((MADE, FAULT), (MADE, FAULT), 9.0))


def test_fault_that_is_gone_is_healed_and_lab_that_is_gone_is_down():
    healed = LabEvent(9.0, "mine", "healed", FAULT.what)
    down = LabEvent(9.0, "mine", "state", "down")
    assert list(since((MADE, FAULT), (MADE,), 9.0)) == [healed]
    assert list(since((MADE, FAULT, OTHER), (OTHER,), 9.0)) == [down]
