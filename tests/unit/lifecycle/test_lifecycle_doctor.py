"""Which provider a lab comes up on, what providers can do, and what the doctor says."""

import os
from pathlib import Path

import pytest

from lab.inventory.inventory import STOCK, Hypervisor, Inventory
from lab.lifecycle.providers import Providers, chosen, journal, weigh_diagnoses
from lab.providers.provider import FAILOVER, Diagnosis
from lab.providers.setup import ProviderSetup
from lab.state import capacity


def of(directory: Path) -> tuple[str, str, str]:
    diagnosis = journal({"HYBRIDLAB_STATE": str(directory)})
    return diagnosis.level, diagnosis.seen, diagnosis.hint


def test_a_state_directory_that_can_be_made_is_well_and_is_not_made(tmp_path):
    state = tmp_path / "not" / "yet"
    assert of(state) == ("ok", f"kept in '{state}'", "")
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_a_failed_check(tmp_path, monkeypatch):
    monkeypatch.setattr(capacity, "NEEDED_BYTES", 1 << 60)
    level, seen, hint = of(tmp_path)
    assert level == "fail"
    assert "MiB are free" in seen
    assert "df -h" in hint


@pytest.mark.parametrize("name", ["", "state.db"])
def test_an_unwritable_directory_is_a_failed_check(tmp_path, name, monkeypatch):
    (tmp_path / "state.db").touch()
    barred = tmp_path / name
    monkeypatch.setattr(os, "access", lambda path, _: path != barred)  # root may write anywhere
    level, seen, hint = of(tmp_path)
    assert (level, seen) == ("fail", f"'{barred}' cannot be written")
    assert "HYBRIDLAB_STATE" in hint


def test_without_a_home_the_variable_to_set_is_named():
    diagnosis = journal({})
    assert (diagnosis.level, diagnosis.seen) == ("fail", "HOME is not set")
    assert "export HYBRIDLAB_STATE" in diagnosis.hint


EMPTY = Inventory(owner="me")
ONE = Inventory(hypervisors={"rack1": Hypervisor(name="rack1", uri="qemu:///system")})


@pytest.mark.parametrize(
    ("asked", "inventory", "name"),
    [
        (None, None, "netns"),
        (None, EMPTY, "netns"),
        (None, ONE, "libvirt"),
        ("netns", ONE, "netns"),
        ("libvirt", None, "libvirt"),
        ("fake", ONE, "fake"),
    ],
)
def test_hypervisors_are_used_where_there_are_any_unless_asked_otherwise(asked, inventory, name):
    assert chosen(asked, inventory) == name


def test_without_hypervisors_real_machines_are_on_this_one():
    assert ProviderSetup().machines() == STOCK
    assert ProviderSetup(lambda: EMPTY).machines().hypervisors == STOCK.hypervisors
    assert ProviderSetup(lambda: EMPTY).machines().owner == "me"
    assert ProviderSetup(lambda: ONE).machines() == ONE


def test_what_the_default_does_without_is_a_warning():
    found = (Diagnosis("a", "x", "fail", "no", "do"), Diagnosis("a", "y", "ok", "yes"))
    assert [diagnosis.level for diagnosis in weigh_diagnoses(found, is_default=True)] == [
        "fail",
        "ok",
    ]
    assert [diagnosis.level for diagnosis in weigh_diagnoses(found, is_default=False)] == [
        "warn",
        "ok",
    ]


ASKED = ("gateway_holders", "cut_off", "reconnect", "pulse")


@pytest.mark.room
@pytest.mark.parametrize("name", ["netns", "nspawn", "fake"])
def test_what_the_failover_test_asks_is_there_where_it_is_declared(name):
    provider = Providers(inventory=lambda: STOCK)[name]
    there = [one for one in ASKED if hasattr(provider, one)]
    assert there == (list(ASKED) if FAILOVER in provider.abilities else [])
