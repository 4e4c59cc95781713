"""Commands that are told to stop, and several at once: on one lab, and on two of one scenario."""

import signal
import time
from dataclasses import replace
from typing import Any

import pytest

libvirt = pytest.importorskip("libvirt", reason="libvirt-python is not installed")

from drill import Drill  # noqa: E402

from lab._deadline import Deadline  # noqa: E402

pytestmark = pytest.mark.drill
SILENT = {"BOOTLESS_SILENT": "node router client", "BOOTLESS_SECONDS": "300"}
"""Every machine is waited for, longer than any test."""


def await_running(connected: Any, lab: Drill) -> None:
    """Wait until a machine of the lab runs."""
    Deadline(60).wait(
        "waiting for a machine of the lab",
        lambda: [
            listalldomain.name()
            for listalldomain in connected.listAllDomains(libvirt.VIR_CONNECT_LIST_DOMAINS_RUNNING)
            if listalldomain.name().startswith(f"{lab.name}-")
        ],
    )


@pytest.mark.parametrize(
    ("number", "code", "by"),
    [(signal.SIGINT, 130, "from the keyboard"), (signal.SIGTERM, 143, "by SIGTERM")],
)
def test_up_stopped_while_machines_boot_ends_and_continues_later(lab, connected, number, code, by):
    with lab.started(*lab.up_words(), **SILENT) as command:
        await_running(connected, lab)
        command.send_signal(number)
        said, _ = command.communicate(timeout=15)
    assert command.returncode == code, said
    assert f"stopped {by}" in said
    assert "Traceback" not in said
    assert "interrupted" in lab.run("status", lab.name, code=3).stdout
    lab.run(*lab.up_words())
    assert "is up" in lab.run("status", lab.name).stdout


def test_down_waits_for_an_up_of_the_same_lab_and_then_takes_all_away(lab, connected):
    with lab.started(*lab.up_words()) as up:
        Deadline(30).wait("waiting for its lock", (lab.state / "labs" / lab.name).is_dir)
        down = lab.run("down", lab.name)
        said, _ = up.communicate(timeout=60)
    assert up.returncode == 0, said
    assert "removed domain" in down.stderr
    assert lab.left(connected) == set()


def test_two_labs_of_one_scenario_come_up_side_by_side(lab, connected):
    """The same addresses twice; the image, which neither finds there, is copied once."""
    other = replace(lab, name=f"{lab.name}b", tokens=set())
    lab.forget_image(connected)
    with lab.started(*lab.up_words()) as first, other.started(*other.up_words()) as second:
        told = [one.communicate(timeout=120)[0] for one in (first, second)]
    assert [first.returncode, second.returncode] == [0, 0], told
    assert "".join(told).count("copying the disk of image") == 1, told
    kept = other.left(connected)
    lab.run("down", lab.name)
    assert other.left(connected) == kept
    assert "is up" in other.run("status", other.name).stdout
    other.run("down", other.name)
    assert other.left(connected) == set()


def test_another_controllers_lab_is_left_until_it_has_expired(lab, connected):
    """Another user's lab, by its mark; its journal is out of sight."""
    elsewhere = replace(lab, state=lab.folder / "elsewhere", name=f"{lab.name}c", tokens=set())
    elsewhere.inventory.write_text(f'expiry = "20s"\n{elsewhere.inventory.read_text()}')
    theirs = replace(elsewhere, extra={"BOOTLESS_CONTROLLER": "0123456789abcdef"})
    theirs.run(*theirs.up_words())
    made = time.monotonic()
    theirs.forget()
    there = theirs.left(connected)
    lab.run("gc", "--yes")
    if time.monotonic() - made < 15:
        assert theirs.left(connected) == there
    Deadline(30).wait("waiting for it to expire", lambda: time.monotonic() - made > 25, every=1)
    lab.run("gc", "--yes")
    assert theirs.left(connected) == there
    lab.run("gc", "--yes", "--all-users")
    assert theirs.left(connected) == set()
