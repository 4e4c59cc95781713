"""How far an installation has come, told from outside."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from typing import Any

import pytest
from tables import CASES

from lab.windows.images import monitor
from lab.windows.images.monitor import LOOK_AT, ORDER, PHASE_TITLES, Observation, Progress


def seen(look: dict[str, Any]) -> Observation:
    said = look.get("raw", "".join(f"{line}\r\n" for line in look.get("said", ())))
    return Observation(
        at=float(look["at"]),
        output=said,
        disk_bytes=look.get("disk_mib", 0) << 20,
        reboots=look.get("reboots", 0),
        runs=look.get("runs", True),
        picture=look.get("picture", ""),
    )


@pytest.mark.parametrize(
    "file", sorted((CASES / "phases").glob("*.toml")), ids=lambda file: file.stem
)
def test_phases_follow_from_what_is_seen(file):
    progress = monitor.begin(0.0)
    for look in tomllib.loads(file.read_text())["look"]:
        progress = monitor.advance(progress, seen(look))
        wanted = {"ending": "", "off": False} | {
            name: look[name]
            for name in ("phase", "step", "ending", "failure", "off", "key", "certificate")
            if name in look
        }
        found = {name: getattr(progress, name) for name in wanted}
        assert found == wanted, f"at {look['at']}"


def test_every_phase_has_words_and_a_place_to_look_at():
    assert set(ORDER) == set(PHASE_TITLES) == set(LOOK_AT)


def at_copy() -> Progress:
    progress = monitor.begin(0.0)
    for observation in (
        Observation(at=10.0, disk_bytes=1 << 20),
        Observation(at=20.0, disk_bytes=300 << 20, picture="a"),
        Observation(at=80.0, disk_bytes=400 << 20, picture="a", reboots=1),
    ):
        progress = monitor.advance(progress, observation)
    return progress


def test_the_account_has_phase_time_growth_reboots_and_screen():
    told = monitor.describe(replace(at_copy(), step="disk"), 380.0)
    assert told == (
        "at 'copy' (Setup copies Windows to the disk) for 6 min; its last step is 'disk'; the "
        "disk has "
        "400 MiB, 100 MiB more since the phase began, the last 5 min ago; 1 reboots, "
        "1 in this phase; the screen changed 6 min ago"
    )


def test_only_the_end_of_a_long_console_is_kept():
    progress = monitor.advance(monitor.begin(0.0), Observation(at=1.0, output="x" * 100_000))
    assert len(progress.tail) == monitor.KEPT
    assert len(progress.line) == monitor.KEPT
