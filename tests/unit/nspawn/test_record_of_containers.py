"""What a lab of system containers is made from, and what it is to be made from now."""

from __future__ import annotations

from ipaddress import IPv4Network
from pathlib import Path
from types import SimpleNamespace

import pytest

from lab._errors import BrokenError
from lab.inventory.inventory import STOCK
from lab.lifecycle.blueprint import draw
from lab.providers.nspawn import holder, layout, networks
from lab.providers.nspawn.guests import ContainerGuests
from lab.providers.nspawn.layout import Layout
from lab.providers.nspawn.provider import NspawnProvider
from lab.providers.provider import LabHandle

SMALL = Path(__file__).parents[2] / "small.yaml"


def test_a_machine_that_the_scenario_has_no_more_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    intent = draw(str(SMALL), None, None, "namespaces", real=True).intent
    lab = LabHandle("x", tmp_path, "abc")
    names = (*(one.name for one in intent.machines), "third")
    layout.save(lab, Layout({}, IPv4Network("10.219.0.0/24"), names))
    monkeypatch.setattr(holder, "find", lambda _: SimpleNamespace(pid=1))
    monkeypatch.setattr(holder, "entry", lambda _: SimpleNamespace(pid=1))
    monkeypatch.setattr(networks, "missing", lambda *_: "")
    found = NspawnProvider(STOCK).liveness(lab, intent)
    assert (found.state, found.again_from) == ("broken", "images")
    assert "'third'" in found.detail


@pytest.mark.parametrize("management", ["10.219.0.0/24", "10.219.0.1/32"])
def test_a_machine_that_the_record_has_no_address_of_is_named(
    tmp_path: Path, management: str
) -> None:
    lab = LabHandle("x", tmp_path, "abc")
    names = ("master",) if management.endswith("/32") else ("worker",)
    guests = ContainerGuests(lab, Layout({}, IPv4Network(management), names), None)
    with pytest.raises(BrokenError, match="address of machine 'master': the lab's record has none"):
        guests.address("master")
