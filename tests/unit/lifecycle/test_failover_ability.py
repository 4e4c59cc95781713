"""A provider that says that it can fail over has all that the failover test asks of it."""

from __future__ import annotations

import pytest

from lab.inventory.inventory import STOCK
from lab.lifecycle.providers import Providers
from lab.providers.provider import FAILOVER

ASKED = ("gateway_holders", "cut_off", "join_again", "pulse")


@pytest.mark.parametrize("name", ["netns", "nspawn", "fake"])
def test_what_the_failover_test_asks_is_there_where_it_is_declared(name):
    provider = Providers(inventory=lambda: STOCK)[name]
    there = [one for one in ASKED if hasattr(provider, one)]
    assert there == (list(ASKED) if FAILOVER in provider.abilities else [])
