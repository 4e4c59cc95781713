"""Which provider a lab comes up on, and what a doctor may call a failure."""

from __future__ import annotations

import pytest

from lab.inventory.inventory import STOCK, Hypervisor, Inventory
from lab.lifecycle.providers import chosen, weighed
from lab.providers.provider import Diagnosis
from lab.providers.setup import ProviderSetup

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
    assert [one.level for one in weighed(found, is_default=True)] == ["fail", "ok"]
    assert [one.level for one in weighed(found, is_default=False)] == ["warn", "ok"]
