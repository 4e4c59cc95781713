"""Kill -9 at any call that changes a hypervisor; then ``up`` converges, or ``down`` leaves nothing.

Real pools, volumes, networks and domains; no guest boots (see ``programs/bootless.py``). A whole
``up`` makes about forty such calls; every few of them are tried, others in every run.
"""

import pytest

pytest.importorskip("libvirt", reason="libvirt-python is not installed")

from drill import KILLED, chosen

pytestmark = pytest.mark.drill


@pytest.mark.parametrize("how", ["down", "down without the journal", "gc without the journal"])
def test_what_cleans_after_a_killed_up_leaves_nothing(lab, connected, how):
    for call in chosen():
        if how == "down":
            lab.forget_image(connected)
        lab.killed(call, *lab.up_words())
        if how != "down":
            lab.forget()
        if how.startswith("gc"):
            lab.run("gc", "--yes")
        else:  # by the marks alone, if there are any
            known = how == "down" or lab.left(connected)
            lab.run("down", lab.name, code=0 if known else 2)
        assert lab.left(connected) == set(), f"killed at call {call}"


def test_up_after_a_kill_converges(lab, connected):
    for call in chosen():
        lab.forget_image(connected)
        killed = lab.killed(call, *lab.up_words())
        lab.run(*lab.up_words())
        assert "is up" in lab.run("status", lab.name).stdout, f"killed at call {call}"
        if killed.returncode == KILLED:
            assert "its scenario has not changed" in lab.run(*lab.up_words()).stderr
        lab.run("down", lab.name)


def test_a_down_that_is_killed_goes_on(lab, connected):
    for call in chosen(20):
        lab.run(*lab.up_words())
        lab.killed(call, "down", lab.name)
        lab.run("down", lab.name)
        assert lab.left(connected) == set(), f"killed at call {call}"


def test_a_suspend_that_is_killed_leaves_what_down_takes_away(lab, connected):
    for call in (1, 2, -2, -3):
        lab.run(*lab.up_words())
        assert lab.killed(call, "suspend", lab.name).returncode == KILLED
        lab.run("down", lab.name)
        assert lab.left(connected) == set(), f"killed at call {call}"


def test_up_goes_on_after_a_suspend_that_was_killed(lab):
    lab.run(*lab.up_words())
    lab.killed(2, "suspend", lab.name)
    assert "resumed" in lab.run(*lab.up_words()).stderr
    assert "is up" in lab.run("status", lab.name).stdout
