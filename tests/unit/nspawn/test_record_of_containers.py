"""What a lab of system containers is made from, and what it is to be made from now."""

from __future__ import annotations

import subprocess
from ipaddress import IPv4Network
from pathlib import Path
from types import SimpleNamespace

import pytest

from lab._errors import BrokenError
from lab.inventory.inventory import STOCK
from lab.lifecycle.compilation import compile_scenario
from lab.providers.netns.entry import HolderProcess, start_time
from lab.providers.nspawn import holder, layout, networks
from lab.providers.nspawn.guests import ContainerGuests
from lab.providers.nspawn.layout import NspawnLayout
from lab.providers.nspawn.provider import NspawnProvider
from lab.providers.provider import LabHandle

SMALL = Path(__file__).parents[2] / "small.yaml"


def test_a_machine_that_the_scenario_has_no_more_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    intent = compile_scenario(str(SMALL), None, None, "namespaces", real=True).intent
    lab = LabHandle("x", tmp_path, "abc")
    names = (*(one.name for one in intent.machines), "third")
    layout.save(lab, NspawnLayout({}, IPv4Network("10.219.0.0/24"), names))
    monkeypatch.setattr(holder, "find", lambda _: SimpleNamespace(pid=1))
    monkeypatch.setattr(holder, "entry", lambda _: SimpleNamespace(pid=1))
    monkeypatch.setattr(networks, "missing", lambda *_: "")
    found = NspawnProvider(STOCK).liveness(lab, intent)
    assert (found.state, found.again_from) == ("broken", "images")
    assert "'third'" in found.detail


def test_a_machine_that_the_record_has_no_address_of_is_named(tmp_path: Path) -> None:
    lab = LabHandle("x", tmp_path, "abc")
    guests = ContainerGuests(lab, NspawnLayout({}, IPv4Network("10.219.0.0/24"), ("worker",)), None)
    with pytest.raises(BrokenError, match="address of machine 'master': the lab's record has none"):
        guests.address("master")


def test_a_wait_ends_with_the_holder(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        started = start_time(process.pid)
        assert started is not None
        found = HolderProcess(process.pid, started, 0, "x", "abc", tmp_path)
        addresses = IPv4Network("10.219.0.0/24")
        guests = ContainerGuests(
            LabHandle("x", tmp_path, "abc"), NspawnLayout({}, addresses, ("worker",)), found
        )
        looks: list[int] = []

        def look() -> bool:
            looks.append(1)
            if len(looks) == 2:
                process.kill()
                process.wait()
            return False

        with pytest.raises(BrokenError, match="lab 'x': its machines were ended from outside"):
            guests.site.deadline(60).wait("waiting for an API server", look)
    assert len(looks) == 2


def test_a_record_without_an_address_for_each_machine_is_none(tmp_path: Path) -> None:
    lab = LabHandle("x", tmp_path, "abc")
    for prefix, machines, there in ((32, 1, False), (28, 6, False), (28, 5, True), (24, 244, True)):
        names = tuple(f"m{number}" for number in range(machines))
        made = NspawnLayout({}, IPv4Network(f"10.219.0.0/{prefix}"), names)
        layout.save(lab, made)
        assert layout.load(lab) == (made if there else None)
        assert not there or made.address(names[-1])
